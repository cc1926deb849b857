"""What holds for the Messages dialect and skin whatever is said: nothing is lost on the way there and back, and nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.dialects.completion import joined as chat_joined
from n4n.core.errors import Failure, MalformedRequest
from n4n.core.skins.messages import read_messages
from n4n.core.skins.messages_answer import whole
from n4n.core.skins.messages_chat import losses
from n4n.core.skins.messages_count import rough_count
from n4n.core.skins.messages_stream import MessagesStream
from tests.support.messages import joined

ANTHROPIC = Anthropic()
ENDPOINT = Endpoint(EndpointId("e"), ModelId("m"), Provider("p", "anthropic", "https://example.test"), (), "claude", max_output_tokens=99)
CHAT = read_chat(b'{"model":"m","messages":[{}]}')
NATIVE = read_messages(b'{"model":"m","messages":[{}]}')
NOTE = b'{"x":1}'
Json = dict[str, Any]

SPICE = ["日本語", "👩‍👩‍👧", "é", "\u0000", "\u2028", '"', "\\", "\n", "\\ud83d", "data: "]
texts = st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.sampled_from(SPICE)), max_size=4).map("".join)
spoken = texts.filter(lambda text: text.strip() != "" and text == text.rstrip())
names = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | texts, lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
arguments = st.dictionaries(texts, values, max_size=3)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Json]:
    """A user's turn and what the other side answered, perhaps with calls and their results."""
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    turn: list[Json] = [{"role": "user", "content": draw(spoken)}]
    content = draw(spoken) if not calls else draw(st.none() | spoken)
    made = [
        {"id": f"call_{place}_{draw(names)}", "type": "function", "function": {"name": name, "arguments": json.dumps(said)}}
        for place, (name, said) in enumerate(calls)
    ]
    turn.append({"role": "assistant", "content": content, **({"tool_calls": made} if made else {})})
    turn += [{"role": "tool", "tool_call_id": call["id"], "content": draw(spoken)} for call in made]
    return turn


conversations = st.lists(exchanges(), min_size=1, max_size=3).map(lambda turns: [message for turn in turns for message in turn])


def plain(message: Json) -> Json:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    content = message["content"]
    words = content if isinstance(content, str) or content is None else "".join(part["text"] for part in content)
    return {**message, "content": words, "tool_calls": calls}


@given(conversations, st.none() | spoken)
def test_a_chat_comes_back_from_messages_as_it_went(conversation: list[Json], system: str | None) -> None:
    asked = [*([{"role": "system", "content": system}] if system else []), *conversation]
    sent = ANTHROPIC.encode(read_chat(json.dumps({"model": "m", "messages": asked}).encode()), ENDPOINT, None)
    back = json.loads(bytes(read_messages(sent.body).fields["messages"]))

    assert [plain(message) for message in back] == [plain(message) for message in asked]
    assert sent.warnings == ()


@st.composite
def answers(draw: st.DrawFn) -> Json:
    """A message as Anthropic may answer it."""
    content: list[Json] = []
    for _ in range(draw(st.integers(0, 3))):
        content += draw(
            st.sampled_from(
                [
                    [{"type": "thinking", "thinking": draw(texts), "signature": draw(names)}],
                    [{"type": "redacted_thinking", "data": draw(names)}],
                    [{"type": "text", "text": draw(texts.filter(bool))}],
                ]
            )
        )
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    content += [{"type": "tool_use", "id": f"t{place}", "name": name, "input": said} for place, (name, said) in enumerate(calls)]
    usage = {name: draw(st.integers(0, 10**6)) for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")}
    reason = draw(st.sampled_from(["end_turn", "max_tokens", "refusal"])) if not calls else "tool_use"
    return {"type": "message", "id": "msg_1", "role": "assistant", "model": "c", "content": content, "stop_reason": reason, "usage": usage}


def as_stream(message: Json, ascii_only: bool) -> bytes:
    """The message as Anthropic streams it, every text in two pieces."""
    told: list[Json] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(message["content"]):
        empty, pieces = emptied(block)
        told.append({"type": "content_block_start", "index": index, "content_block": empty})
        told += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": message["usage"]})
    told.append({"type": "message_stop"})
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=ascii_only)}\n\n".encode() for event in told)


