"""Whole completions of OpenAI's kin: reading one, making one of a stream's chunks, and making chunks of one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import cast

import msgspec

from n4n.core import json_bytes, usage
from n4n.core.chat import Chunk
from n4n.core.dialects import deltas
from n4n.core.dialects.classify import failure_inside, garbled, read_error
from n4n.core.dialects.deltas import FunctionFragment, Object, Sound, text_bytes
from n4n.core.errors import Failure, FailureClass
from n4n.core.service_tiers import tier_of
from n4n.core.usage import normalise

NOT_UTF8 = "the provider's answer is not valid JSON in UTF-8"
_SOME = msgspec.Meta(min_length=1)


class _Function(msgspec.Struct, gc=False):
    arguments: str = msgspec.field(default="{}")


class _Call(msgspec.Struct, gc=False):
    id: str
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: FunctionFragment | None = None
    audio: Sound | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: msgspec.Raw = msgspec.Raw()
    error: object = None
    service_tier: object = None


_READ = msgspec.json.Decoder(_Completion)


def read_whole(body: bytes) -> Chunk | Failure:
    """One whole JSON answer with status 200 as a chunk; its bytes stay as they came where nothing has to change."""
    body = body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    if not body:
        return garbled("the provider's answer was empty")
    if body[:1] == b"<":
        return garbled("the provider answered with a web page")
    try:
        body if body.isascii() else body.decode()
        whole = _READ.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return _read_loosely(body)
    if whole.error or not whole.choices:
        return _read_loosely(body)
    if len(whole.choices) == 1:  # nearly always
        (choice,) = whole.choices
        if not _is_right(choice):
            return _read_loosely(body)
        size, speaks = _size(choice), _speaks(choice)
    elif all(map(_is_right, whole.choices)):
        size, speaks = sum(map(_size, whole.choices)), any(map(_speaks, whole.choices))
    else:
        return _read_loosely(body)
    return Chunk(body, content=speaks, finishes=True, usage=usage.read(whole.usage, tier_of(whole.service_tier)), output_bytes=size)


def _is_right(choice: _Choice) -> bool:
    message = choice.message
    if not (choice.finish_reason is None or choice.finish_reason in deltas.FINISHES):
        return False
    if message.reasoning and not message.reasoning_content:
        return False
    return not message.tool_calls or all(call.id and (call.function is None or call.function.arguments) for call in message.tool_calls)


def _speaks(choice: _Choice) -> bool:
    message = choice.message
    return bool(
        message.content
        or message.tool_calls
        or message.reasoning_content
        or message.refusal
        or message.function_call is not None
        or message.audio is not None
    )


def _size(choice: _Choice) -> int:
    message = choice.message
    size = text_bytes(message.content)
    if message.reasoning_content or message.refusal:
        size += text_bytes(message.reasoning_content) + text_bytes(message.refusal)
    if message.tool_calls:
        size += sum(text_bytes(call.function.arguments) for call in message.tool_calls if call.function)
    if message.function_call is not None:
        size += text_bytes(message.function_call.arguments)
    return size


def _read_loosely(body: bytes) -> Chunk | Failure:
    try:
        body.decode()
        whole = json_bytes.parse(body)
    except (UnicodeDecodeError, json_bytes.NotJson):
        return garbled(NOT_UTF8)
    told = read_error(whole)
    if told is not None:
        return failure_inside(told)
    choices = _choices(whole)
    if not choices:
        return garbled("the provider's answer holds no completion")
    changed = False
    for choice in choices:
        failure, repaired = _repair_choice(choice, cast(Object, whole))
        if failure is not None:
            return failure
        changed |= repaired
    known = cast(Object, whole)
    usage = normalise(known.get("usage"), tier_of(known.get("service_tier")))
    messages = [cast(Object, choice["message"]) for choice in choices]
    spoke, size = any(map(deltas.has_output, messages)), sum(map(deltas.output_bytes, messages))
    return Chunk(json_bytes.dump(whole) if changed else body, content=spoke, finishes=True, usage=usage, output_bytes=size)


def _choices(whole: object) -> list[Object]:
    choices = whole.get("choices") if isinstance(whole, dict) else None
    found = choices if isinstance(choices, list) else []
    return found if all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in found) else []


def _repair_choice(choice: Object, whole: Object) -> tuple[Failure | None, bool]:
    failure = failed_finish(choice.get("finish_reason"))
    if failure is not None:
        return failure, False
    message = cast(Object, choice["message"])
    seed = hashlib.sha256(json_bytes.dump([whole.get("id"), choice])).hexdigest()[:16]
    changed = deltas.finish_reason(choice, False)[1]
    changed |= deltas.repair_message(message)
    return None, deltas.repair_whole_calls(message, seed) or changed


def failed_finish(reason: object) -> Failure | None:
    """A finish reason that is none: the model or its server broke down."""
    if not isinstance(reason, str) or reason not in deltas.FAILED_FINISHES:
        return None
    if reason == "insufficient_system_resource":
        return garbled("the provider ran out of resources", FailureClass.OVERLOADED)
    return garbled("the provider broke off its answer")


def as_chunks(whole: Object) -> list[Object]:
    """A completion as two chunks in a stream's shape: all of its output, then the finish reasons with the usage."""
    head = {name: value for name, value in whole.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    spoken, ended = [], []
    for place, choice in enumerate(_choices(whole)):
        index = choice.get("index", place)
        message = cast(Object, choice["message"])
        calls = message.get("tool_calls")
        for at, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                call.setdefault("index", at)
        spoken.append({"index": index, "delta": message, "logprobs": choice.get("logprobs"), "finish_reason": None})
        ended.append({"index": index, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"})
    return [{**head, "choices": spoken}, {**head, "choices": ended, "usage": whole.get("usage")}]


def joined(chunks: Iterable[bytes]) -> Object:
    """One completion of a stream's chunks, as a client would join them."""
    whole: Object = {"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": []}
    choices: dict[int, Object] = {}
    for payload in chunks:
        chunk = cast(Object, json_bytes.parse(payload))
        for name, value in chunk.items():
            if name not in ("choices", "object", "obfuscation") and value not in (None, ""):
                whole[name] = value
        for place, said in enumerate(cast(list[Object], chunk.get("choices") or [])):
            index = said.get("index", place)
            fresh: Object = {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
            _add(choices.setdefault(cast(int, index), fresh), said)
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def _add(choice: Object, said: Object) -> None:
    message = cast(Object, choice["message"])
    for name, value in cast(Object, said.get("delta") or {}).items():
        if name == "tool_calls":
            _add_calls(cast(list[Object], message.setdefault("tool_calls", [])), value)
        else:
            _extend(message, name, value)
    if isinstance(said.get("logprobs"), dict):
        for name, value in cast(Object, said["logprobs"]).items():
            _extend(cast(Object, choice.setdefault("logprobs", {})), name, value)
    choice["finish_reason"] = said.get("finish_reason") or choice["finish_reason"]


def _extend(into: Object, name: str, value: object) -> None:
    before = into.get(name)
    if name in ("role", "type", "id", "index") or before is None:
        into[name] = before if value is None else value
    elif (isinstance(before, str) and isinstance(value, str)) or (isinstance(before, list) and isinstance(value, list)):
        into[name] = before + value  # type: ignore[operator]
    elif isinstance(before, dict) and isinstance(value, dict):
        for inner, piece in value.items():
            _extend(before, inner, piece)


def _add_calls(calls: list[Object], fragments: object) -> None:
    for fragment in fragments if isinstance(fragments, list) else []:
        place = fragment.pop("index", len(calls) - 1)
        while len(calls) <= place:
            calls.append({})
        for name, value in fragment.items():
            _extend(calls[place], name, value)
