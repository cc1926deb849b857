"""The skin of /v1/responses, its answers: made of a chat or passed on, whole or streamed, and read by OpenAI's own types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from n4n.core.chat import ChatRequest, Chunk, Done, Usage
from n4n.core.dialects.completion import joined
from n4n.core.dialects.table import DIALECTS
from n4n.core.skins.openai_responses import OpenAIResponses
from n4n.core.skins.responses import read_responses
from n4n.core.skins.responses_answer import read, whole
from n4n.core.skins.responses_stream import ResponsesStream
from n4n.core.skins.responses_turns import unsealed
from tests.support.vectors import Vector, events_of, named, pieces_of, vectors_of

NOTE = b'{"cost_usd":1.50}'
USAGE = Usage(9, 5, 4, 2, 3)
COUNTS = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 14,
}
HEAD = {"id": "chatcmpl-abc", "object": "chat.completion.chunk", "created": 7, "model": "gpt"}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "sig", "format": "anthropic-claude-v1", "index": 0}
PATCH = {"type": "custom", "name": "patch"}
CRM = {"type": "namespace", "name": "crm", "description": "", "tools": [{"type": "function", "name": "find", "parameters": {}}]}


def request(**fields: object) -> ChatRequest:
    return read_responses(json.dumps({"model": "asked", "input": "hi", **fields}).encode())


def chunk(delta: Mapping[str, object], reason: str | None = None, **fields: object) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **fields}
    return Chunk(json.dumps({**HEAD, "choices": [choice]}).encode(), finishes=reason is not None)


def usage(**fields: object) -> Chunk:
    return Chunk(json.dumps({**HEAD, "choices": [], **fields}).encode(), choices=False, usage=USAGE)


def call(index: int, arguments: str = "", **opening: Any) -> dict[str, Any]:
    function = {"name": opening.pop("name")} if "name" in opening else {}
    return {"tool_calls": [{"index": index, **opening, "function": {**function, "arguments": arguments}}]}


def parsed(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    """The events of frames, each checked against the types of OpenAI's own client."""
    events: list[dict[str, Any]] = []
    for piece in frames:
        name, data, *rest = piece.decode().split("\n")
        assert rest == ["", ""]
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event, strict=True)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def streamed(*chunks: Chunk, asked: ChatRequest | None = None, truth: Usage | None = USAGE) -> list[dict[str, Any]]:
    stream = ResponsesStream(asked or request(stream=True))
    frames = [piece for one in chunks for piece in stream.receive(one)]
    return parsed(frames + list(stream.finish(truth, NOTE)))


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(event["type"]).removeprefix("response.") for event in events]


def body(message: Mapping[str, object], reason: str = "stop", asked: ChatRequest | None = None, **fields: object) -> dict[str, Any]:
    completion = {**HEAD, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reason, **fields}]}
    made = json.loads(whole(Chunk(json.dumps(completion).encode()), asked or request(), USAGE, NOTE))
    Response.model_validate(made)
    assert made.pop("n4n") == {"cost_usd": 1.5}
    answer: dict[str, Any] = made
    return answer


# ── whole answers


def test_a_completion_is_a_response_that_repeats_its_request() -> None:
    asked = request(
        instructions="be brief", temperature=0.5, tools=None, metadata={"a": "b"}, store=True, text={"verbosity": "low"}, custom=1
    )
    got = body({"role": "assistant", "content": "yes"}, asked=asked)

    assert got == {
        "id": "resp_abc",
        "object": "response",
        "created_at": 7,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt",
        "output": [
            {
                "id": "msg_abc_0",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}],
            }
        ],
        "usage": COUNTS,
        "instructions": "be brief",
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "auto",
        "temperature": 0.5,
        "text": {"verbosity": "low"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": None,
        "top_p": None,
        "truncation": "disabled",
        "user": None,
        "background": False,
        "previous_response_id": None,
        "store": False,
    }


