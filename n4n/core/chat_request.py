"""Reading a chat request: the fields the gateway needs, typed; all others stay the bytes the client wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.errors import MalformedRequest
from n4n.core.member_kinds import CHAT, Kinds, check_kinds, of
from n4n.core.origin import origins_in

T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
_Names = Annotated[list[str], msgspec.Meta(min_length=1, max_length=64)]

OWN_FIELDS = frozenset(("models", "provider", "unsupported_params"))  # n4n's own; they never reach a provider
# What other gateways let a body say about where to send it, and with which key. Refused: the pool's key would follow.
_REFUSED = frozenset(
    ("api_base", "base_url", "api_key", "api_version", "extra_headers", "organization", "custom_llm_provider", "extra_body")
)  # fmt: skip
_ON_UNSUPPORTED = ("drop", "reject", "route_away")
_MAX_MODEL = 256
_A_NAME = "must be the name of a model, a text"
_FROM_ONE = "must be a whole number from 1"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB-F]")
_MESSAGES = re.compile(rb"\[\s*\{")
_DETAILS = b'"reasoning_details"'
_EMPTY = (b"null", b"false", b"[]", b"{}", b'""')

# The fields that an optional feature is asked for by. A field that is null, false or empty asks for nothing.
FEATURE_FIELDS: dict[str, tuple[str, ...]] = {
    "tools": ("tools", "functions", "function_call", "tool_choice", "parallel_tool_calls"),
    "tool_choice": ("tool_choice",),
    "forced_tool_choice": ("tool_choice",),
    "parallel_tools": ("parallel_tool_calls",),
    "audio_output": ("audio", "modalities"),
    "json_schema": ("response_format",),
    "json_object": ("response_format",),
    "reasoning": ("reasoning_effort", "reasoning", "include_reasoning", "thinking"),
    "prompt_caching": ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_control"),
    "sampling_params": ("temperature", "top_p", "top_k", "min_p"),
    "seed": ("seed",),
    "logprobs": ("logprobs", "top_logprobs"),
    "logit_bias": ("logit_bias",),
    "penalties": ("presence_penalty", "frequency_penalty", "repetition_penalty"),
    "stop": ("stop",),
    "n": ("n",),
    "stream_options": ("stream_options",),
    "web_search": ("web_search_options",),
}
_BY_PRESENCE = {
    field: feature
    for feature, fields in FEATURE_FIELDS.items()
    if feature not in ("tools", "tool_choice", "forced_tool_choice", "audio_output", "json_schema", "json_object", "n", "parallel_tools")
    for field in fields
} | {"tools": "tools", "functions": "tools", "tool_choice": "tool_choice", "audio": "audio_output", "parallel_tool_calls": "parallel_tools"}
_MEANT_WHEN_FALSE = frozenset(("parallel_tool_calls",))
# What nearly every chat API takes is gated only by a list that names some of it: one that names none is silent about it. The last
# three change nothing that a client would miss. Who names a feature's better form has the plain one.
_USUAL = frozenset(("sampling_params", "stop", "penalties", "n"))
_NAMED_BY_FULL = _USUAL | {"stream_options"}
_UNGATED = frozenset(("stream_options", "prompt_caching", "assistant_prefill"))
_NOT_IN_SHORT = _UNGATED | _USUAL
_IMPLIED_BY = {"tool_choice": "tools", "forced_tool_choice": "tools", "parallel_tools": "tools", "json_object": "json_schema"}
_PARTS = {"image_url": "vision", "input_audio": "audio_input", "file": "pdf_input"}
_PARTS_WRITTEN = tuple((name, b'"%b"' % name.encode()) for name in _PARTS)


class _Part(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    content: list[_Part] | str | None = None


class _Format(msgspec.Struct):
    type: str = ""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


_MESSAGE_LIST = msgspec.json.Decoder(list[_Message])
_TEXT = msgspec.json.Decoder(str)
_NAMES = msgspec.json.Decoder(_Names | None)
_FLAG = msgspec.json.Decoder(bool | None)
_COUNT = msgspec.json.Decoder(_Count | None)
_CHOICES = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1, le=128)] | None)
_OPTIONS = msgspec.json.Decoder(_StreamOptions | None)
_FORMAT = msgspec.json.Decoder(_Format | None)
_OBJECT = msgspec.json.Decoder(dict[str, object] | None)
_TEXT_LIST = msgspec.json.Decoder(list[str])


_SELDOM = frozenset(("stream_options", "n", "models", "provider", "unsupported_params", "response_format", "modalities"))
_MOST_SHAPES, _LONGEST_SHAPE = 512, 2048


class _Shape(msgspec.Struct, frozen=True):
    """What the names of a body's members tell without their values. A client's bodies have nearly always the same ones."""

    usual: bool  # all that must be there is, nothing that is refused, and none of _SELDOM
    asking: tuple[str, ...]  # those that an optional feature is asked for by
    kinds: Kinds  # those that may be of some kinds only


_shapes: dict[tuple[str, ...], _Shape] = {}


def _shape(names: tuple[str, ...]) -> _Shape:
    shape = _shapes.get(names)
    if shape is None:
        known = frozenset(names)
        usual = {"model", "messages"} <= known and known.isdisjoint(_SELDOM | _REFUSED)
        shape = _Shape(usual, tuple(_BY_PRESENCE.keys() & known), of(CHAT, names))
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        if sum(map(len, names)) <= _LONGEST_SHAPE:
            _shapes[names] = shape
    return shape


def missing_features(features: frozenset[str], supports: frozenset[str] | None) -> frozenset[str]:
    """The optional features a request uses that an endpoint's `supports` denies; None: nothing was said, nothing is denied."""
    if supports is None:
        return frozenset()
    denied = features - supports - (_UNGATED if is_full(supports) else _NOT_IN_SHORT)
    return frozenset([name for name in denied if _IMPLIED_BY.get(name) not in supports]) if denied else denied


