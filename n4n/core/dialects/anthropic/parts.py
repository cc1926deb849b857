"""Content parts of a chat as content blocks: text, images, documents, each with its cache mark."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.anthropic.chat_words import Image, Message, Part, decoded, given
from n4n.core.errors import Untellable

Block = dict[str, object]
_DATA_URL = re.compile(rb'"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,"\\]*)*;base64,', re.IGNORECASE)
_ANY_URL = re.compile(r"[a-z][a-z0-9+.-]{1,10}://", re.IGNORECASE)
_TEXT = msgspec.json.Decoder(str)
_EPHEMERAL = msgspec.Raw(b'{"type":"ephemeral"}')
_FOR_AN_HOUR = msgspec.Raw(b'{"type":"ephemeral","ttl":"1h"}')
_TEXTS = frozenset(("text", "input_text", "output_text"))


class Notes:
    """What could not be said, for `n4n.warnings`; `endpoint` is named in each."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.warnings: list[str] = []

    def left_out(self, what: str, why: str = "has no word for it") -> None:
        """Once for the same thing."""
        warning = f"{what} was left out: endpoint {self._endpoint} {why}"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def untellable(self, path: str, why: str) -> Untellable:
        """What to raise for something that is part of the question, and so cannot be left out."""
        return Untellable(f"{path}: endpoint {self._endpoint} {why}", param="messages")

    def say(self, warning: str) -> None:
        """Anything else that a client should know."""
        self.warnings.append(warning)


def blocks_of(message: Message, path: str, notes: Notes) -> list[Block]:
    """The content of one message; a mark on the message is one on its last block. Blank text is left out, which Anthropic refuses."""
    content = message.content
    if isinstance(content, str):
        blocks = [_text(content)] if content.strip() else []
    else:
        found = (_block(part, f"{path}.content[{place}]", notes) for place, part in enumerate(content or ()))
        blocks = [block for block in found if block is not None]
    if blocks and given(message.cache_control):
        blocks[-1]["cache_control"] = message.cache_control
    return blocks


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _block(part: Part, path: str, notes: Notes) -> Block | None:
    block = _unmarked(part, path, notes)
    if block is not None and (mark := mark_of(part.cache_control, part.prompt_cache_breakpoint)) is not None:
        block["cache_control"] = mark
    return block


def _unmarked(part: Part, path: str, notes: Notes) -> Block | None:
    text = part.refusal if part.type == "refusal" else part.text
    if part.type in _TEXTS or part.type == "refusal":
        return _text(text) if text and text.strip() else None
    if part.type == "image_url" and part.image_url is not None:
        image = part.image_url if isinstance(part.image_url, Image) else Image(msgspec.Raw(json_bytes.encode(part.image_url)))
        if image.detail not in (None, "auto"):
            notes.left_out(f"{path}.image_url.detail")
        return {"type": "image", "source": _source(image.url, f"{path}.image_url.url")}
    file = part.file
    if part.type == "file" and file is not None and given(file.file_data):
        source = _source(file.file_data, f"{path}.file.file_data", "application/pdf")
        document: Block = {"type": "document", "source": source}
        return {**document, "title": file.filename} if file.filename else document
    raise notes.untellable(path, "takes no file by an id of OpenAI" if part.type == "file" else f"takes no {part.type[:40]}")


def _source(raw: msgspec.Raw, path: str, otherwise: str = "image/png") -> Block:
    """Where an image or document comes from: a data URL is taken apart, any other is named, bare base64 is data.

    What is in base64 is not read: it goes out as the bytes it came in, of which there may be megabytes.
    """
    view = memoryview(raw)
    found = _DATA_URL.match(view)
    if found is not None:
        media_type = (found[1] or b"text/plain").decode().lower()
        return {"type": "base64", "media_type": media_type, "data": msgspec.Raw(b"".join((b'"', view[found.end() :])))}
    url = decoded(raw, _TEXT, path)
    if url[:5].lower() == "data:":
        head, _, inner = url[5:].partition(",")
        return {"type": "base64", "media_type": head.partition(";")[0] or "text/plain", "data": b64encode(unquote_to_bytes(inner)).decode()}
    if _ANY_URL.match(url):
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": otherwise, "data": url}


def mark_of(cache_control: msgspec.Raw, breakpoint_: object) -> msgspec.Raw | None:
    """A cache mark: Anthropic's own as it came, OpenAI's breakpoint (https://platform.openai.com/docs/guides/prompt-caching) as one."""
    if given(cache_control):
        return cache_control
    if not isinstance(breakpoint_, Mapping):
        return None
    return mark_for(breakpoint_.get("ttl"))


def mark_for(ttl: object) -> msgspec.Raw:
    """A mark that keeps what is cached an hour where OpenAI's word asks for more than that, else five minutes."""
    return _FOR_AN_HOUR if ttl in ("12h", "24h", "1h") else _EPHEMERAL


def thinned(marked: Iterable[Block], most: int) -> int:
    """Take marks away where there are more than `most`, and say how many: the first and the last ones stay.

    The first is what all conversations share, the last ones are where this one goes on.
    """
    found = [block for block in marked if "cache_control" in block]
    surplus = found[1 : len(found) - most + 1] if most > 0 else found
    for block in surplus if len(found) > most else ():
        del block["cache_control"]
    return max(0, len(found) - most)