def test_everything_a_message_says_is_an_item() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    logprob = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    message = {
        "content": "a",
        "refusal": "no",
        "reasoning_content": "hm",
        "reasoning_details": [SIGNED],
        "annotations": [cited, {"type": "file"}, {"type": "url_citation"}],
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
            {"type": "function", "function": {"name": "patch", "arguments": '{"input":"+x"}'}},
            {"id": "call_3", "type": "function", "function": {"name": "crm__find", "arguments": ""}},
            {"id": "call_4"},
        ],
    }
    got = body(message, "tool_calls", request(tools=[PATCH, CRM]), logprobs={"content": [logprob]})["output"]

    thought, said, look, patch, find, empty = got
    assert thought["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert unsealed(thought["encrypted_content"]) == [SIGNED]
    assert said["content"] == [
        {
            "type": "output_text",
            "text": "a",
            "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}],
            "logprobs": [logprob],
        },
        {"type": "refusal", "refusal": "no"},
    ]
    assert (look["type"], look["call_id"], look["name"], look["arguments"]) == ("function_call", "call_1", "look", '{"a":1}')
    assert (patch["type"], patch["call_id"], patch["name"], patch["input"]) == ("custom_tool_call", "call_abc_3", "patch", "+x")
    assert (find["name"], find["namespace"], find["arguments"]) == ("find", "crm", "{}")
    assert (empty["name"], empty["arguments"]) == ("", "{}")
    assert [item["id"] for item in got] == ["rs_abc_0", "msg_abc_1", "fc_abc_2", "ctc_abc_3", "fc_abc_4", "fc_abc_5"]


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_broke_off_is_incomplete(reason: str, why: str) -> None:
    got = body({"content": "a"}, reason)

    assert (got["status"], got["incomplete_details"]) == ("incomplete", {"reason": why})
    assert got["output"][0]["status"] == "incomplete"
    assert body({}, reason)["output"] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input":"+x"}', "+x"), ('{"other":1}', '{"other":1}'), ("+x", "+x"), ('{"input":5}', '{"input":5}'), ("[]", "[]")],
)
def test_the_input_of_a_custom_tool_is_what_its_function_was_given(arguments: str, text: str) -> None:
    message = {"tool_calls": [{"id": "c", "function": {"name": "patch", "arguments": arguments}}]}

    assert body(message, asked=request(tools=[PATCH]))["output"][0]["input"] == text


def test_an_answer_without_an_id_gets_one_of_its_own() -> None:
    def name(asked: ChatRequest, payload: bytes) -> str:
        return str(json.loads(whole(Chunk(payload), asked, None, NOTE))["id"])

    one, longer = request(), request(input="hi there")
    names = {
        name(one, b'{"choices":[]}'),
        name(longer, b'{"choices":[]}'),
        name(one, b'{"choices":[],"x":1}'),
        name(one, b'{"id":"odd id"}'),
    }
    assert len(names) == 4
    assert all(found.startswith("resp_") and len(found) == 29 for found in names)
    assert json.loads(whole(Chunk(b'{"choices":[]}'), one, None, NOTE))["usage"] is None


def test_a_providers_own_response_passes_with_the_block() -> None:
    payload = b'{"id":"resp_1","x":1.50,"usage":{"input_tokens":9,"more":1}}'
    native = Chunk(payload, shape="openai_responses", usage=USAGE)

    assert whole(native, request(), USAGE, NOTE) == payload[:-1] + b',"n4n":' + NOTE + b"}"
    assert whole(native, request(), None, NOTE) == payload[:-1] + b',"n4n":' + NOTE + b"}"
    corrected = json.loads(whole(native, request(), Usage(1, 2), NOTE))["usage"]
    assert (corrected["input_tokens"], corrected["output_tokens"], corrected["more"]) == (1, 2, 1)
    assert json.loads(whole(Chunk(b'{"usage":5}', shape="openai_responses"), request(), USAGE, NOTE))["usage"] == COUNTS


def test_a_payload_that_nobody_expects_reads_as_nothing() -> None:
    assert read(b"[]").choices == read(b'{"choices":5}').choices == []
    assert read(b'{"choices":[{"message":{"content":"\\ud83d"}}]}').first.message is not None
    assert read(b'{"choices":[{"index":1}]}').first.message is None


# ── streams


def test_a_text_is_told_event_by_event() -> None:
    logprob = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    got = streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "a"}, logprobs={"content": [logprob]}),
        chunk({"content": "é"}, logprobs={"content": None}),
        chunk({"annotations": [cited]}),
        chunk({}, "stop"),
        usage(),
    )

    assert kinds(got) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.annotation.added", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    created, last = got[0]["response"], got[-1]["response"]
    assert (created["status"], created["output"], created["usage"], created["model"]) == ("in_progress", [], None, "gpt")
    assert [event["delta"] for event in got if "delta" in event] == ["a", "é"]
    (said,) = last["output"]
    assert said["content"][0]["text"] == "aé" and said["content"][0]["logprobs"] == [logprob]
    assert said["content"][0]["annotations"][0]["url"] == "u"
    assert (last["status"], last["usage"], last["n4n"]) == ("completed", COUNTS, {"cost_usd": 1.5})
    assert said == got[-2]["item"]
    assert {event["item_id"] for event in got if "item_id" in event} == {"msg_abc_0"}


