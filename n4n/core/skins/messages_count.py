"""Counting the tokens of a Messages request without asking anybody: a rough count, by sizes.

Text is counted by its bytes, and what stands in base64 not by its length but by what such things usually cost
(https://platform.claude.com/docs/en/build-with-claude/vision, …/pdf-support).
"""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.stream_tail import with_note
from n4n.core.usage import estimate

IMAGE_TOKENS = 1_600  # the most that an image of up to 1.15 megapixels costs
PDF_BYTES_PER_TOKEN = 40  # of base64: a page of text is some 60 KB and costs 1,500 to 3,000
_NOT_INPUT = frozenset(("model", "max_tokens", "stream", "temperature", "top_p", "top_k", "metadata", "anthropic_beta"))


class _Source(msgspec.Struct, gc=False):
    data: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    source: _Source | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    source: _Source | None = None
    content: list[_Part] | str | None = None


class _Turn(msgspec.Struct, gc=False):
    content: list[_Block] | str | None = None


_TURNS = msgspec.json.Decoder(list[_Turn])


def rough_count(body: bytes) -> int:
    """The input tokens of a request's body, at least 1; the body is JSON that `read_messages` has accepted."""
    fields = json_bytes.members(body)
    size = sum(len(memoryview(raw)) for name, raw in fields.items() if name not in _NOT_INPUT)
    media, tokens = _media(fields["messages"])
    return max(1, estimate(max(0, size - media), 0).prompt_tokens + tokens)


def count_body(input_tokens: int, note: bytes) -> bytes:
    """The answer of count_tokens, n4n's block in it."""
    return with_note(json_bytes.encode({"input_tokens": input_tokens}), note)


def _media(messages: msgspec.Raw) -> tuple[int, int]:
    """The bytes of base64 in a request, and the tokens of what they hold; images that are only named count too."""
    try:
        turns = _TURNS.decode(messages)
    except (msgspec.DecodeError, RecursionError):
        return 0, 0
    blocks = [block for turn in turns if isinstance(turn.content, list) for block in turn.content]
    inner = [part for block in blocks if isinstance(block.content, list) for part in block.content]
    found = [(block.type, block.source) for block in blocks] + [(part.type, part.source) for part in inner]
    size = tokens = 0
    for kind, source in found:
        if source is not None and kind in ("image", "document"):
            length = len(memoryview(source.data))
            size += length
            tokens += IMAGE_TOKENS if kind == "image" else length // PDF_BYTES_PER_TOKEN
    return size, tokens
