"""The row of every attempt: one each, in its last state, with what the provider reported, what n4n counted and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from data_plane.ledger import Ledger
from n4n.core.ledger import Row, read_rows, settled_lines, still_open
from n4n.runtime.segments import Segments
from tests.support.answers import completion, error, fails_after, hang_after, hang_before_headers, rate_limited, reset_after, sse, usage
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.upstream import ScriptedUpstream


class Kept:
    """What a router has noted so far."""

    def __init__(self, ledger: Ledger, segments: Segments) -> None:
        self.ledger, self._segments = ledger, segments

    @property
    def lines(self) -> bytes:
        segment = self._segments.oldest()
        return b"" if segment is None else segment.read(1 << 22)

    async def rows(self, count: int) -> list[Row]:
        """So many settled rows, and no more."""
        async with asyncio.timeout(5):
            while settled_lines(self.lines).count(b"\n") < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        rows, refused = read_rows(settled_lines(self.lines))
        assert refused == 0 and len(rows) == count
        assert self.lines.count(b"\nD") + 1 == count, "each was noted before it was sent"
        assert self.ledger.unsettled() == []
        return rows


@asynccontextmanager
async def metered(
    folder: Path, *upstreams: str, key: Mapping[str, object] | None = None, price: object = None
) -> AsyncIterator[tuple[RunningRouter, Kept]]:
    endpoint = None if price is None else {"price": price}
    document = catalog(*upstreams, model={"retry": {"max_retries": 1, "backoff_ms": 1}}, endpoint=endpoint)
    async with running_router(document, key=key) as house:
        ledger = Ledger()
        ledger.segments = Segments(folder, "test", carried=ledger.unsettled)
        house.web._meter.ledger = ledger
        yield house, Kept(ledger, ledger.segments)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_attempt_that_ended_well_is_one_row_with_both_counts_and_the_exact_cost(tmp_path: Path, stream: bool):
    told = usage(1000, 100, cached=200, reasoning=40)
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(sse("pong", usage=told) if stream else completion("pong", usage=told))
        async with house.chat(headers={"x-request-id": "label-7"}, stream=stream) as answer:
            await answer.read()
        (row,) = await kept.rows(1)

    assert (row.state, row.error_class, row.status, row.attempt_no, row.stream) == ("ok", None, 200, 1, stream)
    assert (row.request_id, row.tenant, row.key_id) == ("label-7", "acme", "testtesttest")
    assert (row.endpoint, row.provider, row.account, row.model, row.tier, row.catalog_version) == ("e1", "pe1", "ae1", "m", "", 1)
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.reasoning_tokens) == (1000, 200, 100, 40)
    assert row.counted_prompt_tokens and row.counted_completion_tokens == 1 and (row.counted_by, row.estimated) == ("ratio", False)
    assert row.cost_usd == "0.0035"  # 1000 · 2.5 + 100 · 10 millionths
    assert row.ttft_ms is not None and row.latency_ms is not None and row.ttft_ms > 0
    assert row.priority == "interactive"


async def test_a_fallback_is_a_row_of_its_own_and_what_failed_costs_nothing(tmp_path: Path):
    async with ScriptedUpstream() as bad, ScriptedUpstream() as good, metered(tmp_path, bad.base_url, good.base_url) as (house, kept):
        bad.script(then=error(503))
        async with house.chat() as answer:
            assert answer.status == 200
        *failed, last = await kept.rows(len(bad.calls) + 1)

    assert {(row.state, row.error_class, row.status, row.endpoint, row.cost_usd, row.prompt_tokens) for row in failed} == {
        ("failed", "overloaded", 503, "e1", "0", 0)
    }
    assert (last.state, last.endpoint, last.attempt_no) == ("ok", "e2", len(failed) + 1)
    assert len({row.attempt_id for row in (*failed, last)}) == len(failed) + 1
    assert len({row.request_id for row in (*failed, last)}) == 1


async def test_a_stream_that_broke_after_the_client_saw_some_is_partial_and_its_output_is_counted(tmp_path: Path):
    for number, breaks in enumerate((reset_after(*"abcdefgh"), fails_after(*"abcdefgh"))):
        async with ScriptedUpstream() as upstream, metered(tmp_path / str(number), upstream.base_url) as (house, kept):
            upstream.script(breaks)
            async with house.chat(stream=True) as answer:
                assert "stream_interrupted" in await answer.text()
            (row,) = await kept.rows(1)

        assert (row.state, row.estimated, row.counted_by, row.completion_tokens) == ("partial", True, "ratio", 2)
        assert row.error_class and row.cost_usd not in (None, "0")


@pytest.mark.parametrize("seen", [False, True])
async def test_a_client_that_leaves_leaves_a_cancelled_row_with_the_estimate(tmp_path: Path, seen: bool):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(hang_after(*"abcdefgh") if seen else hang_before_headers())
        asking = asyncio.create_task(_first_bytes(house))
        await upstream.arrived()
        assert still_open({}, kept.lines), "were it killed now, the attempt would be known"
        if seen:
            await asking
        asking.cancel()
        await asyncio.wait([asking])
        (row,) = await kept.rows(1)

    assert (row.state, row.error_class, row.estimated) == ("cancelled", None, True)
    assert row.prompt_tokens > 0 and row.cost_usd not in (None, "0")
    assert (row.completion_tokens > 0) == seen


async def _first_bytes(house: RunningRouter) -> None:
    async with house.chat(stream=True) as answer:
        await answer.content.readany()


async def test_usage_that_cannot_be_is_replaced_and_flagged(tmp_path: Path):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(completion("pong" * 10, usage=usage(0, 0)), completion("pong" * 10, usage=None))
        for _ in range(2):
            async with house.chat() as answer:
                await answer.read()
        rows = await kept.rows(2)

    assert [(row.state, row.estimated, row.completion_tokens) for row in rows] == [("ok", True, 10)] * 2


async def test_a_hundred_answers_with_one_id_are_a_hundred_rows(tmp_path: Path):
    """Case 20: labels that providers or clients send are nobody's key."""
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        for _ in range(100):
            async with house.chat(headers={"x-request-id": "always-the-same"}) as answer:
                await answer.read()
        rows = await kept.rows(100)

    assert len({row.attempt_id for row in rows}) == 100


