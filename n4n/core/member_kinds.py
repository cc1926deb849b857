"""What kinds of JSON the members of a request may be, skin by skin, for all that is routed on or translated.

A provider of the client's own words gets most members as they came. One that fails over `"tools": 5` with a 500 would be held to be sick,
for everybody; so what cannot be is refused by name before anything is sent. What may be long is looked at where it begins, a list also
where its first entry does: to look at every message costs as much as to read the body. That is done where a provider has failed, so that
at least nobody's health is lowered over it (`whose_fault`). null is the same as absent.

OpenAI's reference (https://platform.openai.com/docs/api-reference/chat/create) tells the kinds of a chat's members; where providers that
speak like it take another kind too (Together's logprobs, Fireworks' reasoning_effort, llama.cpp's logit_bias), that is let through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec

from n4n.core.errors import Failure, FailureClass, MalformedRequest


class _Object(msgspec.Struct):
    """Any object; what is in it is skipped."""


class MemberKind(msgspec.Struct, frozen=True):
    """`read` raises ValueError where a member's JSON is something else; `says`: what it may be, in words."""

    read: Callable[[msgspec.Raw], object]
    says: str


def _decoded(kind: object, says: str) -> MemberKind:
    return MemberKind(msgspec.json.Decoder(kind).decode, says)


def _begun(pattern: bytes, says: str) -> MemberKind:
    begins = re.compile(pattern).match

    def read(raw: msgspec.Raw) -> None:
        if begins(memoryview(raw)) is None:
            raise ValueError

    return MemberKind(read, says)


Kinds = tuple[tuple[str, MemberKind], ...]
TEXT = _decoded(str | None, "a text")
NUMBER = _decoded(float | None, "a number")
FLAG = _decoded(bool | None, "true or false")
OBJECT = _decoded(_Object | None, "an object")
LONG_TEXT = _begun(rb'["n]', "a text")
OBJECTS = _begun(rb"\[\s*[{\]]|n", "a list of objects")
TEXTS = _decoded(list[str] | None, "a list of texts")
_TEXT_OR_TEXTS = _decoded(str | list[str] | None, "a text or a list of texts")
_CHOICE = _decoded(str | _Object | None, "a text or an object")

CHAT: Mapping[str, MemberKind] = {
    "temperature": NUMBER, "top_p": NUMBER, "top_k": NUMBER, "metadata": OBJECT, "service_tier": TEXT, "cache_control": OBJECT,
    "user": TEXT, "safety_identifier": TEXT, "prompt_cache_key": TEXT, "prompt_cache_retention": TEXT, "prompt_cache_options": OBJECT,
    "top_logprobs": NUMBER, "parallel_tool_calls": FLAG, "store": FLAG, "reasoning": OBJECT, "tool_choice": _CHOICE, "tools": OBJECTS,
    "functions": OBJECTS, "function_call": _CHOICE, "modalities": TEXTS, "audio": OBJECT, "include_reasoning": FLAG, "thinking": OBJECT,
    "reasoning_effort": _decoded(str | float | bool | None, "a text"), "verbosity": TEXT, "prediction": _begun(rb"[{n]", "an object"),
    "logprobs": _decoded(bool | float | None, "true or false"), "logit_bias": _decoded(_Object | list[object] | None, "an object"),
    "min_p": NUMBER, "seed": NUMBER, "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "repetition_penalty": NUMBER,
    "stop": _TEXT_OR_TEXTS, "web_search_options": OBJECT,
}  # fmt: skip
# Of the other skins, those that neither `read_chat` is given too nor the skin reads with a type.
COMPLETIONS: Mapping[str, MemberKind] = {"suffix": LONG_TEXT, "echo": FLAG, "best_of": NUMBER}
RESPONSES: Mapping[str, MemberKind] = {
    "instructions": LONG_TEXT, "prompt": OBJECT, "stream_options": OBJECT, "truncation": TEXT, "max_tool_calls": NUMBER,
    "metadata": OBJECT, "service_tier": TEXT, "user": TEXT, "safety_identifier": TEXT,
}  # fmt: skip
MESSAGES: Mapping[str, MemberKind] = {
    "system": _begun(rb'["n]|\[\s*[{\]]', "a text or a list of blocks"), "stop_sequences": TEXTS, "metadata": OBJECT,
    "mcp_servers": OBJECTS, "context_management": OBJECT,
}  # fmt: skip
EMBEDDINGS: Mapping[str, MemberKind] = {"user": TEXT}
_FOUND = {ord("{"): "an object", ord("["): "a list", ord('"'): "a text", ord("t"): "true", ord("f"): "false", ord("n"): "null"}


def check_kinds(fields: Mapping[str, msgspec.Raw], kinds: Iterable[tuple[str, MemberKind]]) -> None:
    """MalformedRequest for the first of these members, which are all there, that is of no kind it may be."""
    for name, kind in kinds:
        try:
            kind.read(fields[name])
        except (ValueError, RecursionError) as error:
            found = _found(memoryview(fields[name]))
            raise MalformedRequest(f"{name} must be {kind.says}, not {found}: send it so, or leave it out", param=name) from error


def of(known: Mapping[str, MemberKind], names: Iterable[str]) -> Kinds:
    """Those of these members that have a kind, with it."""
    return tuple([(name, known[name]) for name in names if name in known])


def _found(raw: memoryview) -> str:
    found = _FOUND.get(raw[0], "a number")
    inside = bytes(raw[1:64]).lstrip() if found == "a list" else b""
    return found if inside[:1] in (b"", b"]") else f"a list that begins with {_FOUND.get(inside[0], 'a number')}"


# ── what is inside, asked only where a provider has failed over it


class _Inside(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | list[str | _Object] | _Object | None = None
    tool_calls: list[_Object] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class _Tool(msgspec.Struct, gc=False):
    type: str | None = None
    function: _Object | None = None


_INSIDE = (("messages", msgspec.json.Decoder(list[_Inside])), ("tools", msgspec.json.Decoder(list[_Tool] | None)))


def whose_fault(fields: Mapping[str, msgspec.Raw], failure: Failure) -> Failure:
    """A provider's failure over a chat: its own, or that of a request in which something is of a kind that it nowhere is."""
    for name, decoder in _INSIDE:
        try:
            if name in fields:
                decoder.decode(fields[name])
        except (msgspec.ValidationError, RecursionError) as error:
            where = str(error).removeprefix("Expected ").replace("`$", f"`{name}")
            return replace(failure, failure_class=FailureClass.BAD_REQUEST, message=f"{name} cannot be read: expected {where}", param=name)
    return failure
