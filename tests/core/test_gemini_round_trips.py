"""Chats there and back: what a client said arrives at Gemini, and what Gemini said arrives at the client."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import Chunk
from n4n.core.chat_request import read_chat
from n4n.core.dialects.gemini import Gemini

GEMINI = Gemini()
ENDPOINT = Endpoint(EndpointId("e"), ModelId("m"), Provider("p", "gemini", "https://example.test/v1beta"), (), "gemini-3.1-pro-preview")
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]) | st.sampled_from('👩‍👧漢\u200d\\"\n'), min_size=1, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
NAME = st.sampled_from(["tide", "f_1", "a-b"])


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation: instructions, questions, answers, calls with their results in any order."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(TEXT)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(TEXT | TEXT.map(lambda text: [{"type": "text", "text": text}]))})
        calls = [
            {"id": f"c{turn}_{place}", "type": "function", "function": {"name": draw(NAME), "arguments": json.dumps(draw(OBJECT))}}
            for place in range(draw(st.integers(0, 3)))
        ]
        said = draw(TEXT | st.none()) if calls else draw(TEXT)
        answer: dict[str, Any] = {"role": "assistant", "content": said}
        if calls:
            answer["tool_calls"] = calls
            if draw(st.booleans()):
                answer["reasoning_details"] = [
                    {"type": "reasoning.encrypted", "data": "U0lH", "id": calls[0]["id"], "format": "google-gemini-v1", "index": 0}
                ]
        messages.append(answer)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT | OBJECT.map(json.dumps))} for call in calls]
        messages += draw(st.permutations(results))
    return messages


def plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or [])


def asked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a chat says, whatever its shape: texts in order by who speaks, calls, results, signatures."""
    told: dict[str, Any] = {"system": [], "user": "", "model": "", "calls": [], "results": {}, "signatures": {}}
    for message in messages:
        match message["role"]:
            case "system":
                told["system"].append(message["content"])
            case "user":
                told["user"] += plain(message["content"])
            case "assistant":
                told["model"] += plain(message["content"])
                told["calls"] += [
                    (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])
                ]
                told["signatures"] |= {detail["id"]: detail["data"] for detail in message.get("reasoning_details", [])}
            case "tool":
                told["results"][message["tool_call_id"]] = message["content"]
    return told


def arrived(body: dict[str, Any]) -> dict[str, Any]:
    """The same of Gemini's body, read apart from the gateway's own code."""
    told: dict[str, Any] = {"system": [], "user": "", "model": "", "calls": [], "results": {}, "signatures": {}}
    told["system"] = [part["text"] for part in body.get("systemInstruction", {}).get("parts", [])]
    for turn in body["contents"]:
        for part in turn["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                told["calls"].append((call["id"], call["name"], call["args"]))
                if part.get("thoughtSignature") not in (None, "skip_thought_signature_validator"):
                    told["signatures"][call["id"]] = part["thoughtSignature"]
            elif "functionResponse" in part:
                result = part["functionResponse"]
                told["results"][result["id"]] = result["response"]
            else:
                told[turn["role"]] += part["text"]
    return told


def same_result(said: str, response: dict[str, Any]) -> bool:
    return response == {"output": said} or json.dumps(response) == json.dumps(json.loads(said))


@given(chats())
def test_a_chat_arrives_with_all_that_both_sides_can_say(messages: list[dict[str, Any]]) -> None:
    request = read_chat(json.dumps({"model": "m", "messages": messages}).encode())
    body = json.loads(GEMINI.encode(request, ENDPOINT, None).body)

    expected, got = asked(messages), arrived(body)
    results = expected.pop("results")
    responses = got.pop("results")
    assert got == expected
    assert responses.keys() == results.keys()
    assert all(same_result(results[name], responses[name]) for name in results)
    roles = [turn["role"] for turn in body["contents"]]
    assert roles[0] == "user" and "model model" not in " ".join(roles)
    for before, turn in zip(body["contents"], body["contents"][1:], strict=False):  # results stand right behind their calls, in their order
        answers = [part["functionResponse"]["id"] for part in turn["parts"] if "functionResponse" in part]
        assert not answers or answers == [part["functionCall"]["id"] for part in before["parts"] if "functionCall" in part]


@st.composite
def answers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The parts of a model's answer."""
    parts: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 2))):
        parts.append({"text": draw(TEXT), "thought": True})
    for _ in range(draw(st.integers(0, 3))):
        parts.append({"text": draw(TEXT)})
    for place in range(draw(st.integers(0, 3))):
        call = {"name": draw(NAME), "args": draw(OBJECT)}
        parts.append({"functionCall": call | ({"id": f"g{place}"} if draw(st.booleans()) else {})})
    return parts


@given(answers(), st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY"]), st.integers(0, 99), st.integers(0, 99), st.data())
def test_an_answer_is_the_same_whole_and_as_a_stream(
    parts: list[dict[str, Any]], reason: str, prompt: int, output: int, data: st.DataObject
) -> None:
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": output}
    whole = {"candidates": [{"content": {"parts": parts}, "finishReason": reason}], "usageMetadata": usage, "responseId": "r"}
    cut = data.draw(st.integers(0, len(parts)))
    first = {"candidates": [{"content": {"parts": parts[:cut]}}], "responseId": "r"}
    last = {"candidates": [{"content": {"parts": parts[cut:]}, "finishReason": reason}], "usageMetadata": usage, "responseId": "r"}
    request = read_chat(b'{"model":"m","messages":[{}]}')

    one = GEMINI.decode(json.dumps(whole).encode(), "application/json", request)
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in (first, last))
    joined = GEMINI.decode(stream, "text/event-stream", request)

    assert isinstance(one, Chunk) and isinstance(joined, Chunk)
    told, again = json.loads(one.payload)["choices"][0], json.loads(joined.payload)["choices"][0]
    calls = told["message"].get("tool_calls", [])
    assert (told["message"]["content"] or "") == "".join(part["text"] for part in parts if "text" in part and "thought" not in part)
    assert told["message"].get("reasoning_content", "") == "".join(part["text"] for part in parts if "thought" in part)
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == [
        (part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part
    ]
    assert told["finish_reason"] == {"STOP": "tool_calls" if calls else "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}[reason]
    for name in ("content", "reasoning_content", "tool_calls"):
        assert (told["message"].get(name) or None) == (again["message"].get(name) or None)
    assert told["finish_reason"] == again["finish_reason"]
    assert (
        one.usage == joined.usage and one.usage is not None and (one.usage.prompt_tokens, one.usage.completion_tokens) == (prompt, output)
    )