def is_full(supports: frozenset[str]) -> bool:
    """Whether a list of features names what nearly every chat API takes too, so that what it leaves out of that is denied."""
    return not supports.isdisjoint(_NAMED_BY_FULL)


def read_chat(body: bytes, own: frozenset[str] = OWN_FIELDS) -> ChatRequest:
    """A chat request from its body. `own` are the fields that are n4n's and are taken out. Raises MalformedRequest."""
    fields = _fields(body)
    shape = _shape(tuple(fields))
    if not shape.usual or own is not OWN_FIELDS:
        return read_closely(fields, body, own)
    model = _usual_model(bytes(fields["model"]))
    _check_messages(fields)
    check_kinds(fields, shape.kinds)
    most = _read(fields, "max_completion_tokens", _COUNT, _FROM_ONE)
    older = _read(fields, "max_tokens", _COUNT, _FROM_ONE)
    stream = "stream" in fields and _read(fields, "stream", _FLAG, "must be true or false") is True
    features = frozenset([*_asked_by(fields, shape.asking), *_parts(fields["messages"], body)])
    marked = is_marked(body)
    most = older if most is None else most
    if not marked or _DETAILS not in body:
        return ChatRequest(fields, model, stream, False, most, features, len(body), marked=marked)
    return ChatRequest(fields, model, stream, False, most, features, len(body), marked=True, sealed=True, made_by=origins_in(body))


def read_closely(fields: json_bytes.Members, body: bytes, own: frozenset[str]) -> ChatRequest:
    """As `read_chat`, of any body; `fields` are its members. Where the short way above answers, the answer is the same."""
    if not _REFUSED.isdisjoint(fields):
        name = min(_REFUSED.intersection(fields))
        raise MalformedRequest(f"{name} cannot be set in a request: the catalog says where requests go; leave it out", param=name)
    model = _read(fields, "model", _TEXT, _A_NAME)
    if model is None:
        raise MalformedRequest("model is missing: name one; GET /v1/models lists them", param="model")
    _check_messages(fields)
    check_kinds(fields, of(CHAT, fields))
    options = _read(fields, "stream_options", _OPTIONS, 'must be an object such as {"include_usage": true}')
    most = _read(fields, "max_completion_tokens", _COUNT, _FROM_ONE)
    older = _read(fields, "max_tokens", _COUNT, _FROM_ONE)
    n = _read(fields, "n", _CHOICES, "must be a whole number from 1 to 128") or 1
    models = _read(fields, "models", _NAMES, "must be a list of 1 to 64 names of models") or []
    preferences: dict[str, object] | None = _read(fields, "provider", _OBJECT, "must be an object of routing preferences")
    return ChatRequest(
        fields=fields if own.isdisjoint(fields) else {name: raw for name, raw in fields.items() if name not in own},
        model=_model_name(model, "model"),
        stream=_read(fields, "stream", _FLAG, "must be true or false") is True,
        include_usage=options is not None and options.include_usage is True,
        max_output_tokens=older if most is None else most,
        features=frozenset(_features(fields, body, n)),
        body_bytes=len(body),
        models=tuple([_model_name(name, "models") for name in models]),
        unsupported_params=_on_unsupported(fields),
        provider_object=preferences,
        n=n,
        marked=is_marked(body),
        sealed=_DETAILS in body,
        made_by=origins_in(body),
    )


