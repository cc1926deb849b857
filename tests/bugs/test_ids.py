"""What identifies an attempt is ours, whatever ids clients and providers send."""

from __future__ import annotations

import asyncio

import pytest

from tests.bugs.streams import chunk, said
from tests.support.answers import DONE, EVENTS, error, usage
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Answer, Chunk
from tests.support.upstream import ScriptedUpstream


def numbered(id: str | None) -> Answer:
    """A stream all of whose chunks bear this id, or none."""
    steps = [chunk({"content": "a"}), chunk(finish="stop"), Chunk({"choices": [], "usage": usage()})]
    named = [{**dict(step.json), "id": id} for step in steps]  # type: ignore[arg-type]
    bare = [{name: value for name, value in one.items() if name != "id"} for one in named]
    return (EVENTS, *(Chunk(one) for one in (bare if id is None else named)), DONE)


async def ask(house: RunningRouter, label: str | None) -> str:
    """One stream with this label; its text."""
    async with house.chat(stream=True, headers={} if label is None else {"x-request-id": label}) as answer:
        text = await answer.text()
        assert label is None or answer.headers["x-request-id"] == label
        return text


@pytest.mark.parametrize("upstream_id", ["", "the same", None])
@pytest.mark.parametrize("label", [None, "the-same-label"])
async def test_a_hundred_calls_are_a_hundred_attempts_whatever_ids_are_sent(upstream_id: str | None, label: str | None) -> None:
    """LiteLLM #6633 (case 20): an id that was empty in one mode was the key, so that only the first row was kept."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=numbered(upstream_id))
        async with running_router(catalog(upstream.base_url)) as house:
            texts = await asyncio.gather(*(ask(house, label) for _ in range(100)))
            lines = await house.logged(100)
    assert {said(text) for text in texts} == {"a"}
    attempts = [attempt["attempt_id"] for line in lines for attempt in line["routing"]["attempts"]]  # type: ignore[index]
    assert len(set(attempts)) == len(upstream.calls) == 100 and all(attempts)
    assert {line["usage"]["total_tokens"] for line in lines} == {18}  # type: ignore[index]
    assert len({line["request_id"] for line in lines}) == (100 if label is None else 1)


async def test_every_attempt_of_a_request_has_an_id_of_its_own_and_all_bear_the_requests_label() -> None:
    """LiteLLM #6633 (case 20)."""
    async with ScriptedUpstream() as upstream:
        upstream.script(error(500), error(500))
        async with running_router(catalog(*[upstream.base_url] * 3)) as house:
            await ask(house, "label-1")
            (line,) = await house.logged()
    assert len({one["attempt_id"] for one in line["routing"]["attempts"]}) == 3  # type: ignore[index]
    assert [call.header("x-request-id") for call in upstream.calls] == ["label-1"] * 3
