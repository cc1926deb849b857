"""Turns of Messages as messages of a chat: text, images, documents, calls with their results, and reasoning that is signed."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.anthropic.chat_chunks import Places, detail
from n4n.core.dialects.anthropic.chat_words import decoded, given
from n4n.core.dialects.anthropic.native import FOREIGN
from n4n.core.errors import MalformedRequest
from n4n.core.origin import marks_of

Object = dict[str, object]
_NONE = msgspec.Raw(b"")


class _Source(msgspec.Struct, gc=False):
    type: str = ""
    media_type: str = ""
    data: msgspec.Raw = msgspec.Raw(b'""')  # may be megabytes of base64
    url: str = ""
    content: list[_Block] | str | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    source: _Source | None = None
    title: str | None = None
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: msgspec.Raw = _NONE  # of a result: text or blocks; of what servers' tools found: anything
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    cache_control: msgspec.Raw = _NONE


class _Turn(msgspec.Struct, gc=False):
    role: str
    content: list[_Block] | str = ""


_TURNS = msgspec.json.Decoder(list[_Turn])
_CONTENT = msgspec.json.Decoder(list[_Block] | str | None)


@dataclass(slots=True)
class Told:
    """The messages of a chat, and what of the turns it could not say."""

    messages: list[Object] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def raw_or_none(raw: msgspec.Raw | None) -> msgspec.Raw | None:
    """A member as it came; None where it was not there, or null."""
    return raw if raw is not None and given(raw) else None


def chat_messages(system: msgspec.Raw | None, messages: msgspec.Raw) -> Told:
    """All turns, the instructions first. Raises MalformedRequest for what nobody could read."""
    told = Told()
    if system is not None:
        _instruct(told, decoded(system, _CONTENT, "system") or "", "system")
    turns: list[_Turn] = decoded(messages, _TURNS, "messages")
    for place, turn in enumerate(turns):
        path = f"messages[{place}]"
        match turn.role:
            case "system":
                _instruct(told, turn.content, f"{path}.content")
            case "user":
                _ask(told, turn.content, f"{path}.content")
            case "assistant":
                _answer(told, turn.content, f"{path}.content")
            case _:
                raise MalformedRequest(f"{path}.role must be user, assistant or system", param=f"{path}.role")
    return told


def _instruct(told: Told, content: list[_Block] | str, path: str) -> None:
    parts = content if isinstance(content, str) else _parts(content, path, told)
    if parts:
        told.messages.append({"role": "system", "content": _plain(parts)})


def _ask(told: Told, content: list[_Block] | str, path: str) -> None:
    """Results first, each a message: a chat wants them right behind the calls. Their images follow in the user's own message."""
    if isinstance(content, str):
        told.messages.append({"role": "user", "content": content})
        return
    seen: list[Object] = []
    for place, block in enumerate(content):
        if block.type == "tool_result":
            told.messages.append(_result(block, f"{path}[{place}]", seen, told))
    parts = seen + _parts([block for block in content if block.type != "tool_result"], path, told)
    if parts:
        told.messages.append({"role": "user", "content": _plain(parts)})


def _result(block: _Block, path: str, seen: list[Object], told: Told) -> Object:
    content = decoded(bytes(block.content) or b"null", _CONTENT, f"{path}.content") or ""
    parts: list[Object] = [{"type": "text", "text": content}]
    if not isinstance(content, str):
        parts = _parts(content, f"{path}.content", told)
    texts = [str(part["text"]) for part in parts if part["type"] == "text"]
    seen += [part for part in parts if part["type"] != "text"]
    if block.is_error:
        told.lost.append("is_error of a tool_result")
    made: Object = {"role": "tool", "tool_call_id": block.tool_use_id, "content": "\n".join(texts)}
    return {**made, "cache_control": block.cache_control} if given(block.cache_control) else made


def _answer(told: Told, content: list[_Block] | str, path: str) -> None:
    if isinstance(content, str):
        told.messages.append({"role": "assistant", "content": content})
        return
    texts: list[str] = []
    calls: list[Object] = []
    details: list[Object] = []
    places = Places()
    for number, block in enumerate(content):
        place = places.next(block.type)
        match block.type:
            case "text":
                texts.append(block.text or "")
            case "tool_use":
                function = {"name": block.name, "arguments": bytes(block.input).decode()}
                calls.append({"id": block.id, "type": "function", "function": function})
            case "thinking" | "redacted_thinking":
                details += _detail(block, place)
            case _:
                told.lost.append(f"{path}[{number}] ({block.type})")
    answer: Object = {"role": "assistant", "content": "".join(texts) or None}
    answer.update((name, value) for name, value in {"tool_calls": calls, "reasoning_details": details}.items() if value)
    if len(answer) > 2 or texts:
        told.messages.append(answer)


def _detail(block: _Block, place: int) -> list[Object]:
    sealed = block.signature if block.type == "thinking" else block.data
    if not sealed:
        return []
    if sealed.startswith(FOREIGN):
        entry = unsealed(sealed)
        return [] if entry is None else [entry]
    if block.type == "thinking":
        return [detail("reasoning.text", place, text=block.thinking or "", signature=sealed)]
    return [detail("reasoning.encrypted", place, data=sealed)]


def _parts(blocks: list[_Block], path: str, told: Told) -> list[Object]:
    parts: list[Object] = []
    for place, block in enumerate(blocks):
        made = _part(block, f"{path}[{place}]", told)
        if made and given(block.cache_control):
            made[-1]["cache_control"] = block.cache_control
        parts += made
    return parts


def _part(block: _Block, path: str, told: Told) -> list[Object]:
    source = block.source
    if block.type == "text":
        return [{"type": "text", "text": block.text}] if block.text else []
    if block.type == "image" and source is not None and source.type in ("base64", "url"):
        return [{"type": "image_url", "image_url": {"url": _url(source)}}]
    if block.type == "document" and source is not None:
        if source.type == "base64":
            return [{"type": "file", "file": {"file_data": _url(source), "filename": block.title or "document.pdf"}}]
        if source.type == "text":
            return [{"type": "text", "text": source.data}] if _is_text(source.data) else []
        if source.type == "content":
            inner = source.content or ""
            return [{"type": "text", "text": inner}] if isinstance(inner, str) else _parts(inner, f"{path}.source.content", told)
    told.lost.append(f"{path} ({block.type})")
    return []


def _url(source: _Source) -> object:
    if source.type == "url":
        return source.url
    if not _is_text(source.data):
        return ""
    head = json_bytes.encode(f"data:{source.media_type};base64,")
    return msgspec.Raw(b"".join((head[:-1], memoryview(source.data)[1:])))


def _is_text(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b'"'


def _plain(parts: list[Object] | str) -> object:
    """Text without a mark is a string, which every provider takes."""
    if isinstance(parts, str) or not all(part.keys() == {"type", "text"} for part in parts):
        return parts
    return parts[0]["text"] if len(parts) == 1 else parts


def sealed(entry: Object) -> str:
    """Another provider's entry of `reasoning_details` as what a client of Messages keeps and sends back unread."""
    return FOREIGN + marks_of((entry,)) + b64encode(json_bytes.dump(entry)).decode()


def unsealed(data: str) -> Object | None:
    """The entry again; None: somebody tampered with it."""
    try:
        entry = json_bytes.parse(b64decode(data.rpartition(".")[2], validate=True))
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
