"""The dialect `anthropic`, what comes back: whole answers, streams, and what every oddity and every error becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects import frames
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.dialects.anthropic import answer as answer_module
from n4n.core.dialects.anthropic import stream as stream_module
from n4n.core.dialects.anthropic.counts import NOTHING, spelled
from n4n.core.dialects.anthropic.events import input_object, joined
from n4n.core.dialects.anthropic.schema import closed, is_strict
from n4n.core.dialects.completion import joined as chat_joined
from n4n.core.errors import Failure, FailureClass
from n4n.core.skins.messages import read_messages

ANTHROPIC = Anthropic()
CHAT = read_chat(b'{"model":"m","messages":[{}]}')
NATIVE = read_messages(b'{"model":"m","max_tokens":9,"messages":[{}]}')
USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "model": "claude", "stop_reason": "end_turn", "usage": USAGE}


def sse(*events: object, end: str = "\n\n", named: bool = True) -> bytes:
    lines = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if named and isinstance(event, dict) and "type" in event else ""
        lines.append(f"{name}data: {data}{end}")
    return "".join(lines).encode()


def start(**usage: object) -> dict[str, object]:
    opening = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "usage": usage or {**USAGE, "output_tokens": 1},
    }
    return {"type": "message_start", "message": opening}


def block(index: int, content: object, *deltas: object) -> list[object]:
    told = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *told,
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[object]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def delta(reason: str | None = "end_turn", usage: object = None, **more: object) -> dict[str, object]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage or {"output_tokens": 5}}


STOP = {"type": "message_stop"}


def words(piece: str) -> dict[str, object]:
    return {"type": "text_delta", "text": piece}


def thought(piece: str) -> dict[str, object]:
    return {"type": "thinking_delta", "thinking": piece}


def signed(signature: str) -> dict[str, object]:
    return {"type": "signature_delta", "signature": signature}


def part(piece: str) -> dict[str, object]:
    return {"type": "input_json_delta", "partial_json": piece}


def call(name: str | None, function: str = "n", **more: object) -> dict[str, object]:
    return {"type": "tool_use", **({"id": name} if name else {}), "name": function, "input": {}, **more}


def events(*pieces: bytes, request: ChatRequest = CHAT) -> list[Event]:
    decoder = ANTHROPIC.decoder(request)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def chunks(*told: object, request: ChatRequest = CHAT) -> list[Chunk]:
    *found, last = events(sse(*told), request=request)
    assert last == Done()
    return [event for event in found if isinstance(event, Chunk)]


def answer(*told: object) -> Any:
    """The one choice of a stream, as a client joins it."""
    choices: Any = chat_joined(chunk.payload for chunk in chunks(*told))["choices"]
    return {**choices[0]["message"], "finish_reason": choices[0]["finish_reason"]}


def failed(*pieces: bytes, request: ChatRequest = CHAT) -> Failure:
    last = events(*pieces, request=request)[-1]
    assert isinstance(last, Failed)
    return last.failure


def whole(message: object, request: ChatRequest = CHAT) -> Chunk:
    got = ANTHROPIC.decode(message if isinstance(message, bytes) else json.dumps(message).encode(), "application/json", request)
    assert isinstance(got, Chunk)
    return got


def refused(body: bytes, content_type: str = "application/json") -> Failure:
    got = ANTHROPIC.decode(body, content_type, CHAT)
    assert isinstance(got, Failure)
    return got


# ── tokens


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (USAGE, Usage(17, 5, 4, 3)),
        ({"input_tokens": 2, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}}, Usage(2, 9, reasoning_tokens=7)),
        (
            {"output_tokens": 2.0, "output_tokens_details": {"thinking_tokens": 9}},
            Usage(0, 2, reasoning_tokens=2, estimated=True, doubt="inconsistent"),
        ),
        ({"input_tokens": -1, "output_tokens": 3}, Usage(0, 3, estimated=True, doubt="negative")),
        ({"input_tokens": -1, "output_tokens": True, "cache_read_input_tokens": float("nan")}, None),
        ({"cache_read_input_tokens": 1}, None),
        ("odd", None),
    ],
)
def test_counts_are_one_usage(said: object, usage: Usage | None) -> None:
    assert NOTHING.told(said).usage == usage


def test_later_counts_replace_earlier_ones_and_silence_keeps_them() -> None:
    counts = NOTHING.told({**USAGE, "output_tokens_details": {"thinking_tokens": 1}}).told({"output_tokens": 9, "input_tokens": None})

    assert counts.usage == Usage(17, 9, 4, 3, 1)
    assert spelled(Usage(17, 9, 4, 3, 1)) == {**USAGE, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 1}}


# ── whole answers


def test_a_whole_answer_is_a_completion() -> None:
    got = whole({**MESSAGE, "content": [{"type": "text", "text": "Grüß "}, {"type": "text", "text": "Gott"}]})

    assert json.loads(got.payload) == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": 0,
        "model": "claude",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Grüß Gott", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 17,
            "completion_tokens": 5,
            "total_tokens": 22,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert (got.content, got.finishes, got.usage, got.output_bytes, got.shape) == (True, True, Usage(17, 5, 4, 3), 11, "chat")


def test_calls_and_signed_reasoning_ride_in_the_message() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "thinking", "thinking": "So."},
        {"type": "redacted_thinking", "data": "r"},
        {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {"q": 1}},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1.0}},
        {"type": "tool_use", "name": "look", "input": None},
    ]
    message = json.loads(whole({**MESSAGE, "content": content}).payload)["choices"][0]

    assert message["finish_reason"] == "tool_calls"
    assert message["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "Hm.So.",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Hm.", "signature": "s1", "format": "anthropic-claude-v1", "index": 0},
            {"type": "reasoning.encrypted", "data": "r", "format": "anthropic-claude-v1", "index": 2},
        ],
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.0}'}},
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    }


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_every_stop_reason_has_its_word(reason: str | None, finish: str) -> None:
    got = whole({**MESSAGE, "content": [{"type": "text", "text": "x"}], "stop_reason": reason})

    assert json.loads(got.payload)["choices"][0]["finish_reason"] == finish
    if reason is not None:
        assert answer(start(), *text(0, "x"), delta(reason), STOP)["finish_reason"] == finish


def test_a_refusal_that_explains_itself_says_so() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    got = whole({**MESSAGE, "content": [], "stop_reason": "refusal", "stop_details": details})

    assert json.loads(got.payload)["choices"][0]["message"]["refusal"] == "Not this."
    assert not got.content
    assert answer(start(), *text(0, "I"), delta("refusal", stop_details=details), STOP) == {
        "role": "assistant",
        "content": "I",
        "refusal": "Not this.",
        "finish_reason": "content_filter",
    }
    assert "refusal" not in answer(start(), delta("refusal", stop_details={"explanation": None}), STOP)


def test_half_a_surrogate_pair_leaves_as_it_came() -> None:
    body = (
        b'{"type":"message","content":[{"type":"text","text":"a\\ud83d"},{"type":"thinking","thinking":"\\udc00","signature":"s"},'
        b'{"type":"tool_use","id":"t","name":"n","input":{"x":"\\ud83d"}},7],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}'
    )
    got = whole(body)

    message = json.loads(got.payload)["choices"][0]["message"]
    assert message["content"] == "a\ud83d" and message["reasoning_content"] == "\udc00"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": "\ud83d"}
    assert whole(body, NATIVE).payload == body


def test_a_member_of_a_type_nobody_expects_is_no_reason_to_fail() -> None:
    got = whole(b'{"type":"message","content":[{"type":"text","text":"x"}],"id":7,"stop_details":[],"usage":{"output_tokens":2}}')

    assert json.loads(got.payload)["choices"][0]["message"]["content"] == "x"
    assert got.usage == Usage(0, 2)
    assert json.loads(whole({"type": "message", "content": []}).payload)["usage"] is None


@pytest.mark.parametrize(
    ("body", "failure_class", "message"),
    [
        (b"", FailureClass.SERVER_ERROR, "the provider's answer was empty"),
        (b"<html>x</html>", FailureClass.SERVER_ERROR, "the provider answered with a web page"),
        (b'{"type":"mess', FailureClass.SERVER_ERROR, "the provider's answer is not valid JSON in UTF-8"),
        (
            b'{"type":"message","content":[{"type":"text","text":"\xff"}]}',
            FailureClass.SERVER_ERROR,
            "the provider's answer is not valid JSON in UTF-8",
        ),
        (b'{"type":"message"}', FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (b'{"type":"completion","content":[]}', FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (b'["x"]', FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (b'{"type":"message","content":[],"error":{"type":"x"}}', FailureClass.SERVER_ERROR, "the provider failed"),
        (
            b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
            FailureClass.OVERLOADED,
            "the provider is overloaded",
        ),
        (b'{"error":{"code":"429","message":"slow"}}', FailureClass.RATE_LIMITED, "the provider's rate limit is reached"),
    ],
)
def test_a_200_without_a_message_is_a_failure(body: bytes, failure_class: FailureClass, message: str) -> None:
    got = refused(body)

    assert (got.failure_class, got.message, got.status) == (failure_class, message, 200)


def test_an_answer_too_deep_to_be_written_again_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(value: object) -> bytes:
        raise RecursionError

    body = json.dumps({**MESSAGE, "content": []}).encode()
    monkeypatch.setattr(answer_module, "dump", too_deep)
    monkeypatch.setattr(stream_module, "dump", too_deep)

    assert refused(body).message == "the provider's answer is nested too deeply"
    assert failed(body).message == "the provider's answer is nested too deeply"


@pytest.mark.parametrize("deep", [b"[" * 5000 + b"]" * 5000, b'{"a":' * 990 + b"1" + b"}" * 990])
def test_depth_is_no_reason_to_raise(deep: bytes) -> None:
    body = b'{"type":"message","content":[{"type":"tool_use","input":%b}],"x":%b,"stop_reason":"tool_use"}' % (deep, deep)
    event = b'data: {"type":"content_block_start","content_block":{"type":"tool_use","input":%b}}\n\n' % deep

    ANTHROPIC.decode(body, "", CHAT)
    assert isinstance(events(body)[-1], Done | Failed)
    assert isinstance(events(event)[-1], Failed)


# ── a stream where none was asked, and the reverse


def test_a_stream_where_none_was_asked_is_joined() -> None:
    raw = sse(
        start(),
        *block(0, {"type": "thinking", "thinking": ""}, thought("Hm"), signed("s")),
        *block(
            1,
            {"type": "text", "text": "a"},
            words("b"),
            {"type": "citations_delta", "citation": {"n": 1}},
            {"type": "citations_delta", "citation": {"n": 2}},
        ),
        *block(2, {"type": "tool_use", "id": "t", "name": "n", "input": {}}, part('{"a"'), part(":1}")),
        *block(3, {"type": "tool_use", "id": "u", "name": "n", "input": {}}),
        delta("tool_use"),
        STOP,
    )
    got = ANTHROPIC.decode(raw, "text/event-stream", NATIVE)

    assert isinstance(got, Chunk)
    assert json.loads(got.payload)["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "ab", "citations": [{"n": 1}, {"n": 2}]},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "n", "input": {}},
    ]
    assert got.usage == Usage(17, 5, 4, 3)
    read = ANTHROPIC.decode(raw, "", CHAT)
    assert isinstance(read, Chunk) and json.loads(read.payload)["choices"][0]["message"]["content"] == "ab"


def test_a_stream_that_fails_where_none_was_asked_is_a_failure() -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "x"}}

    assert refused(b"\n" + sse(start(), error), "text/event-stream").failure_class == FailureClass.SERVER_ERROR
    assert refused(sse(start())).message == "the provider's stream ended before the answer did"


def test_a_whole_answer_where_a_stream_was_asked_is_told_as_one() -> None:
    content = [{"type": "text", "text": "x"}, 7, {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}]
    body = json.dumps({**MESSAGE, "content": content, "stop_reason": "tool_use", "stop_sequence": None}).encode()

    for cut in (1, 20, len(body)):
        found = events(b" \n", body[:cut], body[cut:])
        payloads = [event.payload for event in found if isinstance(event, Chunk)]
        choice: Any = chat_joined(payloads)["choices"]
        assert choice[0]["message"]["content"] == "x" and choice[0]["finish_reason"] == "tool_calls"
        assert choice[0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
        assert found[-1] == Done()
    native = [event for event in events(body, request=NATIVE) if isinstance(event, Chunk)]
    assert [chunk.event for chunk in native][:2] == [b"message_start", b"content_block_start"]
    assert joined(chunk.payload for chunk in native)["stop_reason"] == "tool_use"
    assert events(b'{"type":"message","content":"odd"}')[-1] == Failed(
        Failure(FailureClass.SERVER_ERROR, "the provider's answer holds no message", 200)
    )


def test_a_body_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_WHOLE", 10)
    found = events(b'{"a":"', b"x" * 20, b"x" * 20)

    assert found == [Comment(), Failed(Failure(FailureClass.SERVER_ERROR, "the provider's answer is too long", 200))]


def test_an_event_without_an_end_is_bounded() -> None:
    assert failed(b"data: " + b"x" * (9 * 1024 * 1024)).message == "one event of the provider's stream is too long"


# ── streams, read as a chat


def test_a_chat_gets_a_role_pieces_a_reason_and_usage() -> None:
    found = chunks(start(), *text(0, "Hel", "lo"), delta(), STOP)

    head = {"id": "msg_1", "object": "chat.completion.chunk", "created": 0, "model": "claude"}
    assert [json.loads(chunk.payload) for chunk in found[:-1]] == [
        {**head, "choices": [{"index": 0, "delta": inner, "finish_reason": reason}]}
        for inner, reason in [
            ({"role": "assistant", "content": ""}, None),
            ({"content": "Hel"}, None),
            ({"content": "lo"}, None),
            ({}, "stop"),
        ]
    ]
    assert json.loads(found[-1].payload) | {"usage": None} == {**head, "choices": [], "usage": None}
    assert [(chunk.content, chunk.finishes, chunk.choices, chunk.output_bytes) for chunk in found] == [
        (False, False, True, 0),
        (True, False, True, 3),
        (True, False, True, 2),
        (False, True, True, 0),
        (False, False, False, 0),
    ]
    assert [chunk.usage for chunk in found] == [Usage(17, 0, 4, 3), None, None, None, Usage(17, 5, 4, 3)]


def test_calls_are_numbered_densely_and_their_arguments_come_as_they_were_told() -> None:
    got = answer(
        start(),
        *text(0, "Two."),
        *block(1, {"type": "tool_use", "id": "a", "name": "x", "input": {}}, part("")),
        *block(2, {"type": "server_tool_use", "id": "s", "name": "y"}, part("{}")),
        *block(3, {"type": "tool_use", "name": "y", "input": {}}, part('{"a": '), part("1}")),
        *block(4, {"type": "tool_use", "id": "c", "input": {"all": [1.0]}}),
        {"type": "content_block_start", "index": 5, "content_block": {"type": "tool_use", "id": "d", "name": "z", "input": {}}},
        delta("tool_use"),
        STOP,
    )

    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in got["tool_calls"]] == [
        ("a", "x", "{}"),
        ("call_1", "y", '{"a": 1}'),
        ("c", "", '{"all": [1.0]}'),
        ("d", "z", "{}"),
    ]
    assert got["finish_reason"] == "tool_calls"


def test_reasoning_goes_beside_the_text_and_what_signs_it_in_an_entry() -> None:
    got = answer(
        start(),
        *block(0, {"type": "thinking", "thinking": "A", "signature": ""}, thought("B"), signed("s1")),
        *block(1, {"type": "redacted_thinking", "data": "r"}),
        *text(2, "x"),
        *text(3, "y"),
        *block(4, {"type": "thinking", "thinking": "", "signature": "s2"}),
        *block(5, {"type": "thinking"}, thought("C")),
        delta(),
        STOP,
    )

    assert got["reasoning_content"] == "ABC" and got["content"] == "xy"
    assert got["reasoning_details"] == [
        {"type": "reasoning.text", "text": "AB", "signature": "s1", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "r", "format": "anthropic-claude-v1", "index": 1},
        {"type": "reasoning.text", "text": "", "signature": "s2", "format": "anthropic-claude-v1", "index": 3},
    ]


def test_pings_and_what_is_new_are_signs_of_life() -> None:
    raw = sse({"type": "ping"}, start(), {"type": "new_thing"}, ["odd"], {"type": 7}, {"no": "type"}, STOP["type"] and "[DONE]")
    raw += b": hello\n\ndata:\n\n"
    found = events(
        raw
        + sse(
            *text(0, "x"),
            {"type": "content_block_stop", "index": 9},
            {"type": "content_block_delta", "index": 9, "delta": {"thinking": "t"}},
            {"type": "content_block_delta", "index": 9},
            delta(),
            STOP,
        )
    )

    assert found[0] == Comment() and found[-1] == Done()
    assert sum(isinstance(event, Comment) for event in found) == 14
    assert sum(isinstance(event, Chunk) for event in found) == 4


def test_a_chat_is_told_once_that_the_answer_is_over() -> None:
    found = chunks(start(), *text(0, "x"), delta(None, {"output_tokens": 2}), delta(), delta("max_tokens", {"output_tokens": 7}), STOP)

    assert sum(chunk.finishes for chunk in found) == 1
    assert [chunk.usage.completion_tokens for chunk in found if chunk.usage] == [0, 2, 5, 7]
    assert not any(
        chunk.usage
        for chunk in chunks({"type": "message_start", "message": {}}, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    )


def test_a_stream_may_begin_in_the_middle() -> None:
    found = chunks(*text(0, "x"), delta(), STOP)

    assert json.loads(found[0].payload)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert json.loads(found[0].payload)["model"] == ""


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (sse(start(), *text(0, "x")), "the provider's stream ended before the answer did"),
        (sse(start(), *text(0, "x"), STOP), "the provider's stream says it is done, but the answer is not"),
        (sse(start()) + b"data: {broken\n\n", "the provider's stream is corrupt"),
        (sse(start()) + b'data: {"type":"ping","x":"\xff"}\n\n', "the provider's stream is corrupt"),
        (b"", "the provider's stream ended before the answer did"),
    ],
)
@pytest.mark.parametrize("request_", [CHAT, NATIVE], ids=["chat", "native"])
def test_a_stream_that_is_not_whole_is_a_failure(raw: bytes, message: str, request_: ChatRequest) -> None:
    assert failed(raw, request=request_) == Failure(FailureClass.SERVER_ERROR, message, 200)


def test_the_end_mark_may_be_missing_and_nothing_comes_after_the_end() -> None:
    decoder = ANTHROPIC.decoder(CHAT)
    decoder.feed(sse(start(), *text(0, "x"), delta()))

    assert repr(decoder) == "<MessageDecoder finished>"
    assert decoder.end() == [Done()]
    assert (decoder.feed(sse(start())), decoder.end(), repr(decoder)) == ([], [], "<MessageDecoder over>")
    assert repr(ANTHROPIC.decoder(CHAT)) == "<MessageDecoder open>"
    assert events(sse(start(), STOP, start()))[-1] == Failed(
        Failure(FailureClass.SERVER_ERROR, "the provider's stream says it is done, but the answer is not", 200)
    )


@pytest.mark.parametrize(
    ("error", "failure_class", "code"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Too busy"}}, FailureClass.OVERLOADED, "overloaded_error"),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, FailureClass.RATE_LIMITED, "rate_limit_error"),
        ({"type": "error", "error": {"type": "api_error", "message": "x"}}, FailureClass.SERVER_ERROR, "api_error"),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9"}},
            FailureClass.CONTEXT_LENGTH,
            "invalid_request_error",
        ),
        ({"error": {"code": 503, "message": "x"}}, FailureClass.OVERLOADED, "503"),
        ({"type": "error", "error": "what"}, FailureClass.SERVER_ERROR, None),
        ({"type": "error"}, FailureClass.SERVER_ERROR, None),
        ({"type": "error", "index": "odd"}, FailureClass.SERVER_ERROR, None),
    ],
)
def test_an_error_inside_a_stream_is_a_failure_of_its_class(error: object, failure_class: FailureClass, code: str | None) -> None:
    got = failed(sse(start(), error))

    assert (got.failure_class, got.code) == (failure_class, code)
    assert failed(sse(start(), error), request=NATIVE) == got


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    assert failed(b'event: error\ndata: {"type":"overloaded_error","message":"x"}\n\n').failure_class == FailureClass.OVERLOADED


def test_events_that_end_with_one_line_end_are_events() -> None:
    told = [start(), *text(0, "Hel", "lo"), delta(), STOP]
    raw = sse(*told, end="\n") + b"data: [DONE]\n"

    for found in (events(raw), events(*(raw[at : at + 5] for at in range(0, len(raw), 5))), events(sse(*told, end="\r\n\r\n"))):
        payloads = [event.payload for event in found if isinstance(event, Chunk)]
        choices: Any = chat_joined(payloads)["choices"]
        assert choices[0]["message"]["content"] == "Hello"
        assert found[-1] == Done()


def test_an_event_may_stand_on_several_lines() -> None:
    raw = (
        b'data: {"type":\ndata: "ping"}\n\n'
        + sse(start())
        + b'event: message_delta\ndata: {"type": "message_delta",\ndata: "delta": {"stop_reason": "end_turn"}}\n\n'
    )
    pieces = [raw[at : at + 1] for at in range(len(raw))]

    assert events(*pieces)[-1] == Done()
    native = [event for event in events(raw, request=NATIVE) if isinstance(event, Chunk)]
    assert native[-1].payload == b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}'


# ── streams in Anthropic's own words


def test_a_clients_own_words_come_with_their_marks() -> None:
    told = [
        start(),
        {"type": "ping"},
        *block(0, {"type": "text", "text": ""}, words("é")),
        *block(1, {"type": "thinking", "thinking": ""}, thought("Hm"), signed("s")),
        *block(2, {"type": "tool_use", "id": "t", "name": "n", "input": {}}, part("{}")),
        *block(3, {"type": "redacted_thinking", "data": "r"}),
        {"type": "new_thing"},
        delta(),
        STOP,
    ]
    raw = sse(*told) + b"event: odd\ndata: [1]\n\n"
    found = [event for event in events(raw, request=NATIVE) if isinstance(event, Chunk)]

    assert [chunk.payload for chunk in found] == [json.dumps(event).encode() for event in told if event != {"type": "ping"}]
    assert [(chunk.event.decode(), chunk.content, chunk.output_bytes) for chunk in found if chunk.content] == [
        ("content_block_delta", True, 2),
        ("content_block_delta", True, 2),
        ("content_block_start", True, 0),
        ("content_block_delta", True, 2),
        ("content_block_start", True, 0),
    ]
    assert [chunk.usage for chunk in found if chunk.usage] == [Usage(17, 0, 4, 3), Usage(17, 5, 4, 3)]
    assert [chunk.event for chunk in found if chunk.finishes] == [b"message_delta"]
    assert {chunk.shape for chunk in found} == {"anthropic"}


def test_an_event_without_a_type_keeps_its_name() -> None:
    found = events(b"event: odd\ndata: [1]\n\n" + sse(delta(), STOP), request=NATIVE)

    assert isinstance(found[0], Chunk) and (found[0].event, found[0].payload) == (b"odd", b"[1]")


def test_half_a_surrogate_pair_in_a_stream_leaves_as_it_came() -> None:
    raw = sse(start()) + b"".join(
        b"data: %b\n\n" % line
        for line in (
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}',
            b'{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{"x":"\\ud83d"}}}',
            b'{"type":"content_block_stop","index":1}',
            b'{"type":"content_block_start","index":"\\ud83d","content_block":{}}',
        )
    )
    payloads = [event.payload for event in events(raw + sse(delta(), STOP)) if isinstance(event, Chunk)]

    assert b'"content":"\\ud83d"' in payloads[1]
    assert json.loads(json.loads(payloads[3])["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]) == {"x": "\ud83d"}
    whole_of = ANTHROPIC.decode(raw + sse(delta(), STOP), "text/event-stream", NATIVE)
    assert isinstance(whole_of, Chunk)


def test_broken_arguments_are_wrapped_and_say_so() -> None:
    assert bytes(input_object('{"a": "\ud83d"}')) == b'{"a": "\\ud83d"}'
    assert bytes(input_object(" ")) == b"{}"
    assert json.loads(bytes(input_object('{"a": "\ud83d'))) == {"INVALID_JSON": '{"a": "\ud83d'}
    text = joined(
        [
            b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","text":"\\ud83d"}}',
            b'{"type":"content_block_delta","index":0,"delta":{"partial_json":"{\\"a\\":1}"}}',
            b'{"type":"content_block_delta","index":5,"delta":{"text":"x"}}',
        ]
    )
    assert text["content"]


# ── errors


def error(kind: str, message: str = "x", **details: object) -> bytes:
    inner = {"type": kind, "message": message, **({"details": details} if details else {})}
    return json.dumps({"type": "error", "error": inner, "request_id": "req_011"}).encode()


@pytest.mark.parametrize(
    ("status", "body", "headers", "failure_class"),
    [
        (400, error("invalid_request_error", "max_tokens: bad"), {}, FailureClass.BAD_REQUEST),
        (400, error("invalid_request_error", "prompt is too long: 2 tokens > 1 maximum"), {}, FailureClass.CONTEXT_LENGTH),
        (400, error("invalid_request_error", "input length and `max_tokens` exceed context limit"), {}, FailureClass.CONTEXT_LENGTH),
        (400, error("invalid_request_error", "Your credit balance is too low"), {}, FailureClass.QUOTA_EXHAUSTED),
        (400, error("invalid_request_error", "You have reached your specified API usage limits."), {}, FailureClass.QUOTA_EXHAUSTED),
        (400, error("invalid_request_error", "x", error_code="organization_on_hold"), {}, FailureClass.AUTH),
        (400, error("invalid_request_error", "Output blocked by content filtering policy"), {}, FailureClass.CONTENT_POLICY),
        (401, error("authentication_error"), {}, FailureClass.AUTH),
        (402, error("billing_error"), {}, FailureClass.QUOTA_EXHAUSTED),
        (403, error("permission_error"), {}, FailureClass.AUTH),
        (404, error("not_found_error"), {}, FailureClass.MODEL_NOT_FOUND),
        (404, b'{"error":{"code":"DeploymentNotFound","message":"x"}}', {}, FailureClass.MODEL_NOT_FOUND),
        (413, error("request_too_large"), {}, FailureClass.BAD_REQUEST),
        (413, b"<html>413</html>", {}, FailureClass.BAD_REQUEST),
        (429, error("rate_limit_error"), {"retry-after": "3"}, FailureClass.RATE_LIMITED),
        (429, error("rate_limit_error", "x", error_code="ramp_limit_exceeded"), {"retry-after": "3"}, FailureClass.RATE_LIMITED),
        (429, error("rate_limit_error", "x", error_code="enforced_spend_limit_reached"), {}, FailureClass.QUOTA_EXHAUSTED),
        (429, error("rate_limit_error", "x", error_code="contract_spend_limit_reached"), {}, FailureClass.QUOTA_EXHAUSTED),
        (429, error("rate_limit_error", "x", error_code="linked_organization_billing_unavailable"), {}, FailureClass.QUOTA_EXHAUSTED),
        (429, error("rate_limit_error", "Monthly spend limit reached"), {}, FailureClass.QUOTA_EXHAUSTED),
        (429, error("rate_limit_error", "Monthly spend limit reached"), {"retry-after": "3"}, FailureClass.RATE_LIMITED),
        (500, error("api_error"), {}, FailureClass.SERVER_ERROR),
        (500, error("api_error", "Overloaded"), {}, FailureClass.OVERLOADED),
        (502, b"<html>bad gateway</html>", {}, FailureClass.SERVER_ERROR),
        (504, error("timeout_error"), {}, FailureClass.TIMEOUT),
        (529, error("overloaded_error"), {}, FailureClass.OVERLOADED),
        (529, b"", {}, FailureClass.OVERLOADED),
    ],
)
def test_every_error_has_its_class(status: int, body: bytes, headers: dict[str, str], failure_class: FailureClass) -> None:
    got = ANTHROPIC.failure(status, headers, body, 0.0)

    assert got.failure_class == failure_class
    assert got.retry_after_s == (3.0 if headers else None)
    assert "req_" not in got.message


def test_the_code_of_an_error_is_its_detail_else_its_type() -> None:
    assert ANTHROPIC.failure(429, {}, error("rate_limit_error", error_code="ramp_limit_exceeded"), 0.0).code == "ramp_limit_exceeded"
    assert ANTHROPIC.failure(529, {}, error("overloaded_error"), 0.0).code == "overloaded_error"
    assert ANTHROPIC.failure(500, {}, b'{"type":"error","error":{"type":7}}', 0.0).code is None


# ── schemas


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({"type": "string", "format": "email", "minLength": 2}, {"type": "string", "format": "email", "description": "{minLength: 2}"}),
        ({"type": "string", "format": "odd", "description": "D"}, {"type": "string", "description": 'D\n\n{format: "odd"}'}),
        (
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
            {"type": "array", "items": {"type": "object", "additionalProperties": False}, "minItems": 1},
        ),
        ({"type": "array", "minItems": 4}, {"type": "array", "description": "{minItems: 4}"}),
        ({"oneOf": [{"type": "null"}], "allOf": [{"enum": [1]}]}, {"anyOf": [{"type": "null"}], "allOf": [{"enum": [1]}]}),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {}}}},
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {}, "additionalProperties": False}}},
        ),
        ({"type": ["object", "null"], "additionalProperties": True}, {"type": ["object", "null"], "additionalProperties": False}),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "object", "additionalProperties": False, "description": '{additionalProperties: {"type":"integer"}}'},
        ),
    ],
)
def test_schemas_are_closed_and_what_is_lost_is_said_in_words(schema: object, expected: object) -> None:
    assert closed(schema) == expected


def test_a_schema_is_strict_when_every_object_is_closed_and_complete() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    deep: object = {}
    for _ in range(100):
        deep = {"items": deep}

    assert is_strict(inner) and is_strict({"type": "array", "items": inner}) and is_strict({"anyOf": [inner, True]})
    assert not is_strict({**inner, "required": []}) and not is_strict({"anyOf": [{"type": "object"}]})
    assert not is_strict({"properties": 7, "type": "object", "additionalProperties": False, "required": "x", "items": {"type": "object"}})
    assert not is_strict(deep)
    assert closed(deep) is not deep
