"""What the cases need of a streamed answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Answer, Chunk
from tests.support.upstream import ScriptedUpstream

Json = object


def chunk(delta: Mapping[str, Json] | None = None, *, finish: str | None = None, **members: Json) -> Chunk:
    """One chunk with this delta, and more members at its top."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return Chunk({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice], **members})  # type: ignore[dict-item]


def events(text: str) -> list[dict]:
    """The JSON of every data event but [DONE]; fails where one is not JSON."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


def said(text: str, member: str = "content") -> str:
    """All that the deltas of a stream say in one member."""
    return "".join(choice["delta"].get(member) or "" for event in events(text) for choice in event["choices"])


def finishes(text: str) -> list[str]:
    """Every finish reason of a stream."""
    return [choice["finish_reason"] for event in events(text) for choice in event["choices"] if choice["finish_reason"]]


@asynccontextmanager
async def two_endpoints(model: Mapping[str, Json] | None = None) -> AsyncIterator[tuple[ScriptedUpstream, ScriptedUpstream, RunningRouter]]:
    """Endpoints e1 and e2 of model m, asked in this order, and a router over them."""
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        async with running_router(catalog(e1.base_url, e2.base_url, model=model)) as house:
            yield e1, e2, house


async def stream_of(answer: Answer, model: Mapping[str, Json] | None = None, **body: Json) -> tuple[str, dict[str, Json]]:
    """The text of the stream that a client gets where the only endpoint answers so, and the log line."""
    async with ScriptedUpstream() as upstream:
        upstream.script(answer)
        async with running_router(catalog(upstream.base_url, model=model)) as house:
            async with house.chat(stream=True, **body) as reply:
                text = await reply.text()
            (line,) = await house.logged()
            return text, line