async def test_a_row_bears_the_tags_of_its_request_over_those_of_its_key(tmp_path: Path):
    key = {"tags": (("env", "prod"), ("team", "search"))}
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url, key=key) as (house, kept):
        async with house.chat(headers={"x-n4n-tags": "team=ads, run=7"}) as answer:
            assert answer.status == 200
        async with house.chat() as answer:
            assert answer.status == 200
        assert b'"tags"' not in b"".join(call.body for call in upstream.calls)
        assert not any(call.header("x-n4n-tags") for call in upstream.calls)
        async with house.chat(headers={"x-n4n-tags": "team"}) as answer:
            assert answer.status == 400 and (await answer.json())["error"]["param"] == "x-n4n-tags"
        rows = await kept.rows(2)

    assert [row.tags for row in rows] == [{"env": "prod", "run": "7", "team": "ads"}, {"env": "prod", "team": "search"}]


async def test_the_clients_own_metadata_goes_to_the_provider_untouched_and_is_no_tag(tmp_path: Path):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        async with house.chat(metadata={"team": "search"}) as answer:
            assert answer.status == 200
        (row,) = await kept.rows(1)

    assert upstream.calls[0].json["metadata"] == {"team": "search"} and row.tags == {}


async def test_a_key_that_demands_prices_is_served_by_priced_endpoints_alone(tmp_path: Path):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url, key={"require_pricing": True}, price={}) as (house, _):
        async with house.chat() as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["code"], error["n4n"]["eliminated"]) == (400, "no_eligible_endpoint", {"require_pricing": 1})
        assert not upstream.calls


async def test_what_has_no_price_is_metered_and_its_cost_is_unknown(tmp_path: Path):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url, price={}) as (house, kept):
        async with house.chat() as answer:
            body = await answer.json()
            assert "x-n4n-usage-cost-usd" not in answer.headers and body["n4n"]["cost_usd"] is None
        (row,) = await kept.rows(1)

    assert row.cost_usd is None and row.prompt_tokens == 11 and body["n4n"]["warnings"] == []


async def test_a_request_that_was_never_dispatched_has_no_row(tmp_path: Path):
    async with ScriptedUpstream() as upstream, metered(tmp_path, upstream.base_url) as (house, kept):
        async with house.chat(model="nothing") as answer:
            assert answer.status == 404
        upstream.script(rate_limited(retry_after=60))
        async with house.chat() as answer:
            assert answer.status == 429
        (row,) = await kept.rows(1)

    assert (row.state, row.error_class, row.status) == ("failed", "rate_limited", 429)
