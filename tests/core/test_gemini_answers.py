"""The dialect `gemini`: what comes back, whole or as a stream, and what every oddity of it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects import frames as frames_module
from n4n.core.dialects.gemini import Gemini
from n4n.core.dialects.gemini import json_array as array_module
from n4n.core.dialects.gemini.json_array import ArrayParser
from n4n.core.dialects.gemini.stream import GeminiDecoder
from n4n.core.errors import Failure, FailureClass
from n4n.core.sse import MAX_LINE

GEMINI = Gemini()
CUT_OFF = "the provider's stream ended before the answer did"
NOT_JSON = "the provider's answer is not valid JSON in UTF-8"


def request(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [{"role": "user"}], **fields}).encode())


def candidate(*parts: object, reason: str | None = None, index: int | None = 0, **more: object) -> dict[str, object]:
    made: dict[str, object] = {"content": {"role": "model", "parts": list(parts)}, **more}
    if reason is not None:
        made["finishReason"] = reason
    return made if index is None else {**made, "index": index}


def response(*candidates: object, **more: object) -> dict[str, object]:
    return {"candidates": list(candidates), "modelVersion": "gemini-x", "responseId": "r1", **more}


def encoded(said: object) -> bytes:
    return json.dumps(said).encode()


def sse(*said: object) -> bytes:
    return b"".join(b"data: " + encoded(one) + b"\r\n\r\n" for one in said)


def events(*pieces: bytes, n: int = 1) -> list[Event]:
    decoder = GEMINI.decoder(request(n=n))
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def chunks(*said: object, n: int = 1) -> list[Chunk]:
    """The chunks of a stream that ends well."""
    *found, last = events(sse(*said), n=n)
    assert last == Done()
    return [event for event in found if isinstance(event, Chunk)]


def deltas(*said: object) -> list[Any]:
    """The deltas of the one choice of a stream that ends well."""
    return [json.loads(chunk.payload)["choices"][0]["delta"] for chunk in chunks(*said) if chunk.choices]


def failed(*pieces: bytes) -> Failure:
    last = events(*pieces)[-1]
    assert isinstance(last, Failed)
    return last.failure


def whole(said: object, **fields: object) -> tuple[Chunk, Any]:
    got = GEMINI.decode(encoded(said), "application/json", request(**fields))
    assert isinstance(got, Chunk), got
    return got, json.loads(got.payload)


def broken(body: bytes) -> Failure:
    got = GEMINI.decode(body, "application/json", request())
    assert isinstance(got, Failure), got
    return got


STOP = candidate(reason="STOP")
TEXT = {"text": "hi"}


# ── whole answers


def test_a_whole_answer_is_a_completion() -> None:
    got, read = whole(
        response(
            candidate({"text": "hm", "thought": True}, {"text": "a"}, {"text": "é"}, reason="STOP"),
            usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4},
            createTime="2026-01-01T00:00:05.123456789Z",
        )
    )

    assert read == {
        "id": "r1",
        "object": "chat.completion",
        "created": 1767225605,
        "model": "gemini-x",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "aé", "refusal": None, "reasoning_content": "hm"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 5,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }
    assert (got.content, got.finishes, got.output_bytes, got.usage) == (True, True, 5, Usage(5, 5, 4, 0, 3))


def test_calls_of_a_whole_answer_have_ids_and_arguments() -> None:
    _, read = whole(
        response(
            candidate(
                {"functionCall": {"name": "f", "args": {"a": 1}, "id": "theirs"}, "thoughtSignature": "S"},
                {"functionCall": {"name": "f"}},
                reason="STOP",
            )
        )
    )

    message = read["choices"][0]["message"]
    first, second = message["tool_calls"]
    assert first == {"id": "theirs", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert second["id"].startswith("call_") and second["function"] == {"name": "f", "arguments": "{}"}
    assert message["content"] is None
    assert message["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "S", "id": "theirs", "format": "google-gemini-v1", "index": 0}
    ]
    assert read["choices"][0]["finish_reason"] == "tool_calls"


def test_ids_that_are_made_differ_between_answers_and_choices_and_repeat_for_the_same() -> None:
    call = {"functionCall": {"name": "f"}}

    def made(said: dict[str, object]) -> list[str]:
        return [one["id"] for choice in whole(said)[1]["choices"] for one in choice["message"]["tool_calls"]]

    one, other = response(candidate(call, call), candidate(call, index=1)), {"candidates": [candidate(call)]}
    assert len(set(made(one) + made(other))) == 4
    assert made(one) == made(one) and made(other) == made(other)
    later = whole(other, user="who asked more")[1]["choices"][0]["message"]["tool_calls"][0]["id"]
    assert [later] != made(other)  # in a later turn of the same chat


def test_an_answer_without_id_or_model_gets_some() -> None:
    _, read = whole({"candidates": [candidate(TEXT, reason="STOP")]})

    assert read["id"].startswith("gen-") and read["model"] == "asked" and read["created"] == 0
    assert read["usage"] is None
    assert whole(response(candidate(TEXT), createTime="then"))[1]["created"] == 0


def test_a_whole_answer_without_a_reason_has_come_to_its_end() -> None:
    assert whole(response(candidate(TEXT)))[1]["choices"][0]["finish_reason"] == "stop"


def test_an_empty_answer_is_an_answer() -> None:
    got, read = whole(response({"finishReason": "MAX_TOKENS"}))

    assert not got.content
    assert read["choices"][0]["message"]["content"] is None and read["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the provider's answer was empty"),
        (b" \r\n", "the provider's answer was empty"),
        (b"<html>", "the provider answered with a web page"),
        (b'{"candidates": [{"content"', NOT_JSON),
        (b'{"a":"\xff"}', NOT_JSON),
        (b"{}", "the provider's answer holds no completion"),
        (b'{"candidates":5}', "the provider's answer holds no completion"),
        (b'{"candidates":[5,[]]}', "the provider's answer holds no completion"),
        (b"[]", CUT_OFF),
        (b"nonsense", CUT_OFF),
    ],
)
def test_a_200_without_an_answer_is_a_failure(body: bytes, message: str) -> None:
    got = broken(body)

    assert (got.failure_class, got.message, got.status) == (FailureClass.SERVER_ERROR, message, 200)


def test_a_stream_though_none_was_asked_is_joined() -> None:
    body = sse(
        response(candidate({"text": "a", "thought": True}, {"text": "b"})),
        response(
            candidate({"functionCall": {"name": "f", "id": "c"}}, reason="STOP"),
            usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 2},
        ),
    )
    got = GEMINI.decode(body, "text/event-stream", request())

    assert isinstance(got, Chunk)
    read = json.loads(got.payload)
    assert read["object"] == "chat.completion"
    assert read["choices"][0]["message"]["content"] == "b" and read["choices"][0]["message"]["reasoning_content"] == "a"
    assert read["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert read["usage"]["total_tokens"] == 5 and got.usage == Usage(3, 2)
    assert (got.content, got.finishes, got.output_bytes) == (True, True, 4)


# ── finish reasons


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("ESCALATION", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("OTHER", "stop"),
        ("TOO_MANY_TOOL_CALLS", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_a_reason_has_a_chats_word(reason: str, finish: str) -> None:
    _, read = whole(response(candidate(TEXT, reason=reason)))

    assert read["choices"][0]["finish_reason"] == finish


def test_a_filter_may_leave_nothing() -> None:
    _, read = whole(response(candidate(reason="SAFETY")))

    assert read["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.parametrize(
    ("reason", "parts", "means"),
    [
        ("MALFORMED_FUNCTION_CALL", [TEXT], FailureClass.SERVER_ERROR),
        ("MALFORMED_RESPONSE", [], FailureClass.SERVER_ERROR),
        ("MISSING_THOUGHT_SIGNATURE", [], FailureClass.SERVER_ERROR),
        ("UNEXPECTED_TOOL_CALL", [], FailureClass.SERVER_ERROR),
        ("OTHER", [], FailureClass.SERVER_ERROR),
        ("PUP_LIMITED_DISABLED", [TEXT], FailureClass.AUTH),
    ],
)
def test_a_reason_that_is_none_is_a_failure(reason: str, parts: list[object], means: FailureClass) -> None:
    said = response(candidate(*parts, reason=reason))

    assert broken(encoded(said)).failure_class is means
    assert failed(sse(said)).failure_class is means


def test_a_blocked_prompt_is_a_matter_of_policy() -> None:
    said = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}}

    for got in (broken(encoded(said)), failed(sse(said))):
        assert (got.failure_class, got.code, got.status) == (FailureClass.CONTENT_POLICY, "PROHIBITED_CONTENT", 200)
    assert whole(response(candidate(TEXT), promptFeedback={"blockReason": "BLOCKED_REASON_UNSPECIFIED"}))


# ── log probabilities


def test_log_probabilities_are_told_per_token() -> None:
    result = {
        "chosenCandidates": [{"token": "é", "logProbability": -0.5}, {"token": 5}, {"token": "b"}],
        "topCandidates": [{"candidates": [{"token": "é", "logProbability": -0.5}, 7]}, {}, {"candidates": 5}],
    }
    _, read = whole(response(candidate(TEXT, logprobsResult=result)))

    token = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    assert read["choices"][0]["logprobs"] == {
        "content": [{**token, "top_logprobs": [token]}, {"token": "b", "logprob": 0.0, "bytes": [98], "top_logprobs": []}],
        "refusal": None,
    }
    bare = whole(response(candidate(TEXT, logprobsResult={"chosenCandidates": [{"token": "a", "logProbability": True}]})))[1]
    assert bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert whole(response(candidate(TEXT, logprobsResult={})))[1]["choices"][0]["logprobs"] is None


def test_log_probabilities_of_a_stream_ride_on_its_chunks() -> None:
    made = chunks(response(STOP), response(candidate(logprobsResult={"chosenCandidates": []})))

    assert [json.loads(chunk.payload)["choices"][0]["logprobs"] for chunk in made] == [None, {"content": [], "refusal": None}]


# ── usage


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"promptTokenCount": 5, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 1}, Usage(7, 1)),
        ({"promptTokenCount": 5, "cachedContentTokenCount": 9}, Usage(5, 0, 5, estimated=True, doubt="inconsistent")),
        (
            {"promptTokenCount": -5, "candidatesTokenCount": "3", "thoughtsTokenCount": 2},
            Usage(0, 2, reasoning_tokens=2, estimated=True, doubt="negative"),
        ),
        ({"promptTokenCount": True}, None),
        ({}, None),
        (5, None),
    ],
)
def test_usage_fits_together_whatever_is_told(raw: object, usage: Usage | None) -> None:
    assert whole(response(candidate(TEXT), usageMetadata=raw))[0].usage == usage


# ── streams


def test_a_stream_is_chunks_with_one_id_and_one_opening() -> None:
    made = chunks(
        response(candidate({"text": "a"}), usageMetadata={"promptTokenCount": 9}),
        {"candidates": [candidate({"text": "b"}, reason="STOP")], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    )

    assert [json.loads(chunk.payload) for chunk in made] == [
        {
            "id": "r1", "object": "chat.completion.chunk", "created": 0, "model": "gemini-x",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "logprobs": None, "finish_reason": None}],
        },
        {
            "id": "r1", "object": "chat.completion.chunk", "created": 0, "model": "gemini-x",
            "choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": None, "finish_reason": "stop"}],
        },
    ]  # fmt: skip
    assert [(chunk.content, chunk.finishes, chunk.unfinished, chunk.usage) for chunk in made] == [
        (True, False, False, Usage(9)),
        (True, True, False, Usage(9, 2)),
    ]


def test_calls_of_a_stream_are_numbered_in_order_of_appearance() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": "é"}}}
    first, second, last = deltas(response(candidate(call)), response(candidate(call, call)), response(STOP))

    assert [one["index"] for one in first["tool_calls"] + second["tool_calls"]] == [0, 1, 2]
    assert len({one["id"] for one in first["tool_calls"] + second["tool_calls"]}) == 3
    assert last == {}
    assert chunks(response(candidate(call)), response(STOP))[0].output_bytes == len('{"a":"é"}'.encode())


def test_signatures_of_a_stream_are_details_that_are_not_output() -> None:
    made = chunks(
        response(candidate({"text": "hm", "thought": True, "thoughtSignature": "S0"})),
        response(candidate({"text": "a", "thoughtSignature": "S1"})),
        response(candidate({"text": "", "thoughtSignature": "S2"}, reason="STOP")),
    )

    details = [json.loads(chunk.payload)["choices"][0]["delta"]["reasoning_details"][0] for chunk in made]
    assert details == [
        {"type": "reasoning.text", "text": "hm", "signature": "S0", "format": "google-gemini-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "S1", "format": "google-gemini-v1", "index": 1},
        {"type": "reasoning.encrypted", "data": "S2", "format": "google-gemini-v1", "index": 2},
    ]
    assert [chunk.content for chunk in made] == [True, True, False]


def test_a_response_without_news_is_a_sign_of_life() -> None:
    got = events(sse(response(candidate(TEXT)), response(), response(candidate(5)), {"x": 1}, response(STOP)))

    assert [type(event) for event in got] == [Chunk, Comment, Comment, Comment, Chunk, Done]


def test_usage_alone_is_a_chunk_without_choices() -> None:
    *_, last = chunks(response(candidate(TEXT, reason="STOP")), response(usageMetadata={"promptTokenCount": 1}))

    assert (last.choices, last.usage) == (False, Usage(1))
    assert json.loads(last.payload)["choices"] == []


def test_an_opening_without_output_says_who_speaks() -> None:
    assert deltas(response(candidate()), response(STOP)) == [{"role": "assistant", "content": ""}, {}]


def test_several_choices_finish_each_for_itself() -> None:
    made = chunks(
        response(candidate({"text": "a"}), candidate({"text": "b"}, index=1)),
        response(candidate(reason="STOP", index=1)),
        response(candidate(reason="MAX_TOKENS")),
        n=2,
    )

    assert [(chunk.finishes, chunk.unfinished) for chunk in made] == [(False, False), (True, True), (True, False)]
    assert [choice["index"] for chunk in made for choice in json.loads(chunk.payload)["choices"]] == [0, 1, 1, 0]


def test_candidates_without_a_number_count_by_their_place() -> None:
    made = chunks(response(candidate(TEXT, index=None, reason="STOP"), candidate(TEXT, index=-1, reason="STOP")))

    assert [choice["index"] for choice in json.loads(made[0].payload)["choices"]] == [0, 1]


def test_a_choice_finishes_once() -> None:
    made = chunks(response(candidate(TEXT, reason="STOP")), response(candidate({"text": "b"}, reason="STOP")))

    assert [chunk.finishes for chunk in made] == [True, False]
    assert json.loads(made[1].payload)["choices"][0]["finish_reason"] is None


def test_a_stream_that_ends_before_every_choice_is_a_failure() -> None:
    assert failed(sse(response(candidate(TEXT)))).message == CUT_OFF
    assert failed(sse(response(candidate(TEXT, reason="STOP"), candidate(TEXT, index=1)))).message == CUT_OFF
    assert failed(sse(response(candidate(TEXT, reason="FINISH_REASON_UNSPECIFIED")))).message == CUT_OFF
    assert failed().message == CUT_OFF


def test_nothing_follows_the_end() -> None:
    decoder = GEMINI.decoder(request())
    assert isinstance(decoder.feed(b"data: nonsense\n\n")[-1], Failed)
    assert decoder.feed(sse(response(STOP))) == [] and decoder.end() == []

    decoder = GEMINI.decoder(request())
    decoder.feed(sse(response(STOP)))
    assert decoder.end() == [Done()] and decoder.end() == []
    assert len(events(sse({"error": {}}, response(STOP)))) == 1


def test_comments_an_end_mark_and_empty_events_mean_nothing() -> None:
    got = events(b": hello\n\ndata:\n\ndata: \n\n", sse(response(candidate(TEXT, reason="STOP"))), b"data: [DONE]\n\n")

    assert [type(event) for event in got] == [Comment, Comment, Comment, Chunk, Comment, Done]


def test_an_event_may_be_spread_over_lines_and_need_no_blank_line_at_the_end() -> None:
    pretty = json.dumps(response(candidate({"text": "a\nb"}, reason="STOP")), indent=1)
    *_, chunk, done = events(b"\xef\xbb\xbf" + "\n".join("data: " + line for line in pretty.split("\n")).encode())

    assert isinstance(chunk, Chunk) and json.loads(chunk.payload)["choices"][0]["delta"]["content"] == "a\nb"
    assert done == Done()


@pytest.mark.parametrize(
    "body", [b'data: {"a":"\xff"}\n\n', b"data: [1]\n\n", b"data: {\n\n", b"<html>", b'{"candidates":[', b'data: "x"\n\n']
)
def test_what_is_no_response_ends_the_stream(body: bytes) -> None:
    assert failed(body).failure_class is FailureClass.SERVER_ERROR


def test_arguments_nested_without_end_are_a_failure() -> None:
    args = b'{"a":' * 990 + b"1" + b"}" * 990
    body = b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%b}}]}}]}\n\n' % args

    assert failed(body).failure_class is FailureClass.SERVER_ERROR


def test_an_error_inside_a_stream_is_of_its_own_class() -> None:
    got = failed(sse(response(candidate(TEXT)), {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}))

    assert (got.failure_class, got.code, got.status) == (FailureClass.OVERLOADED, "UNAVAILABLE", 200)


def test_a_whole_body_where_a_stream_was_asked_is_read_at_its_end() -> None:
    said = encoded(response(candidate(TEXT, reason="STOP")))

    assert [type(event) for event in events(b" ", said[:20], said[20:])] == [Comment, Comment, Chunk, Done]
    assert failed(encoded({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}})).failure_class is FailureClass.OVERLOADED


def test_a_machine_shows_where_it_is() -> None:
    decoder = GeminiDecoder(request())
    assert repr(decoder) == "<GeminiDecoder open>"
    decoder.feed(sse(response(STOP)))
    assert repr(decoder) == "<GeminiDecoder open, complete>"
    decoder.end()
    assert repr(decoder) == "<GeminiDecoder over, complete>"


# ── arrays, and bounds


def test_an_array_is_a_stream_too() -> None:
    said = [response(candidate({"text": 'a]}"\\'})), response(candidate({"text": "b"}, reason="STOP"))]

    got = events(json.dumps(said, indent=2).encode())
    assert [type(event) for event in got] == [Chunk, Chunk, Done]
    assert failed(b'[{"error":{"code":500,"status":"INTERNAL","message":"x"}}]').failure_class is FailureClass.SERVER_ERROR
    assert failed(encoded(said)[:-30]).message == CUT_OFF


def test_an_array_gives_its_elements_and_nothing_after_its_end() -> None:
    parser = ArrayParser()

    assert parser.feed(b'[1,{"a":"\\"]"},') == [b'{"a":"\\"]"}']
    assert parser.feed(b'["x",[2]]] {"b":1}') == [b'["x",[2]]'] and parser.closed
    assert parser.feed(b'{"c":1}') == []


@given(
    st.lists(st.sampled_from(["", 1, "[", "}", '"', "\\", {"a]": ['\\"', "é"]}, [[]], {}]), max_size=5), st.booleans(), st.integers(0, 80)
)
def test_an_arrays_elements_are_the_same_in_every_split(values: list[object], pretty: bool, cut: int) -> None:
    raw = json.dumps([[value] for value in values], indent=1 if pretty else None).encode()
    parser = ArrayParser()

    assert [json.loads(found) for found in parser.feed(raw[:cut]) + parser.feed(raw[cut:])] == [[value] for value in values]
    assert parser.closed


def test_what_is_too_long_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    too_long = "one event of the provider's stream is too long"
    assert failed(b"data: ", b"x" * (MAX_LINE + 1)).message == too_long
    monkeypatch.setattr(array_module, "MAX_ELEMENT", 10)
    monkeypatch.setattr(frames_module, "MAX_WHOLE", 10)
    assert failed(b'[{"a":"', b"x" * 11).message == too_long
    assert failed(b'{"a":', b"x" * 11).message == "the provider's answer is too long"


# ── anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "STOP", "a", "\ud83d", "é"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "args", "name", "id", "finishReason",
             "index", "usageMetadata", "promptTokenCount", "promptFeedback", "blockReason", "error", "code", "message", "status", "details",
             "violations", "quotaId", "logprobsResult", "chosenCandidates", "topCandidates", "token", "logProbability", "responseId"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(JSON, max_size=4), st.sampled_from(["sse", "array", "whole"]), st.integers(0, 400))
def test_no_json_makes_the_decoder_raise(said: list[object], form: str, cut: int) -> None:
    raw = sse(*said) if form == "sse" else encoded(said) if form == "array" else encoded(said[0] if said else {})

    got = events(raw[:cut], raw[cut:])
    assert isinstance(got[-1], Done | Failed)
    assert [event for event in got if not isinstance(event, Comment)] == [event for event in events(raw) if not isinstance(event, Comment)]
    GEMINI.decode(raw, "", request())


@given(st.binary(max_size=300), st.sampled_from([b"", b"data: ", b"[", b"{", b'data: {"candidates":[']))
def test_no_bytes_make_the_decoder_raise(raw: bytes, head: bytes) -> None:
    assert isinstance(events(head + raw)[-1], Done | Failed)
    GEMINI.decode(head + raw, "", request())
    GEMINI.failure(429, {}, head + raw, 0.0)


@given(st.text(alphabet=st.characters() | st.sampled_from('👩‍👧漢字\u200d\\"\ud83d\r\n'), max_size=20), st.integers(0, 500))
def test_texts_and_arguments_survive_every_split(text: str, cut: int) -> None:
    part = {"functionCall": {"name": "f", "args": {"t": text}}}
    raw = sse(response(candidate({"text": text or "x"}, part)), response(STOP))
    got = [event for event in events(raw[:cut], raw[cut:]) if isinstance(event, Chunk)]

    delta = json.loads(got[0].payload)["choices"][0]["delta"]
    assert delta["content"] == (text or "x")
    assert json.loads(delta["tool_calls"][0]["function"]["arguments"]) == {"t": text}
