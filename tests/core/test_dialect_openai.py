"""The dialect `openai`: what goes out, what comes back, and what every oddity of its likes becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, UpstreamRequest, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects.chunks import MAX_WHOLE, ChunkDecoder
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, FailureClass
from n4n.core.sse import SseParser

OPENAI = DIALECTS["openai"]
HEAD = '"id":"c1","object":"chat.completion.chunk","created":7,"model":"m"'


def request(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [{"role": "user"}], **fields}).encode())


def endpoint(**fields: Any) -> Endpoint:
    provider = Provider("p", "openai", "https://example.test/v1", headers=fields.pop("headers", {}))
    return Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), fields.pop("upstream_model", "theirs"), **fields)


def encoded(sent: ChatRequest, **fields: Any) -> UpstreamRequest:
    return OPENAI.encode(sent, endpoint(**fields), "secret")


def chunk(choices: str, more: str = "") -> bytes:
    return f'{{{HEAD},"choices":[{choices}]{"," if more else ""}{more}}}'.encode()


def delta(inner: str, reason: str = "null", index: int = 0) -> str:
    return f'{{"index":{index},"delta":{inner},"finish_reason":{reason}}}'


def text(words: str, reason: str = "null", index: int = 0) -> bytes:
    return chunk(delta(f'{{"content":"{words}"}}', reason, index))


STOP = chunk(delta("{}", '"stop"'))


def sse(*payloads: bytes, end: bytes = b"\n\n") -> bytes:
    return b"".join(b"data: " + payload + end for payload in payloads)


def events(*pieces: bytes, n: int = 1) -> list[Event]:
    decoder = OPENAI.decoder(request(n=n))
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def chunks(*payloads: bytes) -> list[Chunk]:
    """The chunks of a stream that ends well."""
    *found, last = events(sse(*payloads, b"[DONE]"))
    assert last == Done()
    return [event for event in found if isinstance(event, Chunk)]


def failed(*pieces: bytes) -> Failure:
    last = events(*pieces)[-1]
    assert isinstance(last, Failed)
    return last.failure


def one(payload: bytes) -> Chunk:
    return chunks(payload, STOP)[0]


# ── what goes out


def test_the_body_goes_out_as_it_came_but_for_the_model() -> None:
    raw = b'{"temperature": 0.10,"model":"asked","x":{"b" : 1},"messages":[{ }],"models":["a"],"big":123456789012345678901234567890}'
    sent = OPENAI.encode(read_chat(raw), endpoint(), "secret")

    assert sent.url == "https://example.test/v1/chat/completions"
    assert sent.body == b'{"temperature":0.10,"model":"theirs","x":{"b" : 1},"messages":[{ }],"big":123456789012345678901234567890}'
    assert sent.warnings == ()


def test_headers_are_the_gateways_and_the_providers_only() -> None:
    sent = encoded(request(), headers={"x-title": "n4n"})

    assert sent.headers == (
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("authorization", "Bearer secret"),
        ("x-title", "n4n"),
    )
    streamed = OPENAI.encode(request(stream=True), endpoint(), None)
    assert streamed.headers == (("content-type", "application/json"), ("accept", "text/event-stream"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, {"include_usage": True}),
        ({"include_usage": True, "x": 1}, {"include_usage": True, "x": 1}),
        ({"include_usage": False, "x": 1}, {"include_usage": True, "x": 1}),
        ({}, {"include_usage": True}),
    ],
)
def test_usage_is_always_asked_of_a_stream(options: object, expected: object) -> None:
    sent = encoded(request(stream=True, stream_options=options))

    assert json.loads(sent.body)["stream_options"] == expected
    assert "stream_options" not in json.loads(encoded(request()).body)


def test_the_endpoints_body_is_laid_over_the_requests() -> None:
    sent = encoded(
        request(reasoning={"effort": "low", "deep": {"a": 1}}, top_k=4, logit_bias=[[5, 1]]),
        body={"reasoning": {"exclude": True, "deep": {"b": 2}}, "top_k": 5, "logit_bias": {"5": 1}, "fresh": [1]},
    )

    read = json.loads(sent.body)
    assert read["reasoning"] == {"effort": "low", "deep": {"a": 1, "b": 2}, "exclude": True}
    assert (read["top_k"], read["logit_bias"], read["fresh"]) == (5, {"5": 1}, [1])


def test_more_output_than_the_endpoint_writes_is_lowered_and_said() -> None:
    sent = encoded(request(max_tokens=500, max_completion_tokens=100), max_output_tokens=200)

    assert json.loads(sent.body)["max_tokens"] == 200
    assert json.loads(sent.body)["max_completion_tokens"] == 100
    assert sent.warnings == ("max_tokens was lowered to 200, the most that endpoint e1 writes",)
    assert encoded(request(max_tokens=500, max_completion_tokens=None)).warnings == ()
    assert encoded(request(max_tokens=5, max_completion_tokens=None), max_output_tokens=200).warnings == ()
    assert encoded(request(), max_output_tokens=200).warnings == ()


def test_what_the_endpoint_lacks_is_left_out_and_said() -> None:
    sent = encoded(request(seed=1, temperature=0, tools=[{}], tool_choice="auto"), supports=frozenset(("vision",)))

    read = json.loads(sent.body)
    assert "seed" not in read and "tools" not in read and "tool_choice" not in read
    assert read["temperature"] == 0
    assert sent.warnings == (
        "seed was left out: endpoint e1 does not support seed",
        "tool_choice was left out: endpoint e1 does not support tool_choice",
        "tools was left out: endpoint e1 does not support tools",
    )
    image = request(messages=[{"content": [{"type": "image_url"}]}])
    assert encoded(image, supports=frozenset()).warnings == ()


# ── whole answers


def whole(message: str = '{"role":"assistant","content":"a"}', reason: str = '"stop"', more: str = "") -> bytes:
    return f'{{"id":"x","object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":{reason}}}]{more}}}'.encode()


def decoded(body: bytes, content_type: str = "application/json") -> Chunk:
    got = OPENAI.decode(body, content_type, request())
    assert isinstance(got, Chunk), got
    return got


def undecoded(body: bytes, content_type: str = "application/json") -> Failure:
    got = OPENAI.decode(body, content_type, request())
    assert isinstance(got, Failure), got
    return got


def test_a_right_answer_stays_the_bytes_it_was() -> None:
    body = whole(more=',"usage":{"prompt_tokens":5,"completion_tokens":6}, "z": 1.10')

    assert decoded(b"\n\n" + body + b"\n") == Chunk(body, content=True, finishes=True, usage=Usage(5, 6), output_bytes=1)


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ('{"content":"é"}', 2),
        ('{"content":null,"refusal":"no"}', 2),
        ('{"content":null,"reasoning_content":"hm"}', 2),
        ('{"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"custom"}]}', 2),
        ('{"function_call":{"name":"f","arguments":"{}"}}', 2),
        ('{"audio":{"id":"a"}}', 0),
    ],
)
def test_what_a_client_sees_is_output(message: str, size: int) -> None:
    body = whole(message)

    assert decoded(body) == Chunk(body, content=True, finishes=True, output_bytes=size)


def test_an_empty_answer_is_an_answer() -> None:
    assert not decoded(whole('{"content":null}', "null")).content


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"content":"a","reasoning":"b"}', {"content": "a", "reasoning": "b", "reasoning_content": "b"}),
        (
            '{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"a"},"?",{"type":"text"}]}',
            {"content": "a", "reasoning_content": "t"},
        ),
        ('{"content":[{"type":"thinking","thinking":"t"}],"reasoning_content":"r"}', {"content": None, "reasoning_content": "r"}),
        (
            '{"tool_calls":[{"id":"c","function":{"name":"f","arguments":""}},{"id":"d"}, 7]}',
            {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}, {"id": "d"}, 7]},
        ),
    ],
)
def test_a_message_of_another_shape_is_brought_into_the_known_one(message: str, expected: object) -> None:
    got = decoded(whole(message))

    assert json.loads(got.payload)["choices"][0]["message"] == expected
    assert got.content


def test_a_tool_call_without_an_id_gets_one_of_its_own() -> None:
    calls = json.loads(decoded(whole('{"tool_calls":[{"id":"","function":{"arguments":"{}"}},{}]}')).payload)["choices"][0]["message"][
        "tool_calls"
    ]

    assert len({call["id"] for call in calls}) == 2
    assert all(call["id"].startswith("call_") for call in calls)


@pytest.mark.parametrize(("said", "meant"), [("eos", "stop"), ("model_length", "length"), ("tool_use", "tool_calls"), ("odd", "odd")])
def test_a_finish_reason_in_another_word_is_respelled(said: str, meant: str) -> None:
    assert json.loads(decoded(whole(reason=f'"{said}"')).payload)["choices"][0]["finish_reason"] == meant


@pytest.mark.parametrize(
    ("body", "failure_class"),
    [
        (b"", FailureClass.SERVER_ERROR),
        (b" \n", FailureClass.SERVER_ERROR),
        (b"<html>Bad</html>", FailureClass.SERVER_ERROR),
        (b"upstream connect error", FailureClass.SERVER_ERROR),
        (whole()[:-9], FailureClass.SERVER_ERROR),
        (whole() + b"x", FailureClass.SERVER_ERROR),
        (b'{"choices":[{"message":{"content":"\xff"}}]}', FailureClass.SERVER_ERROR),
        (b'{"z":"\xff","choices":[{"message":{"content":"a"}}]}', FailureClass.SERVER_ERROR),
        (b'{"id":"x"}', FailureClass.SERVER_ERROR),
        (b'{"choices":[]}', FailureClass.SERVER_ERROR),
        (b'{"choices":[{}]}', FailureClass.SERVER_ERROR),
        (b'{"choices":"none"}', FailureClass.SERVER_ERROR),
        (b"[1,2]", FailureClass.SERVER_ERROR),
        (b"7", FailureClass.SERVER_ERROR),
        (whole(reason='"error"'), FailureClass.SERVER_ERROR),
        (whole(reason='"insufficient_system_resource"'), FailureClass.OVERLOADED),
        (b'{"error":{"code":429,"message":"slow"}}', FailureClass.RATE_LIMITED),
        (b'{"error":{"code":"rate_limit_exceeded"},"choices":[]}', FailureClass.RATE_LIMITED),
        (b'{"error":{"type":"invalid_request_error"}}', FailureClass.BAD_REQUEST),
        (b'{"object":"error","message":"m","code":40303}', FailureClass.SERVER_ERROR),
        (b'{"detail":"Unauthorized"}', FailureClass.SERVER_ERROR),
    ],
)
def test_a_200_without_a_completion_in_it_is_a_failure(body: bytes, failure_class: FailureClass) -> None:
    assert undecoded(body).failure_class is failure_class


def test_half_a_surrogate_pair_passes_untouched() -> None:
    body = whole('{"content":"a\\ud83d"}')

    assert decoded(body) == Chunk(body, content=True, finishes=True, output_bytes=4)
    assert one(text("a\\ud83d")) == Chunk(text("a\\ud83d"), content=True, output_bytes=4)


def test_a_stream_where_json_was_asked_is_joined() -> None:
    body = sse(
        chunk(delta('{"role":"assistant","content":"","refusal":null}')),
        chunk('{"index":0,"delta":{"content":"a"},"logprobs":{"content":[1],"refusal":null},"finish_reason":null}'),
        chunk('{"index":0,"delta":{"content":"b","reasoning":"r"},"logprobs":{"content":[2]},"finish_reason":null}'),
        chunk(delta('{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}')),
        chunk(delta('{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}')),
        chunk(delta('{"audio":{"id":"x","data":"A"},"x":1}')),
        chunk(delta('{"audio":{"data":"B"},"x":"?"}')),
        chunk(delta("null", '"stop"')),
        chunk("", '"usage":{"prompt_tokens":5,"completion_tokens":6}'),
        b"[DONE]",
    )
    for content_type in ("application/json", "text/event-stream; charset=utf-8"):
        got = decoded(body, content_type)
        read = json.loads(got.payload)
        assert got.usage == Usage(5, 6)
        assert (read["id"], read["object"], read["created"]) == ("c1", "chat.completion", 7)
        assert read["choices"] == [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "ab",
                    "refusal": None,
                    "reasoning": "r",
                    "reasoning_content": "r",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                    "audio": {"id": "x", "data": "AB"},
                    "x": 1,
                },
                "finish_reason": "stop",
                "logprobs": {"content": [1, 2], "refusal": None},
            }
        ]


def test_a_stream_where_json_was_asked_fails_as_a_stream_does() -> None:
    assert undecoded(sse(text("a"))).failure_class is FailureClass.SERVER_ERROR
    assert undecoded(b"oops", "text/event-stream").failure_class is FailureClass.SERVER_ERROR
    assert undecoded(b"", "text/event-stream").message == "the provider's answer was empty"


# ── streams


def test_chunks_pass_as_they_came() -> None:
    role = chunk(delta('{"role":"assistant","content":"","tool_calls":[]}'), '"usage":null, "z": 1.10')

    assert events(sse(role, text("hé"), STOP, b"[DONE]")) == [
        Chunk(role),
        Chunk(text("hé"), content=True, output_bytes=3),
        Chunk(STOP, finishes=True),
        Done(),
    ]


@pytest.mark.parametrize(
    "inner",
    [
        '{"reasoning_content":"ab"}',
        '{"function_call":{"arguments":"ab"}}',
        '{"refusal":"ab"}',
        '{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"ab"}}]}',
    ],
)
def test_every_kind_of_output_is_content(inner: str) -> None:
    assert one(chunk(delta(inner))) == Chunk(chunk(delta(inner)), content=True, output_bytes=2)


@pytest.mark.parametrize("inner", ['{"function_call":{"name":"f"}}', '{"audio":{"data":"x"}}', '{"tool_calls":[{"index":0,"id":"x"}]}'])
def test_output_without_text_is_content_too(inner: str) -> None:
    assert one(chunk(delta(inner))) == Chunk(chunk(delta(inner)), content=True)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_events_are_delivered_once_whatever_ends_them(end: bytes) -> None:
    raw = sse(text("a"), text("b"), STOP, b"[DONE]", end=end)
    expected = events(sse(text("a"), text("b"), STOP, b"[DONE]"))

    assert events(raw) == expected
    for cut in range(len(raw)):
        assert events(raw[:cut], raw[cut:]) == expected


def test_several_whole_events_before_one_blank_line_are_each_delivered() -> None:
    raw = b"data: " + b"\ndata: ".join((text("a"), text("b"), STOP, b"[DONE]", text("c"))) + b"\n\n"

    assert events(raw) == events(sse(text("a"), text("b"), STOP, b"[DONE]"))


def test_a_provider_that_sends_no_blank_lines_is_not_waited_for() -> None:
    decoder = OPENAI.decoder(request())

    assert decoder.feed(sse(text("a"), text("b"), end=b"\n")) == [
        Chunk(text("a"), content=True, output_bytes=1),
        Chunk(text("b"), content=True, output_bytes=1),
    ]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(sse(b"[DONE]", end=b"\n"))[-1] != Done()


def test_one_event_over_several_lines_is_joined_without_line_ends() -> None:
    spread = b"".join(b"data: " + line + b"\n" for line in (b"{", *text("a")[1:].replace(b",", b",\n").split(b"\n"))) + b"\n"

    for pieces in ((spread,), tuple(spread[i : i + 1] for i in range(len(spread)))):
        (first, *_) = events(*pieces, sse(STOP))
        assert isinstance(first, Chunk)
        assert json.loads(first.payload) == json.loads(text("a"))
        assert b"\n" not in first.payload


def test_comments_named_events_and_empty_ones_are_only_signs_of_life() -> None:
    noise = b": ping\n\nevent: ping\ndata: {}\n\nevent: x\ndata: not json\n\ndata:\n\ndata: 7\n\ndata: {}\n\n"

    assert events(noise + sse(STOP)) == [Comment()] * 6 + [Chunk(STOP, finishes=True), Done()]


def test_a_chunk_under_another_event_name_is_a_chunk() -> None:
    assert events(b"event: completion\n" + sse(STOP)) == [Chunk(STOP, finishes=True), Done()]


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ('"usage":{"prompt_tokens":5,"completion_tokens":6}', Usage(5, 6)),
        ('"x_groq":{"id":"r","usage":{"prompt_tokens":5,"completion_tokens":6}}', Usage(5, 6)),
        ('"usage":{"prompt_tokens":5,"completion_tokens":6},"x_groq":{"usage":{"prompt_tokens":1}}', Usage(5, 6)),
        ('"usage":null,"x_groq":{"id":"r"}', None),
        ('"usage":[7]', None),
        ('"usage":{}', None),
    ],
)
def test_usage_is_taken_from_any_chunk(more: str, usage: Usage | None) -> None:
    assert one(chunk(delta("{}"), more)).usage == usage
    assert one(chunk(delta('{"reasoning":"r"}'), more)).usage == usage
    assert one(chunk("", more)) == Chunk(chunk("", more), choices=False, usage=usage)


def test_usage_without_a_list_of_choices_gets_an_empty_one() -> None:
    got = one(b'{"id":"x","usage":{"prompt_tokens":5,"completion_tokens":6}}')

    assert json.loads(got.payload)["choices"] == []
    assert (got.choices, got.usage) == (False, Usage(5, 6))


def test_reasoning_keeps_its_name_and_gets_the_known_one() -> None:
    got = one(chunk(delta('{"reasoning":"r"}'), '"usage":null'))

    assert json.loads(got.payload)["choices"][0]["delta"] == {"reasoning": "r", "reasoning_content": "r"}
    assert (got.content, got.output_bytes) == (True, 1)


@pytest.mark.parametrize(
    ("again", "left"),
    [
        ('{"role":"assistant","content":"b"}', b'{"content":"b"}'),
        ('{"content":"b", "role" : "assistant"}', b'{"content":"b"}'),
        ('{ "role": "assistant" }', b"{}"),
        ('{"role":"assistant","content":"say \\"role\\":\\"assistant\\","}', b'{"content":"say \\"role\\":\\"assistant\\","}'),
        ('{"content":"say \\"role\\":\\"assistant\\","}', b'{"content":"say \\"role\\":\\"assistant\\","}'),
    ],
)
def test_a_role_is_told_once_and_the_rest_stays_the_bytes_it_was(again: str, left: bytes) -> None:
    first = chunk(delta('{"role":"assistant","content":"a"}'))
    second, *_ = [one for one in events(sse(first, chunk(delta(again)), STOP))[1:] if isinstance(one, Chunk)]

    assert second.payload == chunk(delta("@")).replace(b"@", left)


@pytest.mark.parametrize("again", ['{"role":"model","content":"b"}', '{"role":"assistant","content":[{"type":"text","text":"b"}]}'])
def test_a_role_in_another_shape_is_told_once_too(again: str) -> None:
    first = chunk(delta('{"role":"assistant","content":"a"}'))
    second = [one for one in events(sse(first, chunk(delta(again)), STOP)) if isinstance(one, Chunk)][1]

    assert json.loads(second.payload)["choices"][0]["delta"] == {"content": "b"}


def test_roles_of_several_choices_are_each_told_once() -> None:
    both = ",".join(delta('{"role":"assistant","content":"a"}', index=index) for index in (1, 0))
    told = [
        json.loads(one.payload) for one in events(sse(chunk(delta('{"role":"assistant"}')), chunk(both)), n=2) if isinstance(one, Chunk)
    ]

    assert [choice["delta"] for choice in told[1]["choices"]] == [{"role": "assistant", "content": "a"}, {"content": "a"}]


def test_an_empty_finish_reason_is_none_and_a_second_one_too() -> None:
    first, last, again = chunks(chunk(delta('{"content":"a"}', '""')), chunk(delta("{}", '"eos"')), STOP)

    assert [json.loads(got.payload)["choices"][0]["finish_reason"] for got in (first, last, again)] == [None, "stop", None]
    assert [got.finishes for got in (first, last, again)] == [False, True, False]


def test_a_choice_without_a_delta_gets_an_empty_one() -> None:
    got = one(chunk('{"index":0,"content_filter_results":{}}'))

    assert json.loads(got.payload)["choices"][0] == {"index": 0, "content_filter_results": {}, "delta": {}}
    assert not got.content


def test_a_whole_message_in_a_stream_becomes_a_delta() -> None:
    got = one(chunk('{"message":{"content":"a"}}'))

    assert json.loads(got.payload)["choices"][0] == {"index": 0, "delta": {"content": "a"}}


def test_several_choices_are_followed_one_by_one() -> None:
    a, b = chunk(delta("{}", '"stop"', 0)), chunk(delta("{}", '"length"', 1))

    assert events(sse(text("x", index=1), a, b, b"[DONE]"), n=2)[1:] == [
        Chunk(a, finishes=True, unfinished=True),
        Chunk(b, finishes=True),
        Done(),
    ]
    assert failed(sse(text("x", index=1), a, b"[DONE]")).failure_class is FailureClass.SERVER_ERROR
    both = chunk(delta("{}", '"stop"', 0) + "," + delta("{}", '"stop"', 1))
    assert events(sse(both), n=2) == [Chunk(both, finishes=True), Done()]


def calls_of(*fragments: str) -> list[dict[str, Any]]:
    """The calls that a client has after gluing the fragments by index."""
    glued: dict[int, dict[str, str]] = {}
    for got in chunks(*(chunk(delta(f'{{"tool_calls":[{inner}]}}')) for inner in fragments), STOP):
        for call in json.loads(got.payload)["choices"][0]["delta"].get("tool_calls", []):
            mine = glued.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            mine["id"] += call.get("id") or ""
            for name in ("name", "arguments"):
                mine[name] += call.get("function", {}).get(name) or ""
    return [{"index": index, **call} for index, call in sorted(glued.items())]


def opening(index: object, name: str, arguments: str = "", **more: object) -> str:
    return json.dumps({"index": index, "id": name, "type": "function", "function": {"name": f"f_{name}", "arguments": arguments}, **more})


def going_on(index: object, arguments: str) -> str:
    return json.dumps({"index": index, "function": {"arguments": arguments}})


TWO = [{"index": 0, "id": "a", "name": "f_a", "arguments": "{}"}, {"index": 1, "id": "b", "name": "f_b", "arguments": "[]"}]


@pytest.mark.parametrize(
    "fragments",
    [
        (opening(0, "a"), opening(1, "b"), going_on(0, "{"), going_on(1, "["), going_on(0, "}"), going_on(1, "]")),
        (opening(0, "a") + "," + opening(1, "b"), going_on(0, "{}") + "," + going_on(1, "[]")),
        (opening(3, "a"), opening(7, "b"), going_on(3, "{}"), going_on(7, "[]")),
        (opening(0, "a", "{}"), opening(0, "b"), going_on(0, "[]")),
        (opening(0, "a", "{"), opening(0, "a", "}"), opening(1, "b", "["), opening(1, "b", "]")),
        (opening(None, "a"), going_on(None, "{}"), opening(None, "b"), going_on(None, "[]")),
        (opening(0, "a", "{}"), opening(0, "a") + "," + opening(1, "b", "[]")),
    ],
)  # fmt: skip
def test_tool_calls_have_dense_indexes_and_are_opened_once(fragments: tuple[str, ...]) -> None:
    assert calls_of(*fragments) == TWO


def test_a_call_without_an_id_gets_one() -> None:
    assert calls_of(going_on(0, "{}"), going_on(0, " "), going_on(1, "[]")) == [
        {"index": 0, "id": "call_0", "name": "", "arguments": "{} "},
        {"index": 1, "id": "call_1", "name": "", "arguments": "[]"},
    ]


def test_a_repeated_opening_of_a_custom_call_loses_its_id_only() -> None:
    again = chunk(delta('{"tool_calls":[{"index":0,"id":"a"}]}'))

    assert json.loads(chunks(again, again, STOP)[1].payload)["choices"][0]["delta"]["tool_calls"] == [{"index": 0}]


def test_tool_calls_of_several_choices_are_counted_apart() -> None:
    both = chunk(",".join(delta(f'{{"tool_calls":[{{"index":0,"id":"{name}"}}]}}', index=index) for index, name in enumerate("ab")))

    (first, *_) = events(sse(both))
    assert first == Chunk(both, content=True)


@pytest.mark.parametrize("odd", ['"?"', "[7]"])
def test_tool_calls_that_are_none_are_left_alone(odd: str) -> None:
    payload = chunk(delta(f'{{"tool_calls":{odd}}}'))

    assert one(payload) == Chunk(payload, content=True)


@pytest.mark.parametrize(
    ("tail", "failure_class"),
    [
        (b"", FailureClass.SERVER_ERROR),
        (sse(b"[DONE]"), FailureClass.SERVER_ERROR),
        (sse(b'{"choices":['), FailureClass.SERVER_ERROR),
        (sse(b'{"choices":[],"a":"\xff"}'), FailureClass.SERVER_ERROR),
        (sse(b'{"choices":[],"a":NaN}'), FailureClass.SERVER_ERROR),
        (sse(b"oops\ndata: oops"), FailureClass.SERVER_ERROR),
        (sse(b'{"error":{"message":"m","type":"server_error","code":null}}'), FailureClass.SERVER_ERROR),
        (sse(b'{"error":{"code":"insufficient_quota"}}', b"[DONE]"), FailureClass.QUOTA_EXHAUSTED),
        (b"event: error\n" + sse(b'{"error":{"type":"overloaded_error"}}'), FailureClass.OVERLOADED),
        (sse(b'{"error":"used all available credits","code":"x"}'), FailureClass.QUOTA_EXHAUSTED),
        (sse(b'{"object":"error","message":"m","code":400}'), FailureClass.BAD_REQUEST),
        (sse(chunk(delta("{}"), '"x_groq":{"error":"over capacity"}')), FailureClass.SERVER_ERROR),
        (sse(chunk(delta("{}", '"error"'), '"error":{"code":502,"message":"m"}')), FailureClass.SERVER_ERROR),
        (sse(chunk(delta("{}", '"error"'))), FailureClass.SERVER_ERROR),
        (sse(chunk(delta("{}", '"insufficient_system_resource"'))), FailureClass.OVERLOADED),
        (sse(b'{"choices":[' + b"[" * 9000 + b"]" * 9000 + b"]}"), FailureClass.SERVER_ERROR),
    ],
)
def test_a_stream_that_breaks_is_a_failure_and_nothing_follows_it(tail: bytes, failure_class: FailureClass) -> None:
    first, last = events(sse(text("a")), tail, sse(text("b"), STOP) if tail else b"")

    assert first == Chunk(text("a"), content=True, output_bytes=1)
    assert isinstance(last, Failed)
    assert last.failure.failure_class is failure_class


def test_a_line_longer_than_allowed_is_a_failure() -> None:
    decoder = ChunkDecoder(parser=SseParser(max_line=100))

    (only,) = decoder.feed(b"data: " + b"x" * 101)
    assert isinstance(only, Failed)
    assert (decoder.feed(sse(STOP)), decoder.end()) == ([], [])
    assert repr(decoder) == "<ChunkDecoder over, 0 of 0 choices finished>"


def test_a_decoder_shows_where_it_is() -> None:
    decoder = ChunkDecoder()
    decoder.feed(sse(text("a")))

    assert repr(decoder) == "<ChunkDecoder open, 0 of 1 choices finished>"


def test_a_finish_without_the_end_mark_is_fine_and_what_follows_the_mark_is_not_read() -> None:
    assert events(sse(STOP)) == [Chunk(STOP, finishes=True), Done()]
    assert events(sse(STOP, b"[DONE]", text("x"))) == [Chunk(STOP, finishes=True), Done()]


# ── whole answers where a stream was asked


@pytest.mark.parametrize("lead", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_a_whole_completion_where_a_stream_was_asked_becomes_chunks(lead: bytes) -> None:
    message = '{"role":"assistant","content":"a","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}, 7]}'
    body = whole(message, more=',"usage":{"prompt_tokens":5,"completion_tokens":6}')
    got = events(lead, body[:30], body[30:])

    first, last = [event for event in got if isinstance(event, Chunk)]
    assert got[-1] == Done()
    assert (first.content, first.finishes, last.finishes, last.usage) == (True, False, True, Usage(5, 6))
    assert json.loads(first.payload)["object"] == "chat.completion.chunk"
    assert json.loads(first.payload)["choices"][0]["delta"]["content"] == "a"


@pytest.mark.parametrize(
    ("body", "failure_class"),
    [
        (b'{"error":{"code":"rate_limit_exceeded"}}', FailureClass.RATE_LIMITED),
        (b"<html>", FailureClass.SERVER_ERROR),
        (whole()[:-1], FailureClass.SERVER_ERROR),
        (b"", FailureClass.SERVER_ERROR),
        (b"\n\n", FailureClass.SERVER_ERROR),
        (b"plain words", FailureClass.SERVER_ERROR),
    ],
)
def test_anything_else_where_a_stream_was_asked_is_a_failure(body: bytes, failure_class: FailureClass) -> None:
    assert failed(body).failure_class is failure_class


def test_a_whole_body_is_bounded() -> None:
    decoder = OPENAI.decoder(request())
    assert decoder.feed(b"{") == [Comment()]

    (only,) = decoder.feed(b" " * MAX_WHOLE)
    assert isinstance(only, Failed)


# ── errors


def failure(status: int, body: object, headers: Mapping[str, str] | None = None) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return OPENAI.failure(status, headers or {}, raw, 1_772_445_600.0)


def error(message: str = "m", code: object = None, kind: object = None, **more: object) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "code": code, "param": None, **more}}


C = FailureClass


@pytest.mark.parametrize(
    ("status", "body", "headers", "expected"),
    [
        # OpenAI
        (400, error(kind="invalid_request_error"), {}, C.BAD_REQUEST),
        (400, error(code="context_length_exceeded"), {}, C.CONTEXT_LENGTH),
        (400, error(code="content_policy_violation"), {}, C.CONTENT_POLICY),
        (400, error("Your request was rejected as a result of our safety system."), {}, C.CONTENT_POLICY),
        (400, error(code="bio_policy"), {}, C.CONTENT_POLICY),
        (400, error(code="some_new_policy"), {}, C.CONTENT_POLICY),
        (400, error("string too long, maximum context length", code="string_above_max_length"), {}, C.BAD_REQUEST),
        (400, error(code="unsupported_parameter"), {}, C.BAD_REQUEST),
        (400, error(code="invalid_encrypted_content"), {}, C.BAD_REQUEST),
        (401, error(code="invalid_api_key", kind="invalid_request_error"), {}, C.AUTH),
        (401, error("IP not authorized", kind="invalid_request_error"), {}, C.AUTH),
        (403, error(code="unsupported_country_region_territory"), {}, C.AUTH),
        (404, error(code="model_not_found"), {}, C.MODEL_NOT_FOUND),
        (408, error(), {}, C.TIMEOUT),
        (409, error(), {}, C.SERVER_ERROR),
        (413, b"<html>413</html>", {}, C.BAD_REQUEST),
        (429, error(code="rate_limit_exceeded", kind="tokens"), {}, C.RATE_LIMITED),
        (429, error("Request too large: Limit 10,000, Requested 12,000.", code="rate_limit_exceeded"), {}, C.CONTEXT_LENGTH),
        (429, error("Rate limit: Limit 10000, Used 9000, Requested 2000.", code="rate_limit_exceeded"), {}, C.RATE_LIMITED),
        (429, error(code="slow_down"), {}, C.RATE_LIMITED),
        (429, error(kind="insufficient_quota"), {}, C.QUOTA_EXHAUSTED),
        (429, error(code="credit_balance_exhausted", kind="insufficient_quota"), {}, C.QUOTA_EXHAUSTED),
        (429, error(code="project_spend_limit_exceeded"), {}, C.QUOTA_EXHAUSTED),
        (429, error(code="organization_usage_limit_exceeded"), {}, C.QUOTA_EXHAUSTED),
        (429, error("check your plan and billing details"), {}, C.RATE_LIMITED),
        (429, error(), {"retry-after": "86400"}, C.QUOTA_EXHAUSTED),
        (500, error(kind="server_error"), {}, C.SERVER_ERROR),
        (500, error(code="429"), {}, C.RATE_LIMITED),
        (502, error(code=429), {}, C.RATE_LIMITED),
        (503, error(kind="service_unavailable_error"), {}, C.OVERLOADED),
        (503, error(code="server_is_overloaded"), {}, C.OVERLOADED),
        # Azure's spellings, which proxies repeat
        (400, error(code="x", innererror={"code": "ResponsibleAIPolicyViolation"}), {}, C.CONTENT_POLICY),
        (400, error(code="content_filter", innererror={"code": "x"}), {}, C.CONTENT_POLICY),
        (401, {"statusCode": 401, "message": "denied"}, {}, C.AUTH),
        (429, error("experiencing high demand"), {}, C.OVERLOADED),
        # Mistral
        (422, {"detail": [{"loc": ["body", "x"], "msg": "Extra inputs are not permitted"}, "more"]}, {}, C.BAD_REQUEST),
        (429, {"object": "error", "message": "m", "type": "rate_limited", "code": "1300"}, {}, C.RATE_LIMITED),
        (429, {"object": "error", "message": "Service tier capacity exceeded for this model."}, {}, C.OVERLOADED),
        (402, {"detail": "pay"}, {}, C.QUOTA_EXHAUSTED),
        (401, {"detail": "Unauthorized"}, {}, C.AUTH),
        # Together
        (403, error("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193."), {}, C.CONTEXT_LENGTH),
        (403, error("the input and max_tokens exceed the model's context length"), {}, C.CONTEXT_LENGTH),
        (429, error(kind="dynamic_token_limited"), {}, C.RATE_LIMITED),
        (503, b"<html>engine overloaded</html>", {}, C.OVERLOADED),
        (524, b"<html></html>", {}, C.TIMEOUT),
        (520, b"", {}, C.SERVER_ERROR),
        (529, b"", {}, C.OVERLOADED),
        # DeepInfra
        (403, {"detail": "inference prohibited: balance is too low"}, {}, C.QUOTA_EXHAUSTED),
        (429, {"error": {"message": "Model busy, retry later"}}, {}, C.OVERLOADED),
        (429, {"detail": "too many concurrent requests"}, {}, C.RATE_LIMITED),
        # Groq
        (400, error(code="json_validate_failed"), {}, C.SERVER_ERROR),
        (400, error(code="tool_use_failed"), {}, C.SERVER_ERROR),
        (413, error(kind="tokens", code="rate_limit_exceeded"), {}, C.CONTEXT_LENGTH),
        (413, error("Request too large for model on tokens per minute"), {}, C.CONTEXT_LENGTH),
        (429, error(kind="requests", code="rate_limit_exceeded"), {"retry-after": "7200"}, C.QUOTA_EXHAUSTED),
        (429, error(kind="requests"), {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "3h"}, C.QUOTA_EXHAUSTED),
        (429, error(kind="requests", code="rate_limit_exceeded"), {"retry-after": "7"}, C.RATE_LIMITED),
        (498, error(code="capacity_exceeded"), {}, C.OVERLOADED),
        # Fireworks
        (412, {"fault": {"faultstring": "account suspended"}}, {}, C.AUTH),
        (404, b"<html>", {}, C.MODEL_NOT_FOUND),
        # OpenRouter
        (402, error(code=402, metadata={"limit_source": "openrouter_in_flight_budget"}), {"retry-after": "3"}, C.RATE_LIMITED),
        (402, error("Insufficient credits", code=402), {}, C.QUOTA_EXHAUSTED),
        (403, error(code=403, metadata={"flagged_input": "x"}), {}, C.CONTENT_POLICY),
        (403, error(code=403, metadata={"resets_at": "x"}), {}, C.QUOTA_EXHAUSTED),
        (502, error("Provider returned error", code=502), {}, C.SERVER_ERROR),
        (503, error("No allowed providers are available for the selected model.", code=503), {}, C.MODEL_NOT_FOUND),
        (503, error("No allowed providers", code=503, metadata={"error_type": "provider_overloaded"}), {}, C.OVERLOADED),
        # vLLM
        (400, {"message": "maximum context length is 8", "type": "BadRequestError", "code": 400}, {}, C.CONTEXT_LENGTH),
        (400, error("max_tokens must be at least 1, got -12."), {}, C.CONTEXT_LENGTH),
        (404, {"object": "error", "message": "m", "type": "NotFoundError", "code": 404}, {}, C.MODEL_NOT_FOUND),
        # DeepSeek, xAI
        (402, error("Insufficient Balance"), {}, C.QUOTA_EXHAUSTED),
        (429, {"code": "x", "error": "Your team has used all available credits"}, {}, C.QUOTA_EXHAUSTED),
        (403, {"code": "personal-team-blocked:spending-limit", "error": "m"}, {}, C.QUOTA_EXHAUSTED),
        (403, {"code": "x", "error": "Content violates usage guidelines."}, {}, C.CONTENT_POLICY),
        (503, {"code": "x", "error": "Grammar is too complex"}, {}, C.BAD_REQUEST),
        (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***1."}, {}, C.AUTH),
        # any
        (302, b"", {}, C.SERVER_ERROR),
        (418, [error()], {}, C.BAD_REQUEST),
        (500, b"plain: maximum context length", {}, C.CONTEXT_LENGTH),
        (500, {"choices": []}, {}, C.SERVER_ERROR),
        (500, {"x": 1}, {}, C.SERVER_ERROR),
        (500, 7, {}, C.SERVER_ERROR),
        (400, {"error": {"message": ["odd", {"msg": 7}], "code": ["odd"], "innererror": {"code": None}}}, {}, C.BAD_REQUEST),
    ],
)  # fmt: skip
def test_what_an_error_means(status: int, body: object, headers: dict[str, str], expected: FailureClass) -> None:
    got = failure(status, body, headers)

    assert got.failure_class is expected
    assert got.status == status


def test_an_exhausted_bucket_is_a_hint_only_where_waiting_helps() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "45s"}

    assert failure(429, error(), headers).retry_after_s == 45
    assert failure(503, b"", headers).retry_after_s == 45
    assert failure(500, error(), headers).retry_after_s is None
    assert failure(500, error(), {**headers, "retry-after": "3"}).retry_after_s == 3


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The field 'x' is wrong.", "The field 'x' is wrong."),
        ("Wrong. See https://platform.example.com/docs?key=1 for more", "Wrong. See […] for more"),
        ("Wrong. See docs.example.ai/errors for user_message", "Wrong. See […] for user_message"),
        ("Key sk-proj-abc***xyz is bad, Bearer abcdef too", "Key […] is bad, […] too"),
        ("Limit in organization org-AbCdEf123 on m", "Limit in the organization on m"),
        ("Limit for project Acme on m", "Limit for the project on m"),
        ("<p>Wrong\n\n<b>request</b></p>", "[…]Wrong […]request[…][…]"),
        ("Wrong (request req_0123456789abcdef)", "Wrong (request […])"),
        ("https://only.example.com", "the provider refused the request as invalid"),
        ("", "the provider refused the request as invalid"),
        ("x " * 400, ("x " * 400)[:499] + "…"),
    ],
)
def test_a_message_about_the_request_is_shown_without_what_is_private(said: str, shown: str) -> None:
    assert failure(400, error(said)).message == shown


@pytest.mark.parametrize("status", [401, 402, 404, 408, 429, 500, 503])
def test_a_message_about_anything_else_is_ours(status: int) -> None:
    got = failure(status, error("secret words of the provider", code="x", kind="y"))

    assert "secret" not in got.message
    assert got.param is None


def test_the_field_at_fault_and_the_code_are_kept_where_they_are_about_the_request() -> None:
    got = failure(400, {"error": {"message": "m", "param": "messages[0]", "code": "invalid_value"}})

    assert (got.param, got.code) == ("messages[0]", "invalid_value")
    assert failure(400, {"error": "m", "code": "see https://x.example.com now"}).code == "see […] now"


@given(st.integers(300, 599), st.binary(max_size=80))
def test_no_answer_does_worse_than_be_a_failure(status: int, raw: bytes) -> None:
    for body in (raw, b'{"error":' + raw + b"}", b'{"error":{"message":"' + raw + b'"}}'):
        assert failure(status, body).message
        assert OPENAI.decode(body, "", request())
        assert isinstance(events(body)[-1], Failed)
        assert events(sse(body))[-1]


@given(st.binary(max_size=12), st.integers(0, 500), st.integers(0, 40), st.integers(1, 99))
def test_no_damage_to_a_stream_does_worse_than_fail_it(patch: bytes, at: int, lost: int, size: int) -> None:
    raw = sse(text("a"), chunk(delta('{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{}"}}]}')), STOP, b"[DONE]")
    raw = raw[:at] + patch + raw[at + lost :]

    got = events(*(raw[i : i + size] for i in range(0, len(raw), size)))
    assert isinstance(got[-1], Done | Failed)
    assert all(isinstance(event, Chunk | Comment) for event in got[:-1])
    for event in got:
        if isinstance(event, Chunk):
            assert isinstance(json.loads(event.payload)["choices"], list)
            assert b"\n" not in event.payload


@pytest.mark.parametrize("broken", [0, 1, None])
def test_an_answer_of_several_choices_is_read_as_one_of_each_kind(broken: int | None) -> None:
    choices = [{"index": place, "message": {"role": "assistant", "content": f"t{place}"}, "finish_reason": "stop"} for place in range(2)]
    if broken is not None:
        choices[broken]["finish_reason"] = "eos"
    answer = DIALECTS["openai"].decode(json.dumps({"id": "x", "choices": choices}).encode(), "application/json", ChatRequest({}, "m", n=2))
    assert isinstance(answer, Chunk)
    assert answer.output_bytes == 4 and answer.content
    assert [choice["finish_reason"] for choice in json.loads(answer.payload)["choices"]] == ["stop", "stop"]
