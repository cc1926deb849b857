"""What Bedrock answers, whole and as a stream, as a chat's client gets it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.chat import Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.dialects.bedrock.events import joined_base64
from n4n.core.dialects.bedrock.stream import MAX_WHOLE, ConverseDecoder
from n4n.core.errors import Failure, FailureClass
from tests.support import event_stream
from tests.support.event_stream import START, event, event_of, metadata, stop, text
from tests.support.vectors import client_joins

BEDROCK = Bedrock()
REQUEST = read_chat(b'{"model":"claude","messages":[{}]}')
USAGE = {"inputTokens": 5, "outputTokens": 7, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 20}
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "EpkB", "format": "anthropic-claude-v1", "index": 0}


def body(*content: Any, reason: str = "end_turn", **more: Any) -> bytes:
    whole = {"output": {"message": {"role": "assistant", "content": list(content)}}, "stopReason": reason, "usage": USAGE, **more}
    return json.dumps({"metrics": {"latencyMs": 3}, **whole}).encode()


def decoded(raw: bytes) -> Chunk:
    got = BEDROCK.decode(raw, "application/json", REQUEST)
    assert isinstance(got, Chunk), got
    return got


def choice(*content: Any, reason: str = "end_turn") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(decoded(body(*content, reason=reason)).payload)["choices"][0]
    return found


def events(*pieces: bytes) -> list[Event]:
    decoder = BEDROCK.decoder(REQUEST)
    return [one for piece in pieces for one in decoder.feed(piece)] + decoder.end()


def chunks(*pieces: bytes) -> list[Chunk]:
    *found, last = events(*pieces)
    assert last == Done()
    return [one for one in found if isinstance(one, Chunk)]


def joined(*pieces: bytes) -> dict[str, Any]:
    return client_joins([chunk.payload for chunk in chunks(*pieces)])


def failure(*pieces: bytes) -> Failure:
    last = events(*pieces)[-1]
    assert isinstance(last, Failed), last
    return last.failure


# ── whole answers


def test_text_calls_and_reasoning_become_one_message() -> None:
    got = decoded(
        body(
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "EpkB"}}},
            {"text": "Ja"},
            {"text": "."},
            {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1.50}}},
            {"reasoningContent": {"redactedContent": "U0lH"}},
            {"toolUse": {"toolUseId": "t2", "name": "g", "input": {}}},
            reason="tool_use",
        )
    )

    whole = json.loads(got.payload)
    assert (whole["object"], whole["model"], whole["created"]) == ("chat.completion", "claude", 0)
    assert whole["id"].startswith("chatcmpl-")
    assert whole["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Ja.",
                "refusal": None,
                "reasoning_content": "hm",
                "reasoning_details": [
                    SIGNED,
                    {"type": "reasoning.encrypted", "data": "U0lH", "format": "bedrock-converse-v1", "index": 3},
                ],
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.5}'}},
                    {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]
    assert whole["usage"]["prompt_tokens"] == 125
    assert got.usage == Usage(125, 7, 100, 20)
    assert got.content and got.finishes
    assert got.output_bytes == len('hmJa.{"a": 1.5}{}')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], {"role": "assistant", "content": None, "refusal": None}),
        ([{"text": ""}], {"role": "assistant", "content": None, "refusal": None}),
        ([{"image": {"format": "png"}}, {"text": "a"}], {"role": "assistant", "content": "a", "refusal": None}),
        ([{"citationsContent": {"content": [{"text": "a"}, {}]}}, {"text": "."}], {"role": "assistant", "content": "a.", "refusal": None}),
        ([{"citationsContent": {}}], {"role": "assistant", "content": None, "refusal": None}),
        (
            [{"toolUse": {"toolUseId": "s", "name": "web", "input": {}, "type": "server_tool_use"}}, {"text": "a"}],
            {"role": "assistant", "content": "a", "refusal": None},
        ),
        (
            [{"reasoningContent": {"reasoningText": {"text": "hm"}}}],
            {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "hm"},
        ),
        ([{"reasoningContent": {}}], {"role": "assistant", "content": None, "refusal": None}),
    ],
)
def test_what_a_chat_has_no_words_for_takes_nothing_with_it(content: list[Any], message: dict[str, Any]) -> None:
    assert choice(*content)["message"] == message


def test_a_call_without_id_name_or_input_is_still_a_call() -> None:
    got = choice({"toolUse": {"input": None}}, {"toolUse": {}})

    assert got["finish_reason"] == "tool_calls"  # whatever the stop reason says
    assert got["message"]["tool_calls"] == [
        {"id": "call_0", "type": "function", "function": {"name": "", "arguments": "{}"}},
        {"id": "call_1", "type": "function", "function": {"name": "", "arguments": "{}"}},
    ]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"), ("content_filtered", "content_filter"), ("tool_use", "tool_calls"), ("odd", "stop"),
    ],
)  # fmt: skip
def test_a_stop_reason_becomes_a_finish_reason(said: str, meant: str) -> None:
    assert choice({"text": "a"}, reason=said)["finish_reason"] == meant
    assert joined(START, text("a"), stop(said), metadata(**USAGE))["choices"][0]["finishes"] == [meant]


def test_reasoning_tokens_are_counted_where_claude_tells_them() -> None:
    told = {"usage": {"output_tokens_details": {"thinking_tokens": 4}}}
    streamed = event("messageStop", stopReason="end_turn", additionalModelResponseFields=told)

    assert decoded(body({"text": "a"}, additionalModelResponseFields=told)).usage == Usage(125, 7, 100, 20, 4)
    assert chunks(START, text("a"), streamed, metadata(**USAGE))[-1].usage == Usage(125, 7, 100, 20, 4)
    for odd in (None, {"usage": 7}, {"usage": {"output_tokens_details": []}}, {"usage": {"output_tokens_details": {}}}, "x"):
        assert decoded(body({"text": "a"}, additionalModelResponseFields=odd)).usage == Usage(125, 7, 100, 20)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"totalTokens": 5}, None),
        ({"inputTokens": 5}, Usage(5, 0)),
        ({"inputTokens": -5, "outputTokens": 2.0}, Usage(0, 2, estimated=True, doubt="negative")),
        ({"inputTokens": "5", "outputTokens": True}, None),
        ({"inputTokens": 1e300, "outputTokens": 1}, Usage(0, 1, estimated=True, doubt="not_a_number")),
    ],
)
def test_usage_that_is_odd_or_missing_is_no_failure(usage: Any, expected: Usage | None) -> None:
    got = decoded(body({"text": "a"}, usage=usage))

    assert got.usage == expected
    assert (json.loads(got.payload)["usage"] is None) is (expected is None)
    last = chunks(START, text("a"), stop(), event("metadata", usage=usage))
    assert last[-1].usage == expected


@pytest.mark.parametrize(
    ("raw", "failure_class", "message"),
    [
        (b"", FailureClass.SERVER_ERROR, "the provider's answer was empty"),
        (b" \n", FailureClass.SERVER_ERROR, "the provider's answer was empty"),
        (b"<html>", FailureClass.SERVER_ERROR, "the provider answered with a web page"),
        (body({"text": "a"})[:-4], FailureClass.SERVER_ERROR, "the provider's answer is not valid JSON in UTF-8"),
        (body({"text": "a"}).replace(b'"a"', b'"\xff"'), FailureClass.SERVER_ERROR, "the provider's answer is not valid JSON in UTF-8"),
        (b"[1]", FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (b"{}", FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (b'{"output":{"message":{}}}', FailureClass.SERVER_ERROR, "the provider's answer holds no message"),
        (body({"text": "a"}, reason="malformed_tool_use"), FailureClass.SERVER_ERROR, "the provider broke off its answer"),
        (body(reason="malformed_model_output"), FailureClass.SERVER_ERROR, "the provider broke off its answer"),
        (b'{"__type":"com.amazon#ThrottlingException","message":"m"}', FailureClass.RATE_LIMITED, "the provider's rate limit is reached"),
        (b'{"Message":"User is not allowed"}', FailureClass.SERVER_ERROR, "the provider failed"),
        (b'{"error":{"code":"rate_limit_exceeded"}}', FailureClass.RATE_LIMITED, "the provider's rate limit is reached"),
    ],
)
def test_a_200_without_a_message_in_it_is_a_failure(raw: bytes, failure_class: FailureClass, message: str) -> None:
    got = BEDROCK.decode(raw, "application/json", REQUEST)

    assert isinstance(got, Failure)
    assert (got.failure_class, got.message, got.status) == (failure_class, message, 200)


def test_a_stream_where_json_was_asked_is_joined() -> None:
    raw = START + text("a") + text("b") + stop() + metadata(**USAGE)
    got = BEDROCK.decode(raw, "application/json", REQUEST)

    assert isinstance(got, Chunk)
    assert json.loads(got.payload)["choices"][0]["message"]["content"] == "ab"
    assert got.usage == Usage(125, 7, 100, 20)
    assert isinstance(BEDROCK.decode(raw[:-9] + event_stream.exception("internalServerException"), "", REQUEST), Failure)


# ── streams


def test_a_stream_tells_what_a_whole_answer_tells() -> None:
    signed = {"reasoningContent": {"text": "hm"}}
    found = chunks(
        START,
        event("contentBlockDelta", contentBlockIndex=0, delta=signed),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "EpkB"}}),
        event("contentBlockStop", contentBlockIndex=0),
        text("Ja", 1),
        text(".", 1),
        event("contentBlockStop", contentBlockIndex=1),
        event("contentBlockStart", contentBlockIndex=2, start={"toolUse": {"toolUseId": "t1", "name": "f"}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": '{"a"'}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": ": 1}"}}),
        event("contentBlockStop", contentBlockIndex=2),
        event("contentBlockDelta", contentBlockIndex=3, delta={"reasoningContent": {"redactedContent": "U0lH"}}),
        event("contentBlockStop", contentBlockIndex=3),
        event("contentBlockStart", contentBlockIndex=4, start={"toolUse": {"toolUseId": "t2", "name": "g"}}),
        event("contentBlockStop", contentBlockIndex=4),
        stop("tool_use"),
        metadata(**USAGE),
    )

    first, last, usage = json.loads(found[0].payload), json.loads(found[-2].payload), json.loads(found[-1].payload)
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert (first["object"], first["model"], first["id"][:9]) == ("chat.completion.chunk", "claude", "chatcmpl-")
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] == 132 and usage["id"] == first["id"]
    details = [
        json.loads(chunk.payload)["choices"][0]["delta"]["reasoning_details"] for chunk in found if b"reasoning_details" in chunk.payload
    ]
    assert details == [[SIGNED], [{"type": "reasoning.encrypted", "data": "U0lH", "format": "bedrock-converse-v1", "index": 3}]]
    whole = client_joins([chunk.payload for chunk in found])["choices"][0]
    assert whole["message"] == {"content": "Ja.", "reasoning_content": "hm"}
    assert whole["calls"] == {0: {"id": "t1", "name": "f", "arguments": '{"a": 1}'}, 1: {"id": "t2", "name": "g", "arguments": "{}"}}
    assert [chunk.content for chunk in found] == [False, *[True] * 10, False, False]
    assert [chunk.finishes for chunk in found] == [*[False] * 11, True, False]
    assert sum(chunk.output_bytes for chunk in found) == len('hmJa.{"a": 1}{}')
    assert found[-1] == Chunk(found[-1].payload, choices=False, usage=Usage(125, 7, 100, 20))


def test_blocks_that_nobody_ended_are_ended_with_the_message() -> None:
    call = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t", "name": "f"}})
    thought = event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "S"}})
    found = joined(START, thought, call, stop("end_turn"), metadata(**USAGE))["choices"][0]

    assert found["calls"] == {0: {"id": "t", "name": "f", "arguments": "{}"}}
    assert found["finishes"] == ["tool_calls"]


def test_a_message_may_begin_without_a_beginning() -> None:
    found = chunks(text("a"), stop(), metadata(**USAGE))

    assert [json.loads(chunk.payload)["choices"][0]["delta"] for chunk in found[:2]] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
    ]


def test_what_a_chat_has_no_words_for_is_a_sign_of_life() -> None:
    silent = [
        event("contentBlockStart", contentBlockIndex=0, start={"image": {"format": "png"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"image": {"source": {}}}),
        event("contentBlockDelta", contentBlockIndex=0),
        event("contentBlockDelta", contentBlockIndex=9, delta={"toolUse": {"input": "{"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"toolUse": {}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {}}),
        event("contentBlockStart", contentBlockIndex=4, start={"toolUse": {"toolUseId": "s", "name": "web", "type": "server_tool_use"}}),
        event("contentBlockDelta", contentBlockIndex=4, delta={"toolUse": {"input": "{}"}}),
        event("contentBlockDelta", contentBlockIndex=4, delta={"toolResult": [{"text": "x"}]}),
        event("contentBlockStop", contentBlockIndex=4),
        event("contentBlockStop", contentBlockIndex=7),
        event("initial-response"),
        event_of("somethingNew", b"\xff"),
        event_stream.frame({":message-type": "else"}, b""),
    ]
    decoder = BEDROCK.decoder(REQUEST)

    assert len(decoder.feed(START)) == 1
    assert [one for raw in silent for one in decoder.feed(raw)] == [Comment()] * len(silent)
    assert repr(decoder) == "<ConverseDecoder open>"


def test_cited_text_is_text() -> None:
    cited = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "a", "citation": {"title": "t"}})

    assert joined(START, cited, stop(), metadata(**USAGE))["choices"][0]["message"] == {"content": "a"}


def test_arguments_that_come_as_an_object_are_told_as_text() -> None:
    call = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t", "name": "f"}})
    piece = event("contentBlockDelta", contentBlockIndex=1, delta={"toolUse": {"input": {"a": 1}}})

    assert joined(START, call, piece, stop(), metadata(**USAGE))["choices"][0]["calls"][0]["arguments"] == '{"a":1}'


def test_usage_may_be_missing_late_or_early() -> None:
    bare = events(START, text("a"), stop())
    assert bare[-1] == Done() and [one.usage for one in bare if isinstance(one, Chunk)] == [None] * 3

    early = chunks(START, metadata(**USAGE), text("a"), stop())
    assert [one.usage for one in early if one.usage] == [Usage(125, 7, 100, 20)]

    decoder = ConverseDecoder("m")
    assert decoder.feed(START + stop() + metadata(**USAGE))[-1] == Done()
    assert (decoder.feed(START), decoder.end(), repr(decoder)) == ([], [], "<ConverseDecoder over>")


def test_nothing_more_is_told_once_the_message_has_ended() -> None:
    found = events(START, text("a"), stop(), text("b"), stop("max_tokens"), metadata(**USAGE))

    assert found[3:5] == [Comment(), Comment()]
    assert client_joins([one.payload for one in found if isinstance(one, Chunk)])["choices"][0]["finishes"] == ["stop"]


@pytest.mark.parametrize(
    ("pieces", "failure_class", "code"),
    [
        ((), FailureClass.SERVER_ERROR, None),
        ((b" ",), FailureClass.SERVER_ERROR, None),
        ((START, text("a")), FailureClass.SERVER_ERROR, None),
        ((START, text("a"), stop()[:-1]), FailureClass.SERVER_ERROR, None),
        ((START, b"\x00\x00\x00\x10garbage and more"), FailureClass.SERVER_ERROR, None),
        ((b"data: {}\n\n",), FailureClass.SERVER_ERROR, None),
        ((START, event_of("contentBlockDelta", b"{")), FailureClass.SERVER_ERROR, None),
        ((START, event_of("contentBlockDelta", b"\xff")), FailureClass.SERVER_ERROR, None),
        ((START, event_of("contentBlockDelta", b"[]")), FailureClass.SERVER_ERROR, None),
        ((START, event_of("contentBlockDelta", b'{"delta":{"text":7}}')), FailureClass.SERVER_ERROR, None),
        ((START, stop("malformed_tool_use")), FailureClass.SERVER_ERROR, None),
        ((START, event_stream.exception("throttlingException", message="m")), FailureClass.RATE_LIMITED, "ThrottlingException"),
        ((event_stream.exception("serviceUnavailableException"), START), FailureClass.OVERLOADED, "ServiceUnavailableException"),
        ((event_stream.exception("internalServerException"),), FailureClass.SERVER_ERROR, "InternalServerException"),
        (
            (event_stream.exception("modelStreamErrorException", originalStatusCode=429),),
            FailureClass.RATE_LIMITED,
            "ModelStreamErrorException",
        ),
        (
            (event_stream.exception("validationException", message="prompt is too long: 9"),),
            FailureClass.CONTEXT_LENGTH,
            "ValidationException",
        ),
        (
            (
                event_stream.frame(
                    {":message-type": "error", ":error-code": "ThrottlingException", ":error-message": "too many tokens per day"}, b""
                ),
            ),
            FailureClass.QUOTA_EXHAUSTED,
            "ThrottlingException",
        ),
        ((event_stream.frame({":message-type": "error"}, b"x"),), FailureClass.SERVER_ERROR, None),
        (
            (event_stream.frame({":message-type": "exception", ":exception-type": "weirdException"}, b"[]"),),
            FailureClass.SERVER_ERROR,
            "WeirdException",
        ),
        ((b'{"message":"The security token is invalid"}',), FailureClass.SERVER_ERROR, None),
        ((b"<html>",), FailureClass.SERVER_ERROR, None),
        ((b'{"output"',), FailureClass.SERVER_ERROR, None),
    ],
)
def test_a_stream_that_breaks_off_or_says_so_is_a_failure(pieces: tuple[bytes, ...], failure_class: FailureClass, code: str | None) -> None:
    got = failure(*pieces)

    assert (got.failure_class, got.code, got.status) == (failure_class, code, 200)


def test_a_whole_answer_where_a_stream_was_asked_is_told_as_one() -> None:
    raw = body({"text": "a"}, {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}})
    found = events(raw[:10], raw[10:])

    assert found[:2] == [Comment(), Comment()]
    assert [(one.content, one.finishes, one.usage) for one in found if isinstance(one, Chunk)] == [
        (True, False, None),
        (False, True, Usage(125, 7, 100, 20)),
    ]
    whole = client_joins([one.payload for one in found if isinstance(one, Chunk)])["choices"][0]
    assert (whole["message"], whole["finishes"]) == ({"content": "a"}, ["tool_calls"])


def test_a_whole_answer_where_a_stream_was_asked_is_bounded() -> None:
    assert failure(b"{", b" " * MAX_WHOLE).message == "the provider's answer is too long"


def test_half_a_surrogate_pair_leaves_as_the_escape_it_came_as() -> None:
    broken = event_of("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"a\\ud83d"}}')
    call = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t", "name": "f"}})
    piece = event_of("contentBlockDelta", b'{"contentBlockIndex":1,"delta":{"toolUse":{"input":"\\"\\ud83d\\""}}}')
    last = event_of("messageStop", b'{"stopReason":"end_turn","x":"\\ud83d"}')
    found = chunks(START, broken, call, piece, last, event_of("metadata", b'{"usage":{"inputTokens":1,"outputTokens":"x"},"x":"\\ud83d"}'))

    assert [b"\\ud83d" in chunk.payload for chunk in found] == [False, True, False, True, False, False]
    assert found[1].output_bytes == 4
    assert found[-1].usage == Usage(1, 0, estimated=True, doubt="not_a_number")
    whole = body({"text": "X"}, {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": "X"}}}, {"toolUse": {}}, {"toolUse": 7})
    got = BEDROCK.decode(whole.replace(b"X", b"\\ud83d").replace(b', {"toolUse": 7}', b", 7"), "", REQUEST)
    assert isinstance(got, Chunk) and got.payload.count(b"\\ud83d") == 2
    assert isinstance(BEDROCK.decode(whole.replace(b"X", b"\\ud83d"), "", REQUEST), Failure)
    assert isinstance(BEDROCK.decode(b'{"output":{"message":[]},"x":"\\ud83d"}', "", REQUEST), Failure)
    assert (
        failure(
            START,
            event_of(
                "contentBlockDelta",
                b'{"delta":7,"x":"\\ud83d"}',
            ),
            text("a"),
        ).failure_class
        is FailureClass.SERVER_ERROR
    )


def test_encrypted_reasoning_in_pieces_is_one_text() -> None:
    assert joined_base64(["U0lH"]) == "U0lH"
    assert joined_base64(["U0k=", "Rw=="]) == "U0lH"
    assert joined_base64(["U0k=", "?"]) == "U0k=?"
