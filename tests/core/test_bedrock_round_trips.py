"""Chats there and back: what a client said arrives at Bedrock, what Bedrock said arrives at the client, and nothing raises."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import Chunk, Comment, Done, Event, Failed
from n4n.core.chat_request import read_chat
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.errors import Failure, MalformedRequest
from tests.support import event_stream
from tests.support.event_stream import START, event, event_of, metadata, stop
from tests.support.vectors import client_joins

BEDROCK = Bedrock()
PROVIDER = Provider("p", "bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com")
REQUEST = read_chat(b'{"model":"m","messages":[{}],"stream":true}')
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from('👩‍👧漢\u200d\\"\n')
TEXT = st.text(alphabet=CHARACTERS, min_size=1, max_size=12).filter(str.strip)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
NAME = st.sampled_from(["tide", "f_1", "a-b"])
MODELS = st.sampled_from(["us.anthropic.claude-sonnet-4-6", "amazon.nova-2-lite-v1:0", "openai.gpt-oss-120b-1:0", "arn:aws:bedrock:x"])


def endpoint(model: str) -> Endpoint:
    return Endpoint(EndpointId("e"), ModelId("m"), PROVIDER, (), model)


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation: instructions, questions, answers with reasoning, calls with their results in any order."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(TEXT)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(TEXT | TEXT.map(lambda text: [{"type": "text", "text": text}]))})
        calls = [
            {"id": f"c{turn}_{place}", "type": "function", "function": {"name": draw(NAME), "arguments": json.dumps(draw(OBJECT))}}
            for place in range(draw(st.integers(0, 3)))
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": draw(TEXT | st.none()) if calls else draw(TEXT.map(str.strip))}
        if calls:
            answer["tool_calls"] = calls
        if draw(st.booleans()):
            thought = {"type": "reasoning.text", "text": draw(TEXT), "signature": "S", "format": "anthropic-claude-v1", "index": 0}
            answer["reasoning_details"] = [thought]
        messages.append(answer)
        messages += draw(st.permutations([{"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT)} for call in calls]))
    return messages


def plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or [])


def asked(messages: list[dict[str, Any]], *, signed: bool) -> dict[str, Any]:
    """What a chat says, whatever its shape: texts in order by who speaks, calls, results, reasoning."""
    told: dict[str, Any] = {"system": "", "user": "", "assistant": "", "calls": [], "results": {}, "thoughts": []}
    for message in messages:
        if message["role"] == "tool":
            told["results"][message["tool_call_id"]] = message["content"]
            continue
        told[message["role"]] += plain(message["content"])
        told["calls"] += [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])
        ]
        told["thoughts"] += [(one["text"], one["signature"]) for one in message.get("reasoning_details", []) if signed]
    return told


def arrived(body: dict[str, Any]) -> dict[str, Any]:
    """The same of Converse's body, read apart from the gateway's own code."""
    told: dict[str, Any] = {"system": "", "user": "", "assistant": "", "calls": [], "results": {}, "thoughts": []}
    told["system"] = "".join(block["text"] for block in body.get("system", []))
    for turn in body["messages"]:
        for block in turn["content"]:
            ((kind, inner),) = block.items()
            match kind:
                case "text":
                    told[turn["role"]] += inner
                case "toolUse":
                    told["calls"].append((inner["toolUseId"], inner["name"], inner["input"]))
                case "toolResult":
                    told["results"][inner["toolUseId"]] = "".join(part["text"] for part in inner["content"])
                case "reasoningContent":
                    told["thoughts"].append((inner["reasoningText"]["text"], inner["reasoningText"]["signature"]))
    return told


@given(chats(), MODELS)
def test_a_chat_arrives_with_all_that_both_sides_can_say(messages: list[dict[str, Any]], model: str) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("tide", "f_1", "a-b")]
    request = read_chat(json.dumps({"model": "m", "messages": messages, "tools": tools}).encode())
    body = json.loads(BEDROCK.encode(request, endpoint(model), None).body)

    assert arrived(body) == asked(messages, signed="claude" in model or "arn" in model)
    roles = [turn["role"] for turn in body["messages"]]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
    for before, turn in zip(body["messages"], body["messages"][1:], strict=False):  # results stand right behind their calls, and first
        answers = {block["toolResult"]["toolUseId"] for block in turn["content"] if "toolResult" in block}
        assert not answers or answers == {block["toolUse"]["toolUseId"] for block in before["content"] if "toolUse" in block}
        kinds = ["toolResult" in block for block in turn["content"]]
        assert kinds == sorted(kinds, reverse=True)


@st.composite
def answers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The blocks of a model's answer."""
    blocks: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 2))):
        blocks.append({"reasoningContent": {"reasoningText": {"text": draw(TEXT), "signature": draw(st.sampled_from(["", "S"]))}}})
    if draw(st.booleans()):
        blocks.append({"reasoningContent": {"redactedContent": base64.b64encode(draw(st.binary(min_size=1, max_size=9))).decode()}})
    for _ in range(draw(st.integers(0, 3))):
        blocks.append({"text": draw(TEXT)})
    for place in range(draw(st.integers(0, 3))):
        blocks.append({"toolUse": {"toolUseId": f"t{place}", "name": draw(NAME), "input": draw(OBJECT)}})
    return blocks