def is_marked(body: bytes) -> bool:
    """Whether a chat may bear marks that only some providers know (n4n.core.dialects.marks)."""
    return b'"cache_control"' in body or _DETAILS in body


def _fields(body: bytes) -> json_bytes.Members:
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"the body is not UTF-8 at byte {error.start}: send JSON in UTF-8") from error
    try:
        return json_bytes.members(body)
    except json_bytes.NotJson as error:
        raise MalformedRequest(_why_not(body, error)) from error


def _why_not(body: bytes, error: json_bytes.NotJson) -> str:
    if isinstance(error.__cause__, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error.__cause__, msgspec.ValidationError):
        return "the body must be a JSON object"
    if _HALF_PAIR.search(body):
        return "the body is not valid JSON: a text may hold half of a surrogate pair, such as \\ud83d alone"
    return f"the body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"


def _read(fields: json_bytes.Members, name: str, decoder: msgspec.json.Decoder[T], rule: str) -> T | None:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{name} {rule}", param=name) from error


@lru_cache(1024)
def _usual_model(raw: bytes) -> str:
    """The name of a model from its JSON; clients ask for few, and what is no name is not kept."""
    return _model_name(_read({"model": msgspec.Raw(raw)}, "model", _TEXT, _A_NAME) or "", "model")


def _model_name(name: str, field: str) -> str:
    if not name or len(name) > _MAX_MODEL or _CONTROL.search(name):
        raise MalformedRequest(f"{field} must be of 1 to {_MAX_MODEL} characters, without control characters", param=field)
    return name


def _check_messages(fields: json_bytes.Members) -> None:
    raw = fields.get("messages")
    if raw is None:
        raise MalformedRequest("messages is missing: send a list of at least one message", param="messages")
    if not _MESSAGES.match(memoryview(raw)):
        raise MalformedRequest("messages must be a list of at least one message, each an object with role and content", param="messages")


def _on_unsupported(fields: json_bytes.Members) -> str | None:
    word = _read(fields, "unsupported_params", _TEXT, f"must be one of {', '.join(_ON_UNSUPPORTED)}")
    if word is not None and word not in _ON_UNSUPPORTED:
        raise MalformedRequest(f"unsupported_params must be one of {', '.join(_ON_UNSUPPORTED)}", param="unsupported_params")
    return word


def _features(fields: json_bytes.Members, body: bytes, n: int) -> Iterable[str]:
    yield from _asked_by(fields, _BY_PRESENCE.keys() & fields.keys())
    if n > 1:
        yield "n"
    wanted = _read(fields, "response_format", _FORMAT, "must be an object with a type")
    if wanted is not None and wanted.type in ("json_schema", "json_object"):
        yield wanted.type
    if "modalities" in fields and b"audio" in bytes(fields["modalities"]):
        yield "audio_output"
    yield from _parts(fields["messages"], body)


def _asked_by(fields: json_bytes.Members, names: Iterable[str]) -> list[str]:
    """The features that these members ask for by being there."""
    found = []
    for name in names:
        raw = bytes(fields[name])
        if raw not in _EMPTY or (raw == b"false" and name in _MEANT_WHEN_FALSE):
            found.append(_BY_PRESENCE[name])
            if name == "tool_choice" and raw not in (b'"auto"', b'"none"'):
                found.append("forced_tool_choice")
    return found


def _parts(messages: msgspec.Raw, body: bytes) -> Iterable[str]:
    """The features that parts of messages ask for. Without a list inside the list of messages, or after it, there are no parts."""
    outer = body.find(b"[", body.find(b'"messages"'))
    if body.find(b"[", outer + 1) < 0:
        return ()
    seen = [name for name, written in _PARTS_WRITTEN if written in body]
    if not seen:
        return ()
    try:
        read = _MESSAGE_LIST.decode(messages)
    except (msgspec.DecodeError, RecursionError):
        return ()  # a content no provider knows; it will say so
    found = {part.type for message in read if isinstance(message.content, list) for part in message.content}
    return [_PARTS[name] for name in seen if name in found]
