"""Rows that other gateways lost, or wrote over one another."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from n4n.core.access import AccessSnapshot
from tests.bugs.test_clients_that_leave import asked
from tests.integration.test_usage_outages import counted, router_of, sums_agree
from tests.integration.test_usage_rows import metered
from tests.support.answers import completion, hang_before_headers, sse
from tests.support.fleet import Fleet, Role, ask, eventually, running_fleet
from tests.support.router import catalog
from tests.support.script import Answer, Chunk
from tests.support.upstream import HostedUpstream, ScriptedUpstream, reply, running_upstream

SKINS = {
    "chat/completions": {"messages": [{"role": "user", "content": "ping"}]},
    "completions": {"prompt": "ping"},
    "responses": {"input": "ping"},
    "messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "ping"}]},
}


def without_ids(answer: Answer) -> Answer:
    """The stream as a provider sends it that names nothing."""
    return tuple(replace(step, json={**step.json, "id": ""}) if isinstance(step, Chunk) else step for step in answer)  # type: ignore[dict-item]


@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.parametrize("stream", [False, True])
async def test_answers_without_an_id_or_with_one_for_all_are_a_row_each(tmp_path: Path, skin: str, stream: bool) -> None:
    """LiteLLM #6633 (case 20): the id of the answer was the row's key, and it was empty."""
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(then=without_ids(sse("pong")) if stream else completion("pong"))
        for _ in range(25):
            body = {"model": "m", **SKINS[skin], **({"stream": True} if stream else {})}
            async with house.http.post(f"{house.base_url}/{skin}", json=body, headers=house.headers(x_request_id="mine")) as answer:
                assert answer.status == 200
                await answer.read()
        rows = await kept.rows(25)

    assert len({row.attempt_id for row in rows}) == len(upstream.calls) == 25
    assert {(row.state, row.prompt_tokens, row.completion_tokens, row.cost_usd) for row in rows} == {("ok", 11, 7, "0.0000975")}


@pytest.mark.parametrize("stream", [False, True])
async def test_who_left_has_one_cancelled_row_and_nothing_is_reserved_any_more(tmp_path: Path, stream: bool) -> None:
    """LiteLLM #37140 (case 10): the call went on upstream, and its row told of an answer that nobody had."""
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(then=hang_before_headers())
        writer = await asked(house, stream)
        call = await upstream.arrived()
        await asyncio.sleep(0.1)
        left = time.monotonic()
        writer.transport.abort()
        assert await upstream.closed(call) - left < 0.5
        (row,) = await kept.rows(1)

    assert (row.state, row.status, row.completion_tokens, row.estimated, row.stream) == ("cancelled", None, 0, True, stream)


async def test_a_key_that_was_blocked_has_no_rows_from_then_on(tmp_path: Path) -> None:
    """LiteLLM #9820 (case 24): the other pods went on spending."""
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        for _ in range(5):
            async with house.chat() as answer:
                assert answer.status == 200
        house.state.access = AccessSnapshot(2, "a2", {})
        for _ in range(5):
            async with house.chat() as answer:
                assert answer.status == 401
        await kept.rows(5)

    assert len(upstream.calls) == 5


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        running.script(then=reply("pong", usage={"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}))
        yield running


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, upstream: HostedUpstream) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        running.apply(catalog(upstream.base_url))
        yield running


def test_a_router_that_is_told_to_go_right_after_the_last_answer_leaves_no_row_behind(fleet: Fleet, upstream: HostedUpstream) -> None:
    """LiteLLM #38157 (case 19): a graceful stop dropped the rows that waited; here also those of streams that end while it drains."""
    key, router = fleet.create_key(), router_of(fleet, "r1")
    for number in range(300):
        assert ask(router, key, stream=False, user=str(number))[0] == 200
    upstream.script(then=sse(*"abcdefghij", gap=0.1))
    streams = [threading.Thread(target=_read, args=(router, key)) for _ in range(5)]
    for stream in streams:
        stream.start()
    upstream.arrived(305)
    time.sleep(0.1)

    began = time.monotonic()
    assert router.stop() == 0
    assert time.monotonic() - began < 20
    for stream in streams:
        stream.join()

    assert counted(fleet) == {"ok": 305}
    assert list((fleet.folder / "r1" / "usage").iterdir()) == []
    assert sums_agree(fleet)
    (row,) = fleet.told("usage", "--by", "tenant", "--since", "1h")  # type: ignore[misc]
    assert (row["tenant"], row["requests"], row["prompt_tokens"], row["cost_usd"]) == ("acme", 305, 2455, 0.0184875)


def _read(router: Role, key: str) -> None:
    """A stream, to its end."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{router.environ['N4N_PORT']}/v1/chat/completions",
        json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "ping"}]}).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()
