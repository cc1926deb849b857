"""Whole answers of the Messages skin: a message in the provider's own words, or one made of a chat completion."""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.anthropic.counts import spelled
from n4n.core.dialects.anthropic.events import FORMAT, SHAPE, dump, input_object
from n4n.core.dialects.anthropic.thinking import block_of, restored
from n4n.core.skins.messages_turns import sealed
from n4n.core.stream_tail import with_note

Object = dict[str, object]
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class Fragment(msgspec.Struct, gc=False):
    """A tool call, or what a delta brings of one."""

    index: int = 0
    id: str | None = None
    function: _Function | None = None


class Speech(msgspec.Struct, gc=False):
    """A message or a delta."""

    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None
    reasoning_details: list[Object] | None = None


class Choice(msgspec.Struct, gc=False):
    """A choice of a completion or of a chunk."""

    index: int = 0
    message: Speech | None = None
    delta: Speech | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, gc=False):
    """A completion or a chunk of one."""

    id: str | None = None
    model: str | None = None
    choices: list[Choice] = []

    @property
    def first(self) -> Choice:
        """The one choice a message can hold."""
        return next((choice for choice in self.choices if choice.index == 0), Choice())


_READ = msgspec.json.Decoder(Completion).decode


def read(payload: bytes) -> Completion:
    """A chunk's payload in the shape of chat; what is in another shape reads as nothing."""
    try:
        return _READ(payload)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json_bytes.parse(payload), Completion)  # half a surrogate pair in an escape
    except ValueError:
        return Completion()


def message_id(name: str | None) -> str:
    """An id that looks like one of Anthropic's."""
    return name if name and name.startswith("msg_") else f"msg_{name or 'n4n'}"


def stop_reason(finish_reason: str | None, *, refused: bool) -> str:
    """Anthropic's word for OpenAI's."""
    return "refusal" if refused else _STOPS.get(finish_reason or "", "end_turn")


def refusal_details(refusal: str) -> Object:
    """`stop_details` of a refusal that is explained in words."""
    return {"type": "refusal", "category": None, "explanation": refusal}


def whole(chunk: Chunk, usage: Usage | None, note: bytes) -> bytes:
    """The body of a whole answer, n4n's block as its last member. `usage` is the truth, `note` JSON."""
    if chunk.shape != SHAPE:
        return with_note(_made(chunk.payload, usage or Usage()), note)
    return with_note(chunk.payload if usage is None or usage == chunk.usage else with_usage(chunk.payload, usage), note)


def with_usage(payload: bytes, usage: Usage) -> bytes:
    """A message or `message_delta` whose usage tells the truth; what else is told there stays."""
    known = json_bytes.loose_members(payload)
    told: dict[str, bytes] = dict(json_bytes.loose_members(known["usage"])) if json_bytes.is_object(known.get("usage")) else {}
    told.update((name, json_bytes.encode(value)) for name, value in spelled(usage).items())
    return json_bytes.join({**known, "usage": json_bytes.join(told.items())}.items())


def _made(payload: bytes, usage: Usage) -> bytes:
    completion = read(payload)
    said = completion.first.message or Speech()
    content: list[Object] = [{"type": "text", "text": text} for text in (said.content, said.refusal) if text]
    for place, call in enumerate(said.tool_calls or ()):
        function = call.function or _Function()
        called = input_object(function.arguments or "")
        content.append({"type": "tool_use", "id": call.id or f"toolu_{place}", "name": function.name or "", "input": called})
    answer: Object = {
        "id": message_id(completion.id),
        "type": "message",
        "role": "assistant",
        "model": completion.model or "",
        "content": _reasoned(content, said),
        "stop_reason": stop_reason(completion.first.finish_reason, refused=bool(said.refusal)),
        "stop_sequence": None,
        "usage": spelled(usage),
    }
    if said.refusal:
        answer["stop_details"] = refusal_details(said.refusal)
    return dump(answer)


def _reasoned(content: list[Object], said: Speech) -> list[Object]:
    """With reasoning as blocks: signed ones where they were; before all else what others sealed, and text that nobody signed."""
    details = said.reasoning_details or []
    blocks = restored(content, details)
    foreign = [block for entry in details if entry.get("format") != FORMAT and (block := reasoning_block(entry)) is not None]
    if said.reasoning_content and not any(block["type"] == "thinking" for block in blocks):
        foreign.insert(0, {"type": "thinking", "thinking": said.reasoning_content, "signature": ""})
    return foreign + blocks


def reasoning_block(entry: Object) -> Object | None:
    """The block that an entry of `reasoning_details` becomes; None: it holds nothing that has to come back."""
    if entry.get("format") == FORMAT:
        return block_of(entry)
    if not any(isinstance(entry.get(name), str) and entry[name] for name in ("signature", "data")):
        return None
    return {"type": "redacted_thinking", "data": sealed(entry)}
