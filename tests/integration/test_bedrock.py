"""Bedrock's binary stream and its whole answers, all the way from a socket of its own to a client of chat completions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.event_stream import START, event, exception, metadata, stop, text
from tests.support.router import PROVIDER_SECRET, RunningRouter, catalog, running_router
from tests.support.script import Answer, Headers, Raw, Slice, Status, Whole
from tests.support.sigv4 import verify
from tests.support.upstream import ScriptedUpstream

USAGE = {"inputTokens": 5, "outputTokens": 7, "cacheReadInputTokens": 100}
KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
CALL = {"toolUse": {"toolUseId": "t1", "name": "tide", "input": {"port": "漢"}}}


def bedrock(base_url: str) -> dict[str, Any]:
    """A catalog whose one endpoint is a model on Bedrock."""
    document: dict[str, Any] = json.loads(json.dumps(catalog(base_url.removesuffix("/v1"))))
    (provider,) = document["providers"].values()
    provider["dialect"] = "bedrock"
    (endpoint,) = document["endpoints"].values()
    endpoint["upstream_model"] = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    return document


def streamed(*frames: bytes) -> Answer:
    """Frames in reads of three bytes, none of which ends where a frame does."""
    return (Headers((("content-type", "application/vnd.amazon.eventstream"),)), Slice(3), Raw(b"".join(frames)))


def whole(*content: object, reason: str = "end_turn") -> Answer:
    """One whole answer."""
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason, "usage": USAGE}
    return (Headers((("content-type", "application/json"),)), Whole(json.dumps(body).encode()))


async def told(house: RunningRouter, **fields: Any) -> tuple[int, str]:
    async with house.chat(**fields) as answer:  # type: ignore[attr-defined]
        return answer.status, await answer.text()


def payloads(raw: str) -> list[Any]:
    return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]


async def test_a_stream_of_frames_reaches_a_client_of_chat() -> None:
    call = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t1", "name": "tide"}})
    piece = event("contentBlockDelta", contentBlockIndex=1, delta={"toolUse": {"input": '{"port": "漢"}'}})
    async with ScriptedUpstream() as upstream, running_router(bedrock(upstream.base_url)) as house:
        upstream.script(streamed(START, text("Moment … "), call, piece, stop("tool_use"), metadata(**USAGE)))
        status, raw = await told(house, stream=True, stream_options={"include_usage": True})

    chunks = payloads(raw)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert status == 200 and raw.endswith("data: [DONE]\n\n")
    assert "".join(delta.get("content", "") for delta in deltas) == "Moment … "
    assert "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])) == '{"port": "漢"}'
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 100
    assert chunks[-1]["n4n"]["usage"]["prompt_tokens"] == 105
    (sent,) = upstream.calls
    assert sent.path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert sent.header("authorization") == f"Bearer {PROVIDER_SECRET}"
    assert sent.header("accept") == "application/vnd.amazon.eventstream"


async def test_a_whole_answer_reaches_a_client_of_chat() -> None:
    async with ScriptedUpstream() as upstream, running_router(bedrock(upstream.base_url)) as house:
        upstream.script(whole({"text": "Ja."}, CALL, reason="tool_use"))
        status, raw = await told(house, seed=7)

    got = json.loads(raw)
    assert status == 200
    assert got["choices"][0]["message"]["content"] == "Ja."
    assert json.loads(got["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"port": "漢"}
    assert got["usage"]["prompt_tokens"] == 105
    assert got["n4n"]["warnings"] == ["seed was left out: endpoint e1 has no word for it"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_told_by_its_name(stream: bool) -> None:
    headers = Headers((("x-amzn-errortype", "ValidationException:http://internal.amazon.com/"), ("content-type", "application/json")))
    async with ScriptedUpstream() as upstream, running_router(bedrock(upstream.base_url)) as house:
        upstream.script((Status(400), headers, Whole(b'{"message":"Input is too long for requested model."}')))
        status, raw = await told(house, stream=stream)

    assert status == 400
    assert json.loads(raw)["error"]["code"] == "context_length_exceeded"


async def test_an_exception_after_output_is_the_last_event() -> None:
    frames = [START, *(text(word) for word in "abcdef"), exception("modelStreamErrorException", message="broke")]
    async with ScriptedUpstream() as upstream, running_router(bedrock(upstream.base_url)) as house:
        upstream.script(streamed(*frames))
        status, raw = await told(house, stream=True)

    assert status == 200 and "[DONE]" not in raw
    assert payloads(raw)[-1]["choices"][0]["finish_reason"] == "error"


async def test_an_exception_before_output_is_another_try() -> None:
    async with ScriptedUpstream() as upstream, running_router(bedrock(upstream.base_url)) as house:
        upstream.script(streamed(exception("serviceUnavailableException")), then=streamed(START, text("ok"), stop(), metadata(**USAGE)))
        status, raw = await told(house, stream=True)

    assert status == 200 and len(upstream.calls) == 2
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in payloads(raw)) == "ok"


async def test_every_attempt_of_an_account_with_an_access_key_is_signed_for_its_region() -> None:
    async with ScriptedUpstream() as upstream:
        document = bedrock(upstream.base_url)
        document["endpoints"]["e1"]["region"] = "eu-west-1"
        async with running_router(document) as house:
            house.router._credentials = SimpleNamespace(usable={"ae1"}, reveal=lambda account: f"{KEY_ID}:{SECRET}:tok")
            upstream.script(
                (Status(503), Whole(b"{}")), whole({"text": "ok"}), streamed(START, text("ok"), stop(), metadata(**USAGE))
            )  # fmt: skip
            assert (await told(house))[0] == 200
            assert (await told(house, stream=True))[0] == 200

    assert len(upstream.calls) == 3
    for call in upstream.calls:
        assert verify(call, {KEY_ID: SECRET}, region="eu-west-1", service="bedrock", tokens={KEY_ID: "tok"}) == KEY_ID