def emptied(block: Json) -> tuple[Json, list[Json]]:
    def halves(kind: str, name: str, text: str) -> list[Json]:
        return [{"type": kind, name: text[: len(text) // 2]}, {"type": kind, name: text[len(text) // 2 :]}]

    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, halves("text_delta", "text", block["text"])
        case "thinking":
            pieces = halves("thinking_delta", "thinking", block["thinking"])
            return {"type": "thinking", "thinking": ""}, [*pieces, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            return {**block, "input": {}}, halves("input_json_delta", "partial_json", json.dumps(block["input"]))
    return block, []


def events(raw: bytes, request: ChatRequest, size: int = 1 << 20) -> list[Event]:
    decoder = ANTHROPIC.decoder(request)
    found = [event for at in range(0, len(raw), size) for event in decoder.feed(raw[at : at + size])] + decoder.end()
    return [event for event in found if not isinstance(event, Comment)]


def chunks(found: list[Event]) -> list[Chunk]:
    assert found[-1] == Done()
    return [event for event in found if isinstance(event, Chunk)]


def check_chat(choice: Json, message: Json) -> None:
    content = message["content"]
    said = choice["message"]
    assert (said["content"] or "") == "".join(block["text"] for block in content if block["type"] == "text")
    assert said.get("reasoning_content", "") == "".join(block.get("thinking", "") for block in content)
    calls = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in said.get("tool_calls", [])]
    assert calls == [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    kept = [entry.get("signature") or entry.get("data") for entry in said.get("reasoning_details", [])]
    assert kept == [block.get("signature") or block.get("data") for block in content if "thinking" in block["type"]]
    words = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter", "tool_use": "tool_calls"}
    assert choice["finish_reason"] == words[message["stop_reason"]]


@given(answers(), st.booleans(), st.integers(1, 60))
def test_an_answer_reads_alike_as_a_chat_whole_and_streamed(message: Json, ascii_only: bool, size: int) -> None:
    got = ANTHROPIC.decode(json.dumps(message).encode(), "application/json", CHAT)
    raw = as_stream(message, ascii_only)
    streamed = chunks(events(raw, CHAT, size))

    assert isinstance(got, Chunk)
    check_chat(json.loads(got.payload)["choices"][0], message)
    check_chat(chat_joined(chunk.payload for chunk in streamed)["choices"][0], message)  # type: ignore[index]
    assert streamed[-1].usage == got.usage
    assert streamed == chunks(events(raw, CHAT))
    assert (
        sum(chunk.output_bytes for chunk in streamed) > 0
        or not got.content
        or not any(block.get("text") or block.get("thinking") or block["type"] == "tool_use" for block in message["content"])
    )


@given(answers(), st.integers(1, 60))
def test_an_answer_passes_to_a_client_of_messages_and_comes_back_through_a_chat(message: Json, size: int) -> None:
    raw = as_stream(message, False)
    usage = Usage(message["usage"]["input_tokens"], 1)
    passed, made = MessagesStream(), MessagesStream()
    native = [frame for chunk in chunks(events(raw, NATIVE, size)) for frame in passed.receive(chunk)]
    through = [frame for chunk in chunks(events(raw, CHAT, size)) for frame in made.receive(chunk)]
    got, again = joined([*native, *passed.finish(usage, NOTE)]), joined([*through, *made.finish(usage, NOTE)])

    assert got["content"] == message["content"] and all(frame in raw for frame in native)
    merged = [
        block["type"]
        for place, block in enumerate(message["content"])
        if not place or [block["type"]] * 2 != ["text", message["content"][place - 1]["type"]]
    ]
    assert [block["type"] for block in again["content"]] == merged
    assert (again["stop_reason"], again["n4n"]) == (message["stop_reason"], {"x": 1})
    for name in ("text", "thinking", "signature", "data"):
        assert "".join(block.get(name, "") for block in again["content"]) == "".join(block.get(name, "") for block in message["content"])
    whole_of = json.loads(whole(Chunk(json.dumps(chat_joined(c.payload for c in chunks(events(raw, CHAT)))).encode()), usage, NOTE))
    assert [block["input"] for block in whole_of["content"] if block["type"] == "tool_use"] == [
        block["input"] for block in message["content"] if block["type"] == "tool_use"
    ]


HARD = {
    "type": "message",
    "id": "msg_1",
    "model": "c",
    "content": [
        {"type": "text", "text": "日本 👩‍👩‍👧 \ud83d é"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"é": "👩‍👩‍👧", "half": "\udc00"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


@pytest.mark.parametrize("request_", [CHAT, NATIVE], ids=["chat", "native"])
def test_hard_text_survives_every_split(request_: ChatRequest) -> None:
    raw = as_stream(HARD, True) + as_stream({**HARD, "content": [{"type": "text", "text": "日本 👩‍👩‍👧"}]}, False)
    expected = events(raw, request_)

    for cut in range(1, len(raw)):
        decoder = ANTHROPIC.decoder(request_)
        found = decoder.feed(raw[:cut]) + decoder.feed(raw[cut:]) + decoder.end()
        assert [event for event in found if not isinstance(event, Comment)] == expected
    if request_ is CHAT:
        choice: Any = chat_joined(chunk.payload for chunk in chunks(expected))["choices"]
        check_chat(choice[0], HARD)


# ── nothing raises

WORDS = [
    "type", "index", "message", "content", "content_block", "delta", "usage", "error", "text", "input", "stop_reason", "role",
    "tools", "system", "thinking", "choices", "tool_calls", "function", "source", "stop_details", "partial_json",
]  # fmt: skip
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_like = st.recursive(
    leaves | st.sampled_from(["message", "text", "tool_use", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=12,
)
kinds = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
        "odd",
    ]
)
odd_events = st.tuples(kinds, json_like).map(lambda pair: {**(pair[1] if isinstance(pair[1], dict) else {"x": pair[1]}), "type": pair[0]})
odd_streams = st.lists(odd_events, max_size=6).map(lambda told: "".join(f"data: {json.dumps(event)}\n\n" for event in told).encode())


@settings(max_examples=80)
@given(st.binary(max_size=80) | odd_streams | json_like.map(lambda said: json.dumps(said).encode()), st.integers(1, 40))
def test_no_bytes_make_a_decoder_raise(raw: bytes, size: int) -> None:
    for request in (CHAT, NATIVE):
        decoder = ANTHROPIC.decoder(request)
        found = [event for at in range(0, len(raw), size) for event in decoder.feed(raw[at : at + size])] + decoder.end()
        ends = [event for event in found if isinstance(event, Done | Failed)]
        assert len(ends) == 1 and found[-1] is ends[0]
        stream = MessagesStream()
        for event in found:
            if isinstance(event, Chunk):
                assert b"\n" not in event.payload
                stream.receive(event)
        stream.finish(Usage(1, 1), NOTE)
        assert isinstance(ANTHROPIC.decode(raw, "", request), Chunk | Failure)
    assert isinstance(ANTHROPIC.failure(400, {}, raw, 0.0), Failure)


@settings(max_examples=80)
@given(json_like | st.dictionaries(st.text(max_size=4), json_like), st.lists(json_like, min_size=1, max_size=3))
def test_no_request_makes_a_reader_or_writer_raise_anything_but_its_own(said: object, turns: list[object]) -> None:
    members = said if isinstance(said, dict) else {}
    body = json.dumps({**members, "model": "m", "messages": [{"role": "user", "content": turns[0]}, *turns]}).encode()
    for read in (read_messages, read_chat):
        try:
            asked = read(body)
            ANTHROPIC.encode(asked, ENDPOINT, None)
            losses(asked)
            rough_count(body)
            dict(asked.fields)
        except MalformedRequest:
            pass  # its own, a 400


@given(st.binary(max_size=60) | json_like.map(lambda said: json.dumps(said).encode()))
def test_no_chunk_makes_the_skin_raise(payload: bytes) -> None:
    chunk = Chunk(payload, finishes=True, usage=Usage())
    stream = MessagesStream()

    stream.receive(chunk)
    stream.finish(None, NOTE)
    assert json.loads(whole(chunk, None, NOTE))["type"] == "message"