def test_reasoning_text_and_calls_are_items_in_their_order() -> None:
    got = streamed(
        chunk({"reasoning_content": "h"}),
        chunk({"reasoning_content": "m"}),
        chunk({"reasoning_details": [SIGNED]}),
        chunk({"content": "a"}),
        chunk({"refusal": "no"}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "d", "index": 2}]}),
        chunk(call(0, id="call_1", name="look")),
        chunk(call(1, '{"b"', id="call_2", name="crm__find")),
        chunk(call(0, '{"a":1}')),
        chunk(call(1, ":2}")),
        chunk(call(2, id="call_3", name="patch")),
        chunk(call(2, '{"input":"+x"}')),
        chunk({"content": "z"}),
        chunk({}, "tool_calls"),
        asked=request(stream=True, tools=[PATCH, CRM]),
    )

    output = got[-1]["response"]["output"]
    assert [item["type"] for item in output] == [
        "reasoning", "message", "reasoning", "function_call", "function_call", "custom_tool_call", "message",
    ]  # fmt: skip
    assert output[0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert unsealed(output[0]["encrypted_content"]) == [SIGNED]
    assert [part["type"] for part in output[1]["content"]] == ["output_text", "refusal"]
    assert output[2]["summary"] == [] and unsealed(output[2]["encrypted_content"])[0]["data"] == "d"
    assert (output[3]["arguments"], output[4]["arguments"], output[5]["input"]) == ('{"a":1}', '{"b":2}', "+x")
    assert (output[4]["name"], output[4]["namespace"]) == ("find", "crm")
    done = [event for event in got if event["type"] == "response.output_item.done"]
    assert sorted(event["output_index"] for event in done) == list(range(7))
    assert all(event["item"] == output[event["output_index"]] for event in done)
    assert "reasoning_summary_text.done" in kinds(got) and "refusal.done" in kinds(got)
    inputs = [event for event in got if "custom_tool_call_input" in str(event["type"])]
    assert [event.get("delta", event.get("input")) for event in inputs] == ["+x", "+x"]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    got = streamed(chunk(call(0, id="c", name="f")), chunk({"tool_calls": [{"index": 0}]}), chunk({}, "tool_calls"))

    assert got[-1]["response"]["output"][0]["arguments"] == "{}"
    assert [event["delta"] for event in got if "delta" in event] == ["{}"]


def test_sealed_reasoning_that_comes_in_fragments_is_put_together() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "h", "index": 0, "format": "f"},
        {"type": "reasoning.text", "text": "m", "index": 0, "id": None},
        {"type": "reasoning.text", "signature": "s", "index": 0, "id": "x"},
        {"type": "reasoning.text", "text": "next", "index": 0},
        {"type": "reasoning.text", "text": "other", "index": 1},
        {"type": "reasoning.encrypted", "data": "a", "index": 1},
        {"type": "reasoning.encrypted", "data": "b", "index": 1},
    ]
    got = streamed(*(chunk({"reasoning_details": [piece]}) for piece in pieces), chunk({}, "stop"))

    assert unsealed(got[-1]["response"]["output"][0]["encrypted_content"]) == [
        {"type": "reasoning.text", "text": "hm", "index": 0, "format": "f", "id": "x", "signature": "s"},
        pieces[3],
        *pieces[4:],
    ]


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ([chunk({"content": "a"}), chunk({}, "length")], "incomplete"),
        ([chunk({"content": "a"}), chunk(call(0, '{"a', id="c", name="f")), chunk({}, "length")], "incomplete"),
        ([chunk(call(0, "{}", id="c", name="f")), chunk({"content": "a"}), chunk({}, "length")], "incomplete"),
    ],
)
def test_the_item_in_which_an_answer_broke_off_is_incomplete(chunks: list[Chunk], status: str) -> None:
    got = streamed(*chunks)

    assert got[-1]["type"] == "response.incomplete"
    assert got[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    *before, last = got[-1]["response"]["output"]
    assert last["status"] == status
    assert all(item["status"] == "completed" for item in before)


def test_the_last_event_waits_for_the_usage() -> None:
    stream = ResponsesStream(request(stream=True))
    assert not stream.waiting and not stream.complete

    stream.receive(chunk({"content": "a"}))
    stream.receive(chunk({}, "stop"))
    assert stream.waiting and not stream.complete
    assert stream.receive(chunk({}, "stop")) == ()
    assert stream.receive(usage()) == ()
    assert stream.complete
    (last,) = stream.finish(None, NOTE)
    assert b'"usage":null' in last
    assert stream.receive(chunk({"content": "late"})) == stream.finish(USAGE, NOTE)[1:] == ()


def test_a_stream_that_never_finished_has_no_last_event() -> None:
    assert ResponsesStream(request()).finish(USAGE, NOTE) == ()
    stream = ResponsesStream(request())
    stream.receive(chunk({"content": "a"}))
    assert stream.finish(USAGE, NOTE) == ()


def test_usage_on_the_finish_chunk_completes_it() -> None:
    stream = ResponsesStream(request())
    stream.receive(Chunk(chunk({}, "stop").payload, finishes=True, usage=USAGE))

    assert stream.complete


ERROR = {"error": {"message": "m", "type": "server_error", "param": None, "code": "stream_interrupted", "n4n": {"request_id": "r"}}}


def failed(stream: ResponsesStream) -> dict[str, Any]:
    event = json.loads(stream.error(ERROR).decode().split("data: ")[1])
    told = {**event["response"], "error": {**event["response"]["error"], "code": "server_error"}}  # the type lists OpenAI's codes alone
    EVENT.validate_python({**event, "response": told})
    assert event["type"] == "response.failed" and event["error"] == ERROR["error"]
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == ERROR["error"]
    assert stream.over and stream.receive(chunk({"content": "late"})) == ()
    return cast(dict[str, Any], event)


def test_a_stream_that_broke_says_so_last() -> None:
    stream = ResponsesStream(request(stream=True))
    begun = parsed(stream.receive(chunk({"content": "a"})))
    event = failed(stream)

    assert event["sequence_number"] == len(begun)
    assert event["response"]["id"] == begun[0]["response"]["id"]
    assert event["response"]["output"][0]["status"] == "in_progress"
    assert failed(ResponsesStream(request()))["sequence_number"] == 0
    assert json.loads(ResponsesStream(request()).error({}).decode().split("data: ")[1])["error"] == {}


def native(kind: str, finishes: bool = False, told: Usage | None = None, **members: object) -> Chunk:
    payload = json.dumps({"type": f"response.{kind}", **members}).encode()
    return Chunk(payload, finishes=finishes, usage=told, shape="openai_responses", event=f"response.{kind}".encode())


def test_a_providers_own_events_pass_and_the_block_rides_in_the_last_response() -> None:
    stream = ResponsesStream(request(stream=True))
    created = native("created", response={"id": "resp_1", "x": 1.5})
    last = native("completed", True, USAGE, response={"id": "resp_1", "usage": COUNTS}, sequence_number=1)

    assert stream.receive(created) == (b"event: response.created\ndata: " + created.payload + b"\n\n",)
    assert not stream.waiting
    assert stream.receive(last) == ()
    assert stream.waiting and stream.complete
    (ended,) = stream.finish(USAGE, NOTE)
    assert ended.startswith(b"event: response.completed\ndata: ")
    assert json.loads(ended.decode().split("data: ")[1]) == {
        **json.loads(last.payload), "response": {"id": "resp_1", "usage": COUNTS, "n4n": {"cost_usd": 1.5}},
    }  # fmt: skip


def test_usage_that_was_suspect_is_corrected_in_a_providers_own_event() -> None:
    stream = ResponsesStream(request(stream=True))
    stream.receive(native("completed", True, Usage(), response={"id": "resp_1", "usage": None}))
    (ended,) = stream.finish(USAGE, NOTE)

    assert json.loads(ended.decode().split("data: ")[1])["response"]["usage"] == COUNTS
    bare = ResponsesStream(request(stream=True))
    bare.receive(native("completed", True))
    assert json.loads(bare.finish(None, NOTE)[0].decode().split("data: ")[1])["response"] == {"n4n": {"cost_usd": 1.5}}


def test_a_providers_own_stream_that_broke_fails_with_its_own_response() -> None:
    stream = ResponsesStream(request(stream=True))
    stream.receive(native("created", response={"id": "resp_1", "status": "in_progress"}))
    event = json.loads(stream.error(ERROR).decode().split("data: ")[1])

    assert (event["response"]["id"], event["response"]["status"], event["sequence_number"]) == ("resp_1", "failed", 1)
    odd = ResponsesStream(request(stream=True))
    odd.receive(native("created"))
    odd.receive(native("created", response=5))
    assert json.loads(odd.error(ERROR).decode().split("data: ")[1])["response"]["id"].startswith("resp_")


# ── both ways


@pytest.mark.parametrize("vector", [one for one in vectors_of("openai_chat") if one["stream"]], ids=named)
def test_every_recorded_stream_of_a_chat_is_a_stream_of_responses(vector: Vector) -> None:
    events = events_of(DIALECTS["openai"], vector, pieces_of(vector))
    stream = ResponsesStream(request(stream=True))
    frames = [piece for event in events if isinstance(event, Chunk) for piece in stream.receive(event)]
    if not isinstance(events[-1], Done):
        parsed(frames)
        return

    got = parsed(frames + list(stream.finish(None, NOTE)))[-1]["response"]
    (choice, *_) = vector["expected"]["completion"]["choices"]
    told = [item for item in got["output"] if item["type"] == "message"]
    assert "".join(part["text"] for item in told for part in item["content"]) == (choice["message"]["content"] or "")
    calls = [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in got["output"] if item["type"] == "function_call"]
    wanted = choice["message"].get("tool_calls") or []
    assert calls == [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in wanted]


WORDS = st.text(max_size=4)
DELTA = st.one_of(
    st.builds(lambda text: {"content": text}, WORDS),
    st.builds(lambda text: {"reasoning_content": text}, WORDS),
    st.builds(lambda text: {"refusal": text}, WORDS),
    st.builds(lambda at, text: call(at, text, id=f"call_{at}", name="f"), st.integers(0, 2), WORDS),
    st.builds(lambda data: {"reasoning_details": [{"type": "reasoning.encrypted", "data": data, "index": 0}]}, WORDS),
)


@given(st.lists(DELTA, max_size=10), st.sampled_from(["stop", "length", "tool_calls"]))
def test_a_stream_and_its_whole_answer_say_the_same(deltas: list[dict[str, Any]], reason: str) -> None:
    chunks = [*map(chunk, deltas), chunk({}, reason)]
    streaming = streamed(*chunks)[-1]["response"]
    completion = joined(one.payload for one in chunks)
    at_once = json.loads(whole(Chunk(json.dumps(completion).encode()), request(), USAGE, NOTE))

    def texts(response: Mapping[str, Any], kind: str) -> str:
        parts = [part for item in response["output"] for part in (item.get("content") or item.get("summary") or ())]
        return "".join(part.get("text") or part.get("refusal") or "" for part in parts if part["type"] == kind)

    assert streaming["status"] == at_once["status"]
    for kind in ("output_text", "refusal", "summary_text"):
        assert texts(streaming, kind) == texts(at_once, kind)


@given(st.binary(max_size=40), st.booleans(), st.booleans())
def test_no_payload_makes_it_raise(payload: bytes, finishes: bool, own: bool) -> None:
    for raw in (payload, b'{"choices":[{"delta":' + payload + b"}]}", b'{"choices":[{"delta":{"content":"' + payload + b'"}}]}'):
        stream = ResponsesStream(request(stream=True))
        stream.receive(Chunk(raw, finishes=finishes))
        assert isinstance(stream.finish(USAGE, NOTE), tuple)
        assert whole(Chunk(raw), request(), USAGE, NOTE)


def test_the_skin_says_all_of_it() -> None:
    skin = OpenAIResponses()
    asked = skin.read(b'{"model":"m","input":"hi","truncation":"auto"}', lambda name: None)
    chat = Chunk(json.dumps({**HEAD, "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}).encode())

    assert skin.losses(asked) == ("truncation was left out: only the Responses API has a word for it",)
    assert json.loads(skin.whole(chat, asked, USAGE, NOTE))["output"][0]["content"][0]["text"] == "a"
    assert isinstance(skin.frames(asked), ResponsesStream)
    assert skin.envelope(ERROR) == ERROR
    assert skin.keep_alive.startswith(b":")