def pieces_of(text: str, data: st.DataObject) -> list[str]:
    cut = data.draw(st.integers(0, len(text)))
    return [text[:cut], text[cut:]]


def as_stream(blocks: list[dict[str, Any]], data: st.DataObject) -> bytes:
    frames = [START]
    for place, block in enumerate(blocks):
        ((kind, inner),) = block.items()
        deltas: list[dict[str, Any]] = []
        if kind == "text":
            deltas = [{"text": piece} for piece in pieces_of(inner, data)]
        elif kind == "toolUse":
            start = {"toolUse": {"toolUseId": inner["toolUseId"], "name": inner["name"]}}
            frames.append(event("contentBlockStart", contentBlockIndex=place, start=start))
            deltas = [{"toolUse": {"input": piece}} for piece in pieces_of(json.dumps(inner["input"]), data)]
        elif "reasoningText" in inner:
            deltas = [{"reasoningContent": {"text": piece}} for piece in pieces_of(inner["reasoningText"]["text"], data)]
            deltas.append({"reasoningContent": {"signature": inner["reasoningText"]["signature"]}})
        else:
            deltas = [{"reasoningContent": inner}]
        frames += [event("contentBlockDelta", contentBlockIndex=place, delta=delta) for delta in deltas]
        frames.append(event("contentBlockStop", contentBlockIndex=place))
    return b"".join(frames)


def details_of(payloads: list[bytes]) -> list[Any]:
    deltas = [choice["delta"] for payload in payloads for choice in json.loads(payload)["choices"]]
    return [entry for delta in deltas for entry in delta.get("reasoning_details", [])]


