"""The Messages skin, what goes out: whole answers, streams, errors and lists of models, made of a chat's or passed through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.chat import Chunk, Usage
from n4n.core.errors import MalformedRequest
from n4n.core.skins.messages_answer import whole
from n4n.core.skins.messages_errors import envelope
from n4n.core.skins.messages_models import model, page
from n4n.core.skins.messages_stream import KEEP_ALIVE, MessagesStream
from n4n.core.skins.messages_turns import unsealed
from tests.support.messages import events_of, joined

NOTE = b'{"cost_usd":0.5}'
CLAUDE = "anthropic-claude-v1"
USED = {"input_tokens": 3, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}
USAGE = Usage(10, 5, 4, 3)
GEMINI = {"type": "reasoning.encrypted", "data": "g", "format": "google-gemini-v1"}


def delta(reason: str | None = None, index: int = 0, **members: object) -> Chunk:
    choice = {"index": index, "delta": members, "finish_reason": reason}
    payload = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "gpt", "choices": [choice]}
    return Chunk(json.dumps(payload).encode(), content=bool(members), finishes=reason is not None)


def usage_chunk(usage: Usage = USAGE) -> Chunk:
    return Chunk(b'{"choices":[]}', choices=False, usage=usage)


def call(index: int, arguments: str | None = None, name: str | None = None, id_: str | None = None) -> dict[str, object]:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return {"index": index, "function": function, **({"id": id_, "type": "function"} if id_ else {})}


def streamed(*chunks: Chunk, usage: Usage | None = USAGE) -> Any:
    """The message a client joins of a whole stream."""
    stream = MessagesStream()
    frames = [frame for chunk in chunks for frame in stream.receive(chunk)]
    return joined([*frames, *stream.finish(usage, NOTE)])


def told(*chunks: Chunk) -> Any:
    return streamed(delta(role="assistant", content=""), *chunks, delta("stop"))["content"]


def completed(message: dict[str, object], reason: str | None = "stop", **more: object) -> Any:
    body = {"id": "c1", "model": "gpt", "choices": [{"index": 0, "message": message, "finish_reason": reason}], **more}
    return json.loads(whole(Chunk(json.dumps(body).encode(), finishes=True), USAGE, NOTE))


# ── streams made of a chat's chunks


def test_a_chats_chunks_are_a_message_with_the_block_on_its_delta() -> None:
    got = streamed(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"), usage_chunk())

    assert got == {
        "id": "msg_c1",
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USED,
        "n4n": {"cost_usd": 0.5},
    }


def test_what_comes_goes_out_at_once_and_the_end_waits_for_usage() -> None:
    stream = MessagesStream(input_tokens=40)
    first = stream.receive(delta(content="x"))

    assert [name for name, _ in events_of(first)] == ["message_start", "content_block_start", "content_block_delta"]
    assert events_of(first)[0][1]["message"]["usage"] == {"input_tokens": 40, "output_tokens": 0}
    assert not stream.waiting
    assert [name for name, _ in events_of(stream.receive(delta("stop")))] == ["content_block_stop"]
    assert stream.waiting and not stream.complete
    assert stream.receive(delta("stop")) == ()
    assert stream.receive(usage_chunk()) == () and stream.complete
    assert [name for name, _ in events_of(stream.finish(USAGE, NOTE))] == ["message_delta", "message_stop"]
    assert stream.over and stream.receive(delta(content="x")) == () and stream.finish(USAGE, NOTE) == ()


def test_usage_may_come_with_the_reason_or_never() -> None:
    stream = MessagesStream()
    stream.receive(Chunk(delta("stop").payload, finishes=True, usage=USAGE))

    assert stream.complete
    assert streamed(delta("stop"), usage=None)["usage"] == {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    early = MessagesStream()
    early.receive(Chunk(delta(content="x").payload, usage=USAGE))
    early.receive(delta("stop"))
    assert not early.complete


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "refusal"),
        ("odd", "end_turn"),
    ],
)
def test_every_reason_has_its_word(reason: str, stop: str) -> None:
    assert streamed(delta(content="x"), delta(reason))["stop_reason"] == stop
    assert completed({"content": "x"}, reason)["stop_reason"] == stop


def test_a_refusal_is_text_and_a_reason_that_explains_itself() -> None:
    got = streamed(delta(refusal="I "), delta(refusal="won't."), delta("stop"))

    assert got["content"] == [{"type": "text", "text": "I won't."}]
    assert (got["stop_reason"], got["stop_details"]) == ("refusal", {"type": "refusal", "category": None, "explanation": "I won't."})
    assert {**completed({"content": None, "refusal": "No."}), "n4n": 0, "usage": 0} == {
        "id": "msg_c1",
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [{"type": "text", "text": "No."}],
        "stop_reason": "refusal",
        "stop_sequence": None,
        "usage": 0,
        "stop_details": {"type": "refusal", "category": None, "explanation": "No."},
        "n4n": 0,
    }


def test_text_and_reasoning_are_blocks_by_turns() -> None:
    assert told(
        delta(reasoning_content="Hm"), delta(reasoning_content="m."), delta(content="A"), delta(reasoning_content="So"), delta(content="B")
    ) == [
        {"type": "thinking", "thinking": "Hmm.", "signature": ""},
        {"type": "text", "text": "A"},
        {"type": "thinking", "thinking": "So", "signature": ""},
        {"type": "text", "text": "B"},
    ]


def test_signed_reasoning_is_signed_and_foreign_reasoning_sealed() -> None:
    signature = {"type": "reasoning.text", "text": "Hm", "signature": "s", "format": CLAUDE}
    hidden = {"type": "reasoning.text", "text": "kept", "signature": "t", "format": CLAUDE}
    redacted = {"type": "reasoning.encrypted", "data": "r", "format": CLAUDE}
    plain = {"type": "reasoning.text", "text": "x", "format": "unknown"}
    got = told(
        delta(reasoning_content="Hm"),
        delta(reasoning_details=[signature]),
        delta(reasoning_details=[hidden, plain]),
        delta(reasoning_details=[redacted]),
        delta(reasoning_details=[GEMINI]),
        delta(content="A"),
    )

    assert got[:3] == [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "thinking", "thinking": "kept", "signature": "t"},
        {"type": "redacted_thinking", "data": "r"},
    ]
    assert got[3]["type"] == "redacted_thinking" and unsealed(got[3]["data"]) == GEMINI
    assert got[4:] == [{"type": "text", "text": "A"}]


def test_calls_are_blocks_one_after_the_other() -> None:
    got = streamed(
        delta(content="Two."),
        delta(tool_calls=[call(0, "", "look", "a")]),
        delta(tool_calls=[call(0, '{"at"')]),
        delta(tool_calls=[call(0, ": 1}")]),
        delta(tool_calls=[call(1, "{}", "look", "b")]),
        delta(content="After."),
        delta("tool_calls"),
    )

    assert got["content"] == [
        {"type": "text", "text": "Two."},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "b", "name": "look", "input": {}},
        {"type": "text", "text": "After."},
    ]
    assert got["stop_reason"] == "tool_use"


def test_calls_told_by_turns_come_out_one_after_the_other() -> None:
    got = told(
        delta(tool_calls=[call(0, "", "x", "a"), call(1, "", "y", "b"), call(2, None, "z")]),
        delta(tool_calls=[call(1, '{"n":')]),
        delta(content="Meanwhile."),
        delta(tool_calls=[call(0, '{"m":')]),
        delta(tool_calls=[call(1, "1}")]),
        delta(tool_calls=[call(0, "0}")]),
        delta(tool_calls=[call(2, '{"o":2}')]),
        delta(content=" End."),
        delta(tool_calls=[call(0, "late")]),
    )

    assert got == [
        {"type": "tool_use", "id": "a", "name": "x", "input": {"m": 0}},
        {"type": "tool_use", "id": "b", "name": "y", "input": {"n": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "z", "input": {"o": 2}},
        {"type": "text", "text": "Meanwhile. End."},
    ]


def test_a_call_without_arguments_keeps_nobody_waiting_for_ever() -> None:
    assert told(delta(tool_calls=[call(0, "", "x", "a")]), delta(tool_calls=[call(1, "{}", "y", "b")])) == [
        {"type": "tool_use", "id": "a", "name": "x", "input": {}},
        {"type": "tool_use", "id": "b", "name": "y", "input": {}},
    ]


def test_reasoning_between_the_pieces_of_a_call_does_not_cut_it() -> None:
    got = told(
        delta(tool_calls=[call(0, '{"a"', "x", "a")]),
        delta(reasoning_details=[GEMINI]),
        delta(tool_calls=[call(0, ":1}")]),
    )

    assert [block["type"] for block in got] == ["tool_use", "redacted_thinking"] and got[0]["input"] == {"a": 1}


def test_a_call_may_come_without_a_function() -> None:
    assert told(delta(tool_calls=[{"index": 0}])) == [{"type": "tool_use", "id": "toolu_0", "name": "", "input": {}}]


def test_only_the_first_choice_is_told_and_odd_chunks_are_nothing() -> None:
    assert told(delta(index=1, content="x"), delta(content="y"), Chunk(b'{"choices":7}'), Chunk(b"{"), Chunk(b"[]")) == [
        {"type": "text", "text": "y"}
    ]


def test_half_a_surrogate_pair_leaves_as_it_came() -> None:
    stream = MessagesStream()
    frames = stream.receive(Chunk(b'{"id":"msg_1","choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'))

    assert b'"text":"\\ud83d"' in frames[-1] and b'"id":"msg_1"' in frames[0]
    got = whole(Chunk(b'{"choices":[{"message":{"content":"\\ud83d","tool_calls":[{"function":{"arguments":"{}"}}]}}]}'), USAGE, NOTE)
    assert b'"text":"\\ud83d"' in got and json.loads(got)["id"] == "msg_n4n"


def test_signs_of_life_are_pings() -> None:
    assert events_of([KEEP_ALIVE]) == [("ping", {"type": "ping"})]


# ── a provider's own events


def native(event: str, payload: bytes, **flags: Any) -> Chunk:
    return Chunk(payload, shape="anthropic", event=event.encode(), **flags)


def test_a_providers_events_pass_and_the_block_rides_on_the_delta() -> None:
    stream = MessagesStream()
    begun = stream.receive(native("message_start", b'{"type":"message_start" }', usage=Usage(10)))
    ending = b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5,"x":1} }'

    assert begun == (b'event: message_start\ndata: {"type":"message_start" }\n\n',)
    assert stream.receive(native("", b"[1]")) == (b"data: [1]\n\n",)
    assert stream.receive(native("message_delta", ending, finishes=True, usage=USAGE)) == ()
    assert stream.waiting and stream.complete
    assert stream.receive(native("message_stop", b'{"type":"message_stop","x":1}')) == ()
    assert stream.finish(USAGE, NOTE) == (
        b"event: message_delta\ndata: " + ending[:-2] + b',"n4n":' + NOTE + b"}\n\n",
        b'event: message_stop\ndata: {"type":"message_stop","x":1}\n\n',
    )


def test_usage_that_is_ours_takes_the_place_of_the_providers() -> None:
    stream = MessagesStream()
    stream.receive(
        native("message_delta", b'{"type":"message_delta","delta":{},"usage":{"output_tokens":0,"x":1}}', finishes=True, usage=Usage())
    )
    got = events_of(stream.finish(Usage(8, 2, estimated=True), NOTE))[0][1]

    assert got["usage"] == {"output_tokens": 2, "x": 1, "input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    body = b'{"type":"message","content":[]}'
    chunk = native("", body, finishes=True)
    assert json.loads(whole(chunk, Usage(8, 2, reasoning_tokens=1), NOTE))["usage"]["output_tokens_details"] == {"thinking_tokens": 1}
    assert whole(chunk, None, NOTE) == b'{"type":"message","content":[],"n4n":' + NOTE + b"}"


def test_an_end_that_is_told_twice_waits_for_the_later() -> None:
    stream = MessagesStream()
    stream.receive(native("message_delta", b'{"type":"message_delta","n":1}', finishes=True))

    assert stream.receive(native("message_delta", b'{"type":"message_delta","n":2}', finishes=True)) == (
        b'event: message_delta\ndata: {"type":"message_delta","n":1}\n\n',
    )
    assert stream.waiting and not stream.complete
    assert events_of(stream.finish(None, NOTE))[0][1] == {"type": "message_delta", "n": 2, "n4n": {"cost_usd": 0.5}}


# ── whole answers made of a completion


def test_a_completion_is_a_message() -> None:
    details = [
        {"type": "reasoning.text", "text": "b", "signature": "s", "format": CLAUDE, "index": 1},
        {"type": "reasoning.text", "text": "z", "format": CLAUDE, "index": 0},
        GEMINI,
    ]
    calls = [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":  1.0}'}},
        {"function": {"name": "look", "arguments": "{broken"}},
        {},
    ]
    got = completed({"content": "Hi", "tool_calls": calls, "reasoning_details": details, "reasoning_content": "b"}, "tool_calls")

    assert unsealed(got["content"].pop(0)["data"]) == GEMINI
    assert got["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "thinking", "thinking": "b", "signature": "s"},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1.0}},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"INVALID_JSON": "{broken"}},
        {"type": "tool_use", "id": "toolu_2", "name": "", "input": {}},
    ]
    assert (got["stop_reason"], got["usage"], got["n4n"]) == ("tool_use", USED, {"cost_usd": 0.5})


def test_reasoning_that_nobody_signed_is_thinking_without_a_signature() -> None:
    assert completed({"content": "x", "reasoning_content": "Hm"})["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "x"},
    ]
    assert completed({"content": None})["content"] == []
    assert json.loads(whole(Chunk(b"{}"), None, NOTE))["content"] == []


# ── errors


@pytest.mark.parametrize(
    ("code", "kind", "n4n", "type_"),
    [
        ("invalid_api_key", "authentication_error", {}, "authentication_error"),
        ("key_revoked", "authentication_error", {}, "authentication_error"),
        ("model_not_allowed", "permission_error", {}, "permission_error"),
        ("model_not_found", "invalid_request_error", {}, "not_found_error"),
        ("request_too_large", "invalid_request_error", {}, "request_too_large"),
        ("invalid_directive", "invalid_request_error", {}, "invalid_request_error"),
        ("context_length_exceeded", "invalid_request_error", {}, "invalid_request_error"),
        ("rate_limited", "rate_limit_error", {}, "rate_limit_error"),
        ("budget_exceeded", "invalid_request_error", {}, "billing_error"),
        ("overloaded", "server_error", {}, "overloaded_error"),
        ("timeout", "server_error", {}, "timeout_error"),
        ("quota_exhausted", "server_error", {}, "api_error"),
        ("server_error", "server_error", {}, "api_error"),
        ("stream_interrupted", "server_error", {"attempts": [{"class": "timeout"}, {"class": "overloaded"}]}, "overloaded_error"),
        ("stream_interrupted", "server_error", {"attempts": [{"class": "server_error"}]}, "api_error"),
        ("stream_interrupted", "server_error", {"attempts": []}, "api_error"),
        ("stream_interrupted", "server_error", None, "api_error"),
    ],
)
def test_every_code_has_its_type_and_stays(code: str, kind: str, n4n: object, type_: str) -> None:
    error = {"message": "M", "type": kind, "param": None, "code": code, "n4n": n4n}

    assert envelope({"error": error}) == {"type": "error", "error": {**error, "type": type_}, "request_id": None}


def test_the_id_of_the_request_stands_where_clients_look_for_it() -> None:
    stream = MessagesStream()
    frame = stream.error({"error": {"message": "M", "code": "overloaded", "n4n": {"request_id": "req_1"}}, "choices": []})

    assert events_of([frame]) == [
        (
            "error",
            {
                "type": "error",
                "error": {"message": "M", "code": "overloaded", "n4n": {"request_id": "req_1"}, "type": "overloaded_error"},
                "request_id": "req_1",
            },
        )
    ]
    assert stream.over
    assert envelope({}) == {"type": "error", "error": {"type": "api_error"}, "request_id": None}


# ── models


def listed(count: int) -> dict[str, object]:
    return {"object": "list", "data": [{"id": f"m{number}", "object": "model", "n4n": {}} for number in range(count)]}


def test_a_model_is_told_in_anthropics_words() -> None:
    entry = {
        "id": "claude",
        "object": "model",
        "created": 0,
        "owned_by": "a",
        "n4n": {"context_window": 200_000, "max_output_tokens": 64_000},
    }

    assert model(entry) == {
        "type": "model",
        "id": "claude",
        "display_name": "claude",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "n4n": {"context_window": 200_000, "max_output_tokens": 64_000},
    }
    assert model({"id": "x"})["max_tokens"] is None


@pytest.mark.parametrize(
    ("query", "first", "last", "more"),
    [
        ({}, "m0", "m19", True),
        ({"limit": "3"}, "m0", "m2", True),
        ({"limit": "1000"}, "m0", "m24", False),
        ({"after_id": "m19"}, "m20", "m24", False),
        ({"after_id": "m3", "limit": "2"}, "m4", "m5", True),
        ({"before_id": "m3"}, "m0", "m2", False),
        ({"before_id": "m10", "limit": "2"}, "m8", "m9", True),
        ({"after_id": "m24"}, None, None, False),
    ],
)
def test_lists_come_in_pages(query: dict[str, str], first: str | None, last: str | None, more: bool) -> None:
    got = page(listed(25), **query)

    assert (got["first_id"], got["last_id"], got["has_more"]) == (first, last, more)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"after_id": "x"}, "after_id"),
        ({"before_id": "x"}, "before_id"),
    ],
)
def test_a_page_that_does_not_exist_is_refused(query: dict[str, str], param: str) -> None:
    with pytest.raises(MalformedRequest) as raised:
        page(listed(3), **query)
    assert raised.value.param == param
