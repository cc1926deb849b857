"""Tool calls and reasoning survive every split of the bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import pytest

from n4n.core.chat import Chunk, Done
from n4n.core.dialects.chunks import ChunkDecoder
from tests.bugs.streams import chunk, events, said, stream_of
from tests.support.answers import DONE, EVENTS, usage
from tests.support.router import catalog, running_router
from tests.support.script import Hang, Raw, Slice, event
from tests.support.upstream import ScriptedUpstream

Fragment = Mapping[str, object]


def opener(index: int) -> Fragment:
    """The first fragment of a call."""
    return {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": f"tool_{index}", "arguments": ""}}


def argument(index: int, text: str) -> Fragment:
    """A later one."""
    return {"index": index, "function": {"arguments": text}}


ORDERS: Mapping[str, Sequence[Sequence[Fragment]]] = {
    "openers first, then in turn": [*([opener(i)] for i in range(3)), *([argument(i, p)] for p in ('{"a":', "1}") for i in range(3))],
    "one call after the other": [[one] for i in range(3) for one in (opener(i), argument(i, '{"a":'), argument(i, "1}"))],
    "openers in one chunk": [[opener(0), opener(1), opener(2)], *([argument(i, '{"a":1}')] for i in (2, 0, 1))],
    "opener and arguments in one chunk": [[opener(i), argument(i, '{"a":1}')] for i in range(3)],
    "all in one chunk": [[one for i in range(3) for one in (opener(i), argument(i, '{"a":1}'))]],
}


def wire(fragments: Sequence[Sequence[Fragment]]) -> tuple[list[dict], bytes]:
    """The chunks of a stream with these tool calls, and its bytes."""
    chunks = [
        chunk({"role": "assistant", "content": None}),
        *(chunk({"tool_calls": list(one)}) for one in fragments),
        chunk(finish="tool_calls"),
    ]
    return [dict(one.json) for one in chunks], b"".join(event(one.json) for one in chunks) + b"data: [DONE]\n\n"  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ORDERS)
def test_clean_tool_calls_pass_as_they_came_in_every_split_of_their_bytes(order: str) -> None:
    """LiteLLM #39796 (case 6): with three calls in parallel some lost their id and name on the way."""
    sent, raw = wire(ORDERS[order])
    dice = random.Random(order)
    for cuts in [*([at] for at in range(len(raw))), *(sorted(dice.sample(range(len(raw)), 9)) for _ in range(300))]:
        decoder = ChunkDecoder()
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

        found = [one for piece in pieces for one in decoder.feed(piece)] + decoder.end()

        assert [json.loads(one.payload) for one in found if isinstance(one, Chunk)] == sent, cuts
        assert found[-1] == Done()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [0, 1, 50])
async def test_a_client_joins_three_calls_of_valid_json(order: str, size: int) -> None:
    """LiteLLM #39796 (case 6)."""
    text, _ = await stream_of((EVENTS, Slice(size), Raw(wire(ORDERS[order])[1])), {"stream_guard": {"chunks": 2}})

    calls: dict[int, dict[str, str]] = {}
    for told in (fragment for one in events(text) for choice in one["choices"] for fragment in choice["delta"].get("tool_calls", ())):
        call = calls.setdefault(told["index"], {"id": "", "name": "", "arguments": ""})
        call["id"] += told.get("id", "")
        call["name"] += told["function"].get("name", "")
        call["arguments"] += told["function"].get("arguments", "")
    assert calls == {i: {"id": f"call_{i}", "name": f"tool_{i}", "arguments": '{"a":1}'} for i in range(3)}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning_reaches_the_client_counts_as_output_and_is_in_the_usage(name: str) -> None:
    """OpenRouter's ai-sdk-provider #22 (case 7): reasoning tokens never appeared in streams."""
    told = usage(9, 30, reasoning=20)
    steps = (EVENTS, *(chunk({name: f"think{at} "}) for at in range(3)), chunk({"content": "so"}), chunk(finish="stop", usage=told), DONE)

    text, line = await stream_of(steps, {"stream_guard": {"chunks": 3, "max_hold_ms": 60_000}}, stream_options={"include_usage": True})

    assert said(text, name) == said(text, "reasoning_content") == "think0 think1 think2 " and said(text) == "so"
    assert events(text)[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 20
    assert line["usage"]["reasoning_tokens"] == 20  # type: ignore[index]


async def test_reasoning_is_a_first_token_and_opens_the_guard() -> None:
    """OpenRouter's ai-sdk-provider #22 (case 7)."""
    model = {"stream_guard": {"chunks": 2}, "timeouts": {"first_token_ms": 200, "idle_ms": 600}}
    text, _ = await stream_of((EVENTS, chunk({"reasoning_content": "a"}), chunk({"reasoning": "b"}), Hang()), model)

    assert said(text, "reasoning_content") == "ab" and events(text)[-1]["error"]["code"] == "stream_interrupted"


@pytest.mark.parametrize("stream", [True, False])
async def test_unknown_fields_of_a_body_reach_the_provider_in_the_body_as_they_were_written(stream: bool) -> None:
    """OpenRouter's ai-sdk-provider #22 (case 7): an option meant for the body went out as a header."""
    mine = {"include_reasoning": True, "reasoning": {"effort": "high", "max_tokens": 2000}, "x_new": [1.10, None, {"é": "\u2028"}]}
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.chat(stream=stream, **mine) as answer:
            assert answer.status == 200
    (call,) = upstream.calls
    assert {name: call.json[name] for name in mine} == mine
    assert not {name.lower() for name, _ in call.headers} & mine.keys()