@given(answers(), st.sampled_from(["end_turn", "max_tokens", "guardrail_intervened"]), st.integers(1, 99), st.integers(1, 99), st.data())
def test_an_answer_is_the_same_whole_and_as_a_stream(
    blocks: list[dict[str, Any]], reason: str, prompt: int, output: int, data: st.DataObject
) -> None:
    usage = {"inputTokens": prompt, "outputTokens": output}
    whole = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": reason, "usage": usage}
    stream = as_stream(blocks, data) + stop(reason) + metadata(**usage)

    one = BEDROCK.decode(json.dumps(whole).encode(), "application/json", REQUEST)
    decoder = BEDROCK.decoder(REQUEST)
    cut = data.draw(st.integers(0, len(stream)))
    events = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) + decoder.end()

    assert isinstance(one, Chunk) and events[-1] == Done()
    chunks = [event for event in events if isinstance(event, Chunk)]
    payloads = [chunk.payload for chunk in chunks]
    told, again = json.loads(one.payload)["choices"][0], client_joins(payloads)["choices"][0]
    message, calls = told["message"], told["message"].get("tool_calls", [])
    assert (message["content"] or "") == "".join(block.get("text", "") for block in blocks) == again["message"].get("content", "")
    assert message.get("reasoning_content", "") == again["message"].get("reasoning_content", "")
    assert message.get("reasoning_details", []) == details_of(payloads)
    expected = [(use["toolUseId"], use["name"], use["input"]) for block in blocks if (use := block.get("toolUse"))]
    assert [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == expected
    assert [(call["id"], call["name"], json.loads(call["arguments"])) for call in again["calls"].values()] == expected
    assert again["finishes"] == [told["finish_reason"]]
    assert one.usage == chunks[-1].usage
    assert sum(chunk.output_bytes for chunk in chunks) == one.output_bytes


@given(answers(), TEXT)
def test_what_bedrock_said_goes_back_to_bedrock_as_it_was(blocks: list[dict[str, Any]], question: str) -> None:
    whole = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn"}
    got = BEDROCK.decode(json.dumps(whole).encode(), "", REQUEST)
    assert isinstance(got, Chunk)
    message = json.loads(got.payload)["choices"][0]["message"]
    told = [{"role": "user", "content": "?"}, message, {"role": "user", "content": question}]
    tools = [{"type": "function", "function": {"name": "tide"}}]
    request = read_chat(json.dumps({"model": "m", "messages": told, "tools": tools}).encode())

    sent = json.loads(BEDROCK.encode(request, endpoint("anthropic.claude-opus-4-8"), None).body)["messages"]

    kept = [block for block in blocks if "text" not in block and block != unsigned(block)]
    texts = "".join(block["text"] for block in blocks if "text" in block)
    back = [block for turn in sent if turn["role"] == "assistant" for block in turn["content"]]
    assert [block for block in back if "text" not in block] == kept
    assert "".join(block.get("text", "") for block in back) == texts


def unsigned(block: dict[str, Any]) -> dict[str, Any] | None:
    """The block, if it is reasoning that nobody signed."""
    return block if block.get("reasoningContent", {}).get("reasoningText", {}).get("signature") == "" else None


FRAGMENTS = ["", "漢", "👩‍👧", "a\u200d", "\\ud83d", "\\ude00", '\\"', "\\n"]


def test_text_and_arguments_survive_every_split() -> None:
    inner = "".join(FRAGMENTS).encode()
    call = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t", "name": "f"}})
    text = event_of("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"%b"}}' % inner)
    arguments = event_of("contentBlockDelta", b'{"contentBlockIndex":1,"delta":{"toolUse":{"input":"%b"}}}' % inner)
    raw = START + text + call + arguments + stop() + metadata(inputTokens=1, outputTokens=1)

    def read(*pieces: bytes) -> list[Event]:
        decoder = BEDROCK.decoder(REQUEST)
        return [one for piece in pieces for one in decoder.feed(piece)] + decoder.end()

    expected = read(raw)
    joined = client_joins([one.payload for one in expected if isinstance(one, Chunk)])["choices"][0]
    said = json.loads(b'"%b"' % inner)
    assert (joined["message"]["content"], joined["calls"][0]["arguments"]) == (said, said)
    for cut in range(1, len(raw)):
        assert [one for one in read(raw[:cut], raw[cut:]) if one != Comment()] == expected
    assert read(*(raw[at : at + 1] for at in range(len(raw)))) == expected


NOISE = st.binary(max_size=60) | st.sampled_from([START, stop(), b"{", b"<", b" "])
PAYLOADS = JSON.map(lambda value: json.dumps(value).encode()) | st.dictionaries(
    st.sampled_from(["contentBlockIndex", "start", "delta", "stopReason", "usage", "toolUse", "reasoningContent", "text", "p"]),
    st.dictionaries(st.sampled_from(["toolUse", "text", "reasoningContent", "inputTokens", "input"]), JSON, max_size=2) | JSON,
    max_size=4,
).map(lambda value: json.dumps(value).encode())


@given(st.lists(NOISE, max_size=4))
def test_no_bytes_make_a_stream_raise(pieces: list[bytes]) -> None:
    decoder = BEDROCK.decoder(REQUEST)
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()

    assert isinstance(events[-1], Done | Failed)


@given(
    st.lists(st.tuples(st.sampled_from(["contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "x"]), PAYLOADS), max_size=4)
)
def test_no_event_makes_a_stream_raise(told: list[tuple[str, bytes]]) -> None:
    raw = START + b"".join(event_of(name, payload) for name, payload in told)
    decoder = BEDROCK.decoder(REQUEST)

    assert isinstance((decoder.feed(raw) + decoder.end())[-1], Done | Failed)
    broken = event_stream.frame({":message-type": "exception", ":exception-type": told[0][0] if told else ""}, told[0][1] if told else b"")
    assert isinstance(BEDROCK.decoder(REQUEST).feed(broken)[-1], Failed)


@given(st.binary(max_size=60) | PAYLOADS, st.integers(400, 599), st.sampled_from(["", "ThrottlingException", "ModelErrorException", ":#:"]))
def test_no_body_makes_an_answer_raise(raw: bytes, status: int, name: str) -> None:
    assert isinstance(BEDROCK.decode(raw, "application/json", REQUEST), Chunk | Failure)
    assert isinstance(BEDROCK.failure(status, {"x-amzn-errortype": name}, raw, 0.0), Failure)


MEMBERS = st.sampled_from(["role", "content", "tool_calls", "name", "reasoning_details", "cache_control"])
FIELDS = st.sampled_from(
    ["tools", "tool_choice", "stop", "response_format", "reasoning", "thinking", "metadata", "cache_control", "top_k", "serviceTier",
     "guardrailConfig", "x"]
)  # fmt: skip
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@given(
    MODELS,
    st.lists(st.dictionaries(MEMBERS, JSON | ROLES, max_size=4), min_size=1, max_size=3),
    st.dictionaries(FIELDS, JSON, max_size=4),
)
def test_no_chat_makes_a_request_raise_anything_but_its_own_error(model: str, messages: list[Any], fields: dict[str, Any]) -> None:
    with suppress(MalformedRequest):
        request = read_chat(json.dumps({"model": "m", "messages": messages, **fields}).encode())
        json.loads(BEDROCK.encode(request, endpoint(model), None).body)
