"""A member of another JSON type than it can have is refused by name, on every skin, before any provider could choke on it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from n4n.core import member_kinds
from n4n.core.chat_request import FEATURE_FIELDS
from n4n.core.errors import Failure, FailureClass, MalformedRequest
from n4n.core.member_kinds import whose_fault
from n4n.core.skins.table import SKINS

TURNS = [{"role": "user", "content": "hi"}]
GOOD: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"model": "m", "messages": TURNS},
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/embeddings": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": TURNS},
    "/v1/responses": {"model": "m", "input": "hi"},
}
CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES = GOOD
TEXT, NUMBER, FLAG, OBJECT, TEXTS, OBJECTS = "text", "number", "flag", "object", "texts", "objects"
VALUES: dict[str, tuple[object, ...]] = {
    TEXT: ("x",), NUMBER: (5, -1.5), FLAG: (True, False), OBJECT: ({"a": 1},), TEXTS: (["x"],), OBJECTS: ([{"a": 1}],),
}  # fmt: skip
OTHER: tuple[object, ...] = ([5], [None], [[]])  # lists of nothing that anything is a list of
SAMPLING = {"temperature": {NUMBER}, "top_p": {NUMBER}}
OWN = {"models": {TEXTS}, "provider": {OBJECT}, "stream": {FLAG}, "model": {TEXT}}
OPENAI = {
    **SAMPLING, **OWN, "user": {TEXT}, "n": {NUMBER}, "seed": {NUMBER}, "stop": {TEXT, TEXTS}, "logit_bias": {OBJECT, TEXTS, OBJECTS},
    "presence_penalty": {NUMBER}, "frequency_penalty": {NUMBER}, "max_tokens": {NUMBER}, "stream_options": {OBJECT},
}  # fmt: skip
# What each may be, member by member: everything of a request that is routed on, or put into other words.
MAY_BE: dict[str, dict[str, set[str]]] = {
    CHAT: {
        **OPENAI, "messages": {OBJECTS}, "tools": {OBJECTS}, "functions": {OBJECTS}, "tool_choice": {TEXT, OBJECT},
        "function_call": {TEXT, OBJECT}, "parallel_tool_calls": {FLAG}, "response_format": {OBJECT}, "modalities": {TEXTS},
        "audio": {OBJECT}, "max_completion_tokens": {NUMBER}, "logprobs": {FLAG, NUMBER}, "top_logprobs": {NUMBER},
        "reasoning": {OBJECT}, "reasoning_effort": {TEXT, NUMBER, FLAG}, "include_reasoning": {FLAG}, "thinking": {OBJECT},
        "top_k": {NUMBER}, "min_p": {NUMBER}, "repetition_penalty": {NUMBER}, "metadata": {OBJECT}, "service_tier": {TEXT},
        "store": {FLAG}, "verbosity": {TEXT}, "prediction": {OBJECT}, "safety_identifier": {TEXT}, "prompt_cache_key": {TEXT},
        "prompt_cache_options": {OBJECT}, "prompt_cache_retention": {TEXT}, "web_search_options": {OBJECT}, "cache_control": {OBJECT},
    },
    COMPLETIONS: {**OPENAI, "prompt": {TEXT, TEXTS}, "suffix": {TEXT}, "echo": {FLAG}, "best_of": {NUMBER}, "logprobs": {NUMBER, FLAG}},
    EMBEDDINGS: {"model": {TEXT}, "models": {TEXTS}, "input": {TEXT, TEXTS}, "dimensions": {NUMBER}, "user": {TEXT}},
    MESSAGES: {
        **SAMPLING, **OWN, "top_k": {NUMBER}, "messages": {OBJECTS}, "system": {TEXT, OBJECTS}, "tools": {OBJECTS}, "tool_choice": {OBJECT},
        "thinking": {OBJECT}, "output_config": {OBJECT}, "output_format": {OBJECT}, "stop_sequences": {TEXTS}, "metadata": {OBJECT},
        "max_tokens": {NUMBER}, "service_tier": {TEXT}, "cache_control": {OBJECT}, "mcp_servers": {OBJECTS},
        "context_management": {OBJECT},
    },
    RESPONSES: {
        **SAMPLING, **OWN, "input": {TEXT, OBJECTS}, "instructions": {TEXT}, "tools": {OBJECTS}, "tool_choice": {TEXT, OBJECT},
        "text": {OBJECT}, "reasoning": {OBJECT}, "include": {TEXTS}, "parallel_tool_calls": {FLAG}, "store": {FLAG},
        "background": {FLAG}, "max_output_tokens": {NUMBER}, "top_logprobs": {NUMBER}, "metadata": {OBJECT}, "service_tier": {TEXT},
        "user": {TEXT}, "safety_identifier": {TEXT}, "prompt_cache_key": {TEXT}, "prompt_cache_options": {OBJECT},
        "prompt_cache_retention": {TEXT}, "stream_options": {OBJECT}, "truncation": {TEXT}, "max_tool_calls": {NUMBER}, "prompt": {OBJECT},
    },
}  # fmt: skip
NEEDS_MORE = {(RESPONSES, "background"), (EMBEDDINGS, "dimensions"), (RESPONSES, "tools"), (MESSAGES, "tools"), (CHAT, "messages")}
OF_ANYTHING = {"prompt", "input", "logit_bias"}  # lists of numbers, too
OUT_OF_RANGE = {"n", "max_tokens", "max_completion_tokens", "max_output_tokens", "dimensions", "logprobs", "provider"}


def read(path: str, **fields: object) -> None:
    SKINS[path].read(json.dumps({**GOOD[path], **fields}).encode(), lambda _: None)


def wrong(name: str, may_be: set[str]) -> Iterator[object]:
    """Values of every type that it may not be."""
    for kind, values in VALUES.items():
        if kind not in may_be:
            yield from values
    if not may_be & {TEXTS, OBJECTS}:
        yield []
    if name not in OF_ANYTHING:
        yield from OTHER


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, members in MAY_BE.items() for name in members])
def test_what_is_of_a_wrong_type_is_refused_by_name_and_with_the_remedy(path: str, name: str) -> None:
    for value in wrong(name, MAY_BE[path][name]):
        with pytest.raises(MalformedRequest) as refused:
            read(path, **{name: value})
        error = refused.value
        assert (error.status, error.param) == (400, name), f"{value!r}: {error.message}"
        assert "must be" in error.message
        assert error.message.startswith(name)


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, members in MAY_BE.items() for name in members])
def test_what_is_of_a_right_type_or_null_passes(path: str, name: str) -> None:
    for kind in MAY_BE[path][name]:
        for value in VALUES[kind]:
            if name in OUT_OF_RANGE and value in (-1.5, True, False):
                continue
            if (path, name) in NEEDS_MORE and value:
                continue
            read(path, **{name: value})
    if name not in GOOD[path] or name == "max_tokens":
        read(path, **{name: None})


def test_every_member_that_a_feature_is_asked_for_by_is_looked_at() -> None:
    asked = {name for names in FEATURE_FIELDS.values() for name in names}
    assert asked <= MAY_BE[CHAT].keys()
    for path, known in ((CHAT, member_kinds.CHAT), (MESSAGES, member_kinds.MESSAGES), (RESPONSES, member_kinds.RESPONSES)):
        assert known.keys() <= MAY_BE[path].keys()


@pytest.mark.parametrize(
    ("value", "found"),
    [(5, "a number"), ("x", "a text"), (True, "true"), (False, "false"), ({}, "an object"), ([5], "a list that begins with a number"),
     (["x"], "a list that begins with a text"), ([None], "a list that begins with null"), ([[]], "a list that begins with a list")],
)  # fmt: skip
def test_the_refusal_says_what_was_found_instead(value: object, found: str) -> None:
    with pytest.raises(MalformedRequest, match=f"^tools must be a list of objects, not {found}: send it so, or leave it out$"):
        read(CHAT, tools=value)
    with pytest.raises(MalformedRequest, match=r"^temperature must be a number, not a list: "):
        read(CHAT, temperature=[])


def test_a_number_that_there_cannot_be_and_a_text_beyond_ascii_are_seen_for_what_they_are() -> None:
    read(CHAT, user="漢\ud83d\ude00", seed=10**30, tools=[])
    with pytest.raises(MalformedRequest, match=r"^temperature must be a number"):
        SKINS[CHAT].read(b'{"model":"m","messages":[{}],"temperature":1e400}', lambda _: None)


FAILED = Failure(FailureClass.SERVER_ERROR, "the provider failed", 500)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages cannot be read: expected `str | object | array | null`, got `int` - at `messages[0].content`",
        ),
        ({"messages": [{"role": "user", "content": "a"}, 5]}, "messages cannot be read: expected `object`, got `int` - at `messages[1]`"),
        ({"messages": [{"role": 7}]}, "expected `str | null`, got `int` - at `messages[0].role`"),
        ({"messages": [{"role": "user", "content": [["x"]]}]}, "got `array` - at `messages[0].content[0]`"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": TURNS, "tools": [{"type": "function"}, 5]}, "tools cannot be read: expected `object`, got `int` - at `tools[1]`"),
        ({"messages": TURNS, "tools": [{"type": "function", "function": "f"}]}, "at `tools[0].function`"),
    ],
)  # fmt: skip
def test_a_provider_that_failed_over_nonsense_is_not_to_blame(fields: dict[str, object], says: str) -> None:
    blamed = whose_fault({name: msgspec.Raw(json.dumps(value).encode()) for name, value in fields.items()}, FAILED)
    assert (blamed.failure_class, blamed.param, blamed.status) == (FailureClass.BAD_REQUEST, list(fields)[-1], 500)
    assert says in blamed.message


def test_a_provider_that_failed_over_what_makes_sense_is() -> None:
    whole = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, "y"], "name": None, "more": 5},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, {"content": {"type": "text"}}, {},
        ],
        "tools": None,
    }  # fmt: skip
    fields = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in whole.items()}
    assert whose_fault(fields, FAILED) is FAILED
    assert whose_fault({}, FAILED) is FAILED
    assert whose_fault({"messages": fields["messages"], "tools": msgspec.Raw(b'[{"type":"custom","custom":{}}]')}, FAILED) is FAILED
