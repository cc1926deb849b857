"""The dialect `openai_responses`, what comes back: whole or streamed, as a chat or in the client's own words, and what failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Native, Usage
from n4n.core.dialects import frames
from n4n.core.dialects.completion import joined
from n4n.core.dialects.responses import answer, counts
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, FailureClass

RESPONSES = DIALECTS["openai_responses"]
C = FailureClass
CHAT = ChatRequest({}, "m", stream=True)
NATIVE = ChatRequest({}, "m", stream=True, native=Native("openai_responses", {}))
COUNTS = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 14,
}
HEAD = {"id": "resp_1", "object": "response", "created_at": 7, "model": "gpt"}
CREATED = {"type": "response.created", "response": {**HEAD, "status": "in_progress", "output": []}}
CITED = {"type": "url_citation", "url": "https://a", "title": "t", "start_index": 0, "end_index": 1}
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


def response(*output: Mapping[str, object], **fields: object) -> dict[str, Any]:
    return {**HEAD, "status": "completed", "error": None, "output": list(output), "usage": COUNTS, **fields}


def message(*parts: Mapping[str, object], **fields: object) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": list(parts), **fields}


def text(words: str, **fields: object) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": [], "logprobs": [], **fields}


def call(name: str = "look", arguments: str = '{"a":1}', **fields: object) -> dict[str, Any]:
    return {"id": "fc_1", "type": "function_call", "call_id": f"call_{name}", "name": name, "arguments": arguments, **fields}


def thought(words: str = "hm", sealed: str | None = None, **fields: object) -> dict[str, Any]:
    return {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": words}], "encrypted_content": sealed, **fields}


def sse(*events: Mapping[str, object], names: bool = True) -> bytes:
    frames = (f"event: {event['type']}\n" * names + f"data: {json.dumps(event)}\n\n" for event in events)
    return "".join(frames).encode()


def ended(*output: Mapping[str, object], **fields: object) -> dict[str, Any]:
    whole = response(*output, **fields)
    return {"type": f"response.{whole['status']}", "response": whole}


def delta(kind: str, piece: object, place: int = 0, **fields: object) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "item_id": "x", "output_index": place, "content_index": 0, "delta": piece, **fields}


def item(word: str, of: Mapping[str, object], place: int = 0) -> dict[str, Any]:
    return {"type": f"response.output_item.{word}", "output_index": place, "item": dict(of)}


def streamed(raw: bytes, asked: ChatRequest = CHAT) -> list[Event]:
    decoder = RESPONSES.decoder(asked)
    return decoder.feed(raw) + decoder.end()


def whole(body: object, asked: ChatRequest = CHAT) -> Chunk:
    got = RESPONSES.decode(json.dumps(body).encode(), "application/json", asked)
    assert isinstance(got, Chunk)
    return got


def told(*events: Mapping[str, object]) -> Any:
    """The completion that a client of chat joins of a stream that ends well."""
    got = streamed(sse(*events))
    assert got[-1] == Done()
    return completion(got)


def completion(events: list[Event]) -> Any:
    """What a client of chat joins of the chunks among them."""
    return joined(event.payload for event in events if isinstance(event, Chunk))


def failed(*pieces: bytes) -> Failure:
    got = [event for piece in pieces for event in streamed(piece)]
    assert isinstance(got[-1], Failed)
    return got[-1].failure


# ── whole answers


def test_a_whole_answer_is_a_completion() -> None:
    output = [
        thought("first", "sealed1"),
        message(text("a", annotations=[CITED, {"type": "file_citation"}], logprobs=[LOGPROB]), text("b")),
        message({"type": "refusal", "refusal": "no"}),
        thought("second", "sealed2", content=[{"type": "reasoning_text", "text": "!"}]),
        call(),
        {"type": "custom_tool_call", "call_id": "call_p", "name": "patch", "input": "+x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    got = whole(response(*output))

    sealed = {"type": "reasoning.encrypted", "format": "openai-responses-v1", "id": "rs_1"}
    assert json.loads(got.payload) == {
        "id": "resp_1",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "ab",
                    "refusal": "no",
                    "reasoning_content": "firstsecond!",
                    "reasoning_details": [{**sealed, "data": "sealed1", "index": 0}, {**sealed, "data": "sealed2", "index": 2}],
                    "tool_calls": [
                        {"id": "call_look", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
                        {"id": "call_p", "type": "custom", "custom": {"name": "patch", "input": "+x"}},
                    ],
                    "annotations": [
                        {"type": "url_citation", "url_citation": {"url": "https://a", "title": "t", "start_index": 0, "end_index": 1}}
                    ],
                },
                "logprobs": {"content": [LOGPROB], "refusal": None},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }
    assert (got.content, got.finishes, got.shape, got.usage) == (True, True, "chat", Usage(9, 5, 4, 2, 3))
    assert got.output_bytes == len("firstabnosecond!" + '{"a":1}' + "+x")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "stop"),
        ({"status": None}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, "length"),
        ({"status": "incomplete"}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "stop"),
    ],
)
def test_why_it_ended(fields: dict[str, object], expected: str) -> None:
    assert json.loads(whole(response(message(text("a")), **fields)).payload)["choices"][0]["finish_reason"] == expected


def test_an_answer_without_much_in_it() -> None:
    got = whole({"output": [message(), call("f", "", call_id=None, id=None), thought("")]})

    (choice,) = json.loads(got.payload)["choices"]
    assert (choice["message"]["content"], choice["logprobs"], got.usage) == (None, None, None)
    (made,) = choice["message"]["tool_calls"]
    assert made["id"].startswith("call_") and made["function"]["arguments"] == "{}"
    assert not whole({"output": [message(), thought("")]}).content


def test_in_its_own_words_an_answer_passes_byte_for_byte() -> None:
    body = b' {"id": "resp_1", "output": [{"type":"message","content":[{"type":"output_text","text":"a"}]}], "x": 1.50} '
    got = RESPONSES.decode(body, "", NATIVE)

    assert isinstance(got, Chunk)
    assert (got.payload, got.shape, got.content, got.output_bytes) == (body.strip(), "openai_responses", True, 1)


def test_half_a_surrogate_pair_is_no_reason_to_fail() -> None:
    got = whole(response(message(text("a\ud83d"))))

    assert json.loads(got.payload)["choices"][0]["message"]["content"] == "a\ud83d"
    assert told(CREATED, delta("output_text", "\ud83d"), ended())["choices"][0]["message"]["content"] == "\ud83d"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"code": "server_error", "message": "m"}, "status": "failed", "output": []}, C.SERVER_ERROR),
        ({"error": {"code": "rate_limit_exceeded", "message": "m"}, "status": "failed", "output": []}, C.RATE_LIMITED),
        ({"error": {"code": "invalid_prompt", "message": "flagged as violating our usage policy"}}, C.CONTENT_POLICY),
        ({"error": {"code": "invalid_prompt", "message": "m"}}, C.BAD_REQUEST),
        ({"error": {"code": "bio_policy", "message": "m"}}, C.CONTENT_POLICY),
        ({"error": {"code": "image_content_policy_violation", "message": "m"}}, C.CONTENT_POLICY),
        ({"error": {"code": "image_too_large", "message": "m"}}, C.BAD_REQUEST),
        ({"error": {"code": "vector_store_timeout", "message": "m"}}, C.TIMEOUT),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, C.BAD_REQUEST),
        (response(status="cancelled"), C.SERVER_ERROR),
        (response(status="in_progress"), C.SERVER_ERROR),
        ({"choices": []}, C.SERVER_ERROR),
        ({"output": "odd"}, C.SERVER_ERROR),
        ([], C.SERVER_ERROR),
        ([{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}], C.AUTH),
        (7, C.SERVER_ERROR),
    ],
)
def test_a_200_that_is_a_failure(body: object, expected: FailureClass) -> None:
    raw = json.dumps(body).encode()
    for asked in (CHAT, NATIVE):
        got = RESPONSES.decode(raw, "application/json", asked)
        assert isinstance(got, Failure) and got.failure_class is expected
    assert failed(raw).failure_class is expected


@pytest.mark.parametrize("raw", [b"", b" ", b"<html>", b'{"output":', b"\xff", b'{"output":[]\xff}', b"nonsense"])
def test_a_200_without_a_response_in_it(raw: bytes) -> None:
    got = RESPONSES.decode(raw, "", CHAT)

    assert isinstance(got, Failure) and got.failure_class is C.SERVER_ERROR
    assert failed(raw)


def test_what_is_nested_too_deeply_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(value: object) -> bytes:
        raise RecursionError

    monkeypatch.setattr(json_bytes, "dump", too_deep)
    got = RESPONSES.decode(b'{"output":[]}', "", CHAT)
    assert isinstance(got, Failure) and "deeply" in got.message
    assert "deeply" in failed(sse(CREATED)).message


def test_an_error_status_is_read_in_every_shape() -> None:
    def failure(status: int, body: object) -> FailureClass:
        return RESPONSES.failure(status, {}, json.dumps(body).encode(), 0.0).failure_class

    assert failure(400, {"error": {"code": "invalid_encrypted_content", "message": "m"}}) is C.BAD_REQUEST
    assert failure(400, {"error": {"code": "context_length_exceeded", "message": "m"}}) is C.CONTEXT_LENGTH
    assert failure(404, {"error": {"code": "model_not_found", "message": "m"}}) is C.MODEL_NOT_FOUND
    assert failure(429, {"error": {"type": "insufficient_quota", "message": "m"}}) is C.QUOTA_EXHAUSTED
    assert failure(503, {"detail": "m"}) is C.OVERLOADED
    assert failure(500, "odd") is C.SERVER_ERROR
    assert failure(500, {"output": []}) is C.SERVER_ERROR


# ── streams


def test_a_stream_is_a_completion_told_in_pieces() -> None:
    got = told(
        CREATED,
        {"type": "response.in_progress", "response": HEAD},
        item("added", thought("")),
        delta("reasoning_summary_text", "fi"),
        delta("reasoning_summary_text", "rst"),
        {"type": "response.reasoning_summary_text.done", "text": "first"},
        item("done", thought("first", "sealed")),
        item("added", message(), 1),
        {"type": "response.content_part.added", "part": text("")},
        delta("output_text", "A", 1, logprobs=[LOGPROB], obfuscation="xx"),
        delta("output_text", "", 1, logprobs=[]),
        {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": CITED},
        {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {"type": "file_path"}},
        {"type": "response.output_text.annotation.added", "output_index": 1},
        delta("refusal", "no", 1),
        item("done", message(text("A"), {"type": "refusal", "refusal": "no"}), 1),
        item("added", call("one", ""), 2),
        item("added", call("two", ""), 3),
        item("added", call("two", ""), 3),
        delta("function_call_arguments", '{"n"', 3),
        delta("function_call_arguments", '{"a":1', 2),
        delta("function_call_arguments", ":9}", 3),
        delta("function_call_arguments", "}", 9),
        item("done", call("one", '{"a":1}'), 2),
        item("done", call("one", '{"a":1}'), 2),
        item("added", {"type": "custom_tool_call", "call_id": "call_p", "name": "patch", "input": ""}, 4),
        delta("custom_tool_call_input", "+x", 4),
        item("done", {"type": "custom_tool_call", "call_id": "call_p", "name": "patch", "input": "+x"}, 4),
        ended(),
    )

    (choice,) = got["choices"]
    said = choice["message"]
    assert (said["content"], said["refusal"], said["reasoning_content"], choice["finish_reason"]) == ("A", "no", "first", "tool_calls")
    assert said["tool_calls"] == [
        {"id": "call_one", "type": "function", "function": {"name": "one", "arguments": '{"a":1}'}},
        {"id": "call_two", "type": "function", "function": {"name": "two", "arguments": '{"n":9}'}},
        {"id": "call_p", "type": "custom", "custom": {"name": "patch", "input": "+x"}},
    ]
    assert said["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "sealed", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    ]
    assert said["annotations"][0]["url_citation"]["url"] == "https://a"
    assert choice["logprobs"]["content"] == [LOGPROB]
    assert (got["id"], got["created"], got["model"], got["usage"]["prompt_tokens"]) == ("resp_1", 7, "gpt", 9)


def test_the_chunks_say_what_they_hold() -> None:
    got = streamed(sse(CREATED, delta("output_text", "éa"), item("added", call("f", ""), 1), {"type": "response.new_thing"}, ended()))

    opening, spoken, called, unknown, rest, finish, usage, done = got
    assert isinstance(opening, Chunk) and not opening.content and b'"role":"assistant"' in opening.payload
    assert isinstance(spoken, Chunk) and spoken.content and spoken.output_bytes == 3
    assert isinstance(called, Chunk) and called.content
    assert unknown == Comment()
    assert isinstance(rest, Chunk) and b'"arguments":"{}"' in rest.payload
    assert isinstance(finish, Chunk) and finish.finishes and finish.usage is None
    assert isinstance(usage, Chunk) and not usage.choices and usage.usage == Usage(9, 5, 4, 2, 3)
    assert done == Done()


def test_what_no_delta_has_told_is_told_at_the_end_of_its_item_or_of_all() -> None:
    parts = message(text("a", annotations=[CITED], logprobs=[LOGPROB]), {"type": "refusal", "refusal": "r"})
    custom = {"type": "custom_tool_call", "call_id": "p", "name": "p", "input": ""}
    late = told(item("done", thought("t")), item("done", parts, 1), item("done", call(), 2), item("done", custom, 3), ended())
    last = told(CREATED, ended(thought("t"), parts, call(), custom))

    assert late["choices"] == last["choices"]
    said = last["choices"][0]["message"]
    assert (said["content"], said["refusal"], said["reasoning_content"], len(said["annotations"])) == ("a", "r", "t", 1)
    assert said["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
    assert said["tool_calls"][1]["custom"] == {"name": "p", "input": ""}


def test_an_incomplete_response_is_a_short_answer() -> None:
    early = ended(status="incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=None)
    got = streamed(sse(CREATED, delta("output_text", "a"), early))

    assert completion(got)["choices"][0]["finish_reason"] == "length"
    assert not any(isinstance(event, Chunk) and event.usage for event in got)
    assert told({"type": "response.completed"})["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}, C.RATE_LIMITED),
        ({"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "m"}}, C.SERVER_ERROR),
        ({"type": "error", "error": {"type": "insufficient_quota", "message": "m"}}, C.QUOTA_EXHAUSTED),
        ({"type": "error"}, C.SERVER_ERROR),
        (
            {
                "type": "response.failed",
                "response": {**HEAD, "status": "failed", "error": {"code": "server_is_overloaded", "message": "m"}},
            },
            C.OVERLOADED,
        ),
        ({"type": "response.failed", "response": HEAD}, C.SERVER_ERROR),
        ({"type": "response.failed"}, C.SERVER_ERROR),
        ({"type": "response.cancelled", "response": HEAD}, C.SERVER_ERROR),
        ({"type": "response.completed", "response": {**HEAD, "status": "failed"}}, C.SERVER_ERROR),
        ({"type": "response.completed", "response": {**HEAD, "error": {"code": "invalid_prompt", "message": "safety"}}}, C.CONTENT_POLICY),
        ({"type": "response.output_text.delta", "delta": 5, "error": {"code": "slow_down", "message": "m"}}, C.RATE_LIMITED),
    ],
)
def test_an_error_inside_a_stream_is_a_failure_in_both_kinds(event: dict[str, object], expected: FailureClass) -> None:
    for asked in (CHAT, NATIVE):
        got = streamed(sse(CREATED, delta("output_text", "a"), event, ended()), asked)
        assert isinstance(got[-1], Failed) and got[-1].failure.failure_class is expected


def test_an_event_that_only_its_name_calls_an_error_is_one() -> None:
    assert failed(sse(CREATED) + b'event: error\ndata: {"message":"m","code":"rate_limit_exceeded"}\n\n').failure_class is C.RATE_LIMITED


@pytest.mark.parametrize(
    "raw",
    [
        sse(CREATED),
        sse(CREATED, delta("output_text", "a")) + b"data: [DONE]\n\n",
        b"data: nonsense\n\n",
        b"event: x\ndata: {\n\n",
        sse(CREATED) + b'data: "\xff"\n\n',
        b"data: " + b"x" * (frames.MAX_WHOLE // 4 + 100),
        b"",
    ],
    ids=["nothing", "done", "nonsense", "cut", "not utf-8", "too long", "empty"],
)
def test_a_stream_that_ends_before_its_answer_is_a_failure(raw: bytes) -> None:
    assert failed(raw).failure_class is C.SERVER_ERROR


def test_a_stream_in_its_own_words_passes_byte_for_byte() -> None:
    said = [CREATED, item("added", message()), delta("output_text", "é"), item("added", call(), 1), ended(message(text("é")))]
    raw = sse(*said)
    got = streamed(raw + b"data: {}\n\n", NATIVE)

    *chunks, done = got
    assert done == Done()
    assert [chunk.event.decode() for chunk in chunks if isinstance(chunk, Chunk)] == [event["type"] for event in said]
    assert all(isinstance(chunk, Chunk) and chunk.payload in raw and chunk.shape == "openai_responses" for chunk in chunks)
    assert [isinstance(chunk, Chunk) and chunk.content for chunk in chunks] == [False, False, True, True, False]
    assert [chunk.output_bytes for chunk in chunks if isinstance(chunk, Chunk)] == [0, 0, 2, 0, 0]
    last = chunks[-1]
    assert isinstance(last, Chunk) and last.finishes and last.usage == Usage(9, 5, 4, 2, 3)


def test_oddities_between_events_are_signs_of_life() -> None:
    raw = b": ping\n\ndata: \n\ndata: [DONE]\n\ndata: 7\n\ndata: {}\n\nevent: response.queued\ndata: {}\n\n"
    native, chat = (streamed(sse(CREATED) + raw + sse(ended()), asked) for asked in (NATIVE, CHAT))

    assert [type(event) for event in native[1:-2]] == [Comment] * 5 + [Chunk]
    assert [type(event) for event in chat[1:7]] == [Comment] * 6
    assert native[-1] == chat[-1] == Done()


@pytest.mark.parametrize("end", [b"\n\n", b"\n", b"\r\n\r\n", b"\r"])
def test_any_way_of_ending_an_event_is_understood(end: bytes) -> None:
    raw = b"".join(b"data: " + json.dumps(event).encode() + end for event in (CREATED, delta("output_text", "a"), ended()))

    assert streamed(raw) == streamed(sse(CREATED, delta("output_text", "a"), ended()))


def test_an_event_over_several_lines_is_one() -> None:
    raw = b"data: {\ndata: " + json.dumps(ended()).encode()[1:] + b"\n\n"

    assert streamed(raw)[-1] == Done()
    assert streamed(raw[:-2])[-1] == Done()


def test_events_that_one_line_end_parts_are_told_apart() -> None:
    lines = b"".join(b"data: " + json.dumps(event).encode() + b"\n" for event in (CREATED, ended()))
    expected = streamed(sse(CREATED, ended()))

    assert streamed(b"event: x\n" + lines + b"\n") == expected
    told = streamed(b"data:\n" + lines + b"data: [DONE]\n\n")
    assert [event for event in told if not isinstance(event, Comment)] == expected


def test_a_stream_where_a_body_was_asked_is_joined() -> None:
    said = (CREATED, item("done", call(), 1), item("done", message(text("a"))))
    for asked in (CHAT, NATIVE):
        got = RESPONSES.decode(sse(*said, ended()), "text/event-stream", asked)
        same = RESPONSES.decode(json.dumps(response(message(text("a")), call())).encode(), "", asked)
        assert isinstance(got, Chunk) and isinstance(same, Chunk)
        assert json.loads(got.payload) == json.loads(same.payload)
    assert isinstance(RESPONSES.decode(sse(CREATED), "text/event-stream", CHAT), Failure)
    assert isinstance(RESPONSES.decode(b"", "text/event-stream", CHAT), Failure)
    full = RESPONSES.decode(sse(ended(message(text("b")))), "", CHAT)
    assert isinstance(full, Chunk) and b'"content":"b"' in full.payload


def test_a_body_where_a_stream_was_asked_is_told_in_events() -> None:
    body = response(thought("t", "s"), message(text("a", logprobs=[LOGPROB]), {"type": "refusal", "refusal": "r"}), call())
    raw = json.dumps(body).encode()
    decoder = RESPONSES.decoder(CHAT)
    half = decoder.feed(raw[:50]) + decoder.feed(raw[50:])

    assert half == [Comment(), Comment()]
    got = completion(decoder.end())
    assert got["choices"][0]["message"] == json.loads(whole(body).payload)["choices"][0]["message"]
    events = [json.loads(event.payload) for event in streamed(raw, NATIVE) if isinstance(event, Chunk)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1] == {"type": "response.completed", "sequence_number": len(events) - 1, "response": body}
    cut = list(answer.as_events({"status": "incomplete", "output": [5]}))
    assert [event["type"] for event in cut] == ["response.created", "response.incomplete"]
    assert [event["type"] for event in answer.as_events({"output": "odd"})] == ["response.created", "response.completed"]


def test_a_body_of_endless_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_WHOLE", 100)

    assert failed(b"{" + b" " * 200).message == "the provider's answer is too long"


def test_a_decoder_says_what_it_is() -> None:
    decoder = RESPONSES.decoder(CHAT)
    assert repr(decoder) == "<ResponseDecoder open>"
    decoder.feed(sse(ended()))
    assert repr(decoder) == "<ResponseDecoder over>"
    assert decoder.feed(sse(ended())) == decoder.end() == []


def test_usage_keeps_its_numbers_both_ways() -> None:
    assert counts.read(counts.spelled(Usage(9, 5, 4, 2, 3))) == Usage(9, 5, 4, 2, 3)
    assert counts.spelled(Usage(9, 5, 4, 2, 3)) == COUNTS
    assert counts.read(None) is None


WORDS = st.text(max_size=6)
CALLS = st.tuples(st.text("abc", min_size=1, max_size=3), st.dictionaries(WORDS, WORDS, max_size=2).map(json.dumps))


@given(st.lists(WORDS, max_size=3), WORDS, st.lists(CALLS, max_size=3), st.sampled_from([1, 2, 5, 1000]))
def test_a_whole_answer_and_its_stream_are_the_same_to_a_client_of_chat(
    texts: list[str], reasoning: str, called: list[tuple[str, str]], size: int
) -> None:
    output = [thought(reasoning, "s"), message(*map(text, texts))]
    output += [call(name, arguments, call_id=f"call_{at}") for at, (name, arguments) in enumerate(called)]
    raw = sse(*answer.as_events(response(*output)))
    decoder = RESPONSES.decoder(CHAT)
    pieces = (raw[at : at + size] for at in range(0, len(raw), size))
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()

    got = completion(events)
    expected = json.loads(whole(response(*output)).payload)
    told, same = got["choices"][0], expected["choices"][0]
    assert (told["message"]["content"] or None) == same["message"]["content"] == ("".join(texts) or None)
    for name in ("reasoning_content", "reasoning_details", "tool_calls"):
        assert told["message"].get(name) == same["message"].get(name)
    assert told["finish_reason"] == same["finish_reason"]
    assert got["usage"] == expected["usage"]


@given(st.binary(max_size=12), st.integers(0, 900), st.integers(0, 40), st.integers(1, 99), st.booleans())
def test_no_damage_makes_it_raise(patch: bytes, at: int, lost: int, size: int, native: bool) -> None:
    raw = sse(CREATED, delta("output_text", "é😀"), item("added", call("f", ""), 1), item("done", thought("t", "s"), 2), ended(call()))
    raw = raw[:at] + patch + raw[at + lost :]
    decoder = RESPONSES.decoder(NATIVE if native else CHAT)

    got = [event for start in range(0, len(raw), size) for event in decoder.feed(raw[start : start + size])] + decoder.end()
    assert isinstance(got[-1], Done | Failed)
    assert all(isinstance(event, Chunk | Comment) for event in got[:-1])
    for body in (patch, raw, b'{"output":[' + patch + b"]}", b'{"output":[{"type":"message","content":[' + patch + b"]}]}"):
        assert isinstance(RESPONSES.decode(body, "", NATIVE if native else CHAT), Chunk | Failure)


NAMES = ["type", "item", "output", "content", "text", "response", "status", "usage", "input_tokens", "delta", "error", "code"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
)


@given(
    JSON, st.sampled_from(["response.output_item.done", "response.completed", "response.output_text.delta", "response.output_item.added"])
)
def test_no_json_makes_it_raise(value: object, kind: str) -> None:
    event = {**value, "type": kind} if isinstance(value, dict) else value
    for asked in (CHAT, NATIVE):
        assert isinstance(RESPONSES.decode(json.dumps(value).encode(), "", asked), Chunk | Failure)
        assert isinstance(streamed(b"data: " + json.dumps(event).encode() + b"\n\n", asked)[-1], Done | Failed)
