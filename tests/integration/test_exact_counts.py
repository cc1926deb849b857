"""Counts of n4n's own beside what providers report: which answers are counted, what becomes of their rows, and what nobody waits for."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from data_plane.counting import Counting
from data_plane.ledger import Ledger
from n4n.core.counting.wire import Question, packed
from n4n.core.ledger import Row, read_rows, settled_lines
from n4n.runtime.segments import Segments
from tests.support.answers import JSON, completion, fails_after, hang_after, sse, usage
from tests.support.counting import counters, tokenizer
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.router import instruments_of_tests as instruments
from tests.support.script import Answer, Whole
from tests.support.upstream import ScriptedUpstream

SAID = "The quick brown fox jumps over the lazy dog. "  # 10 tokens of o200k
FLEX = {"service_tiers": {"flex": {"input_per_1m": 1.25, "output_per_1m": 5}}}


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped is counted on: no metrics take it meanwhile."""
    monkeypatch.setattr("data_plane.counting.TELL_S", 3600.0)


class Kept:
    """What a router has noted so far."""

    def __init__(self, ledger: Ledger, segments: Segments) -> None:
        self.ledger, self._segments = ledger, segments

    @property
    def rows(self) -> list[Row]:
        """All settled rows, revised ones too."""
        segment = self._segments.oldest()
        rows, refused = read_rows(settled_lines(b"" if segment is None else segment.read(1 << 22)))
        assert refused == 0
        return rows

    async def revised(self, count: int) -> list[Row]:
        """So many revised rows."""
        await eventually(lambda: sum(row.revision for row in self.rows) >= count)
        return [row for row in self.rows if row.revision]

    @property
    def counting(self) -> Counting:
        assert self.ledger.counting is not None
        return self.ledger.counting


async def eventually(true: Callable[[], object]) -> None:
    """AssertionError after ten seconds."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def counted(
    folder: Path, upstream: str, *, one_in: int = 1, path: str | None = None, price: object = None
) -> AsyncIterator[tuple[RunningRouter, Kept]]:
    """A router whose answers are counted, by a process of its own unless a path is given."""
    endpoint = {} if price is None else {"price": price}
    async with counters(folder) as own, running_router(catalog(upstream, endpoint=endpoint)) as house:
        ledger = Ledger()
        ledger.segments = Segments(folder, "test", carried=ledger.unsettled)
        ledger.counting = Counting(path or own, one_in, ledger, clock=time.monotonic)
        house.web._meter.ledger = ledger
        keeping = asyncio.create_task(ledger.counting.keep(instruments()))
        if path is None:
            await eventually(lambda: "there" in repr(ledger.counting))
        try:
            yield house, Kept(ledger, ledger.segments)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping


async def ask(house: RunningRouter, *, stream: bool = False, **fields: object) -> str:
    async with house.chat(stream=stream, **fields) as answer:
        return await answer.text()


def tokens(text: str) -> int:
    return tokenizer().count("o200k", text)


PROMPT = 3 + 3  # around one message and before the answer; with `user` and `ping` 8


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_the_share_has_its_exact_counts_beside_the_reported_ones(tmp_path: Path, stream: bool):
    told = usage(PROMPT + 2, 22)
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(sse(*([SAID] * 2), usage=told) if stream else completion(SAID * 2, usage=told))
        await ask(house, stream=stream)
        (row,) = await kept.revised(1)
        first, _ = kept.rows

    assert tokens(SAID * 2) == 21
    assert (row.counted_prompt_tokens, row.counted_completion_tokens, row.counted_by) == (8, 21, "o200k")
    assert (row.prompt_tokens, row.completion_tokens, row.estimated, row.doubt) == (8, 22, False, None), "billed is what was reported"
    assert (first.counted_by, first.revision, row.revision) == ("ratio", 0, 1)
    same = [name for name in Row.__struct_fields__ if not name.startswith("counted") and name != "revision"]
    assert [getattr(first, name) for name in same] == [getattr(row, name) for name in same]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_has_no_usage_is_billed_by_the_exact_count_once_it_is_there(tmp_path: Path, stream: bool):
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, one_in=0) as (house, kept):
        upstream.script(sse(SAID, usage=None) if stream else completion(SAID, usage=None))
        await ask(house, stream=stream)
        (row,) = await kept.revised(1)

    assert (row.prompt_tokens, row.completion_tokens, row.estimated, row.doubt) == (8, tokens(SAID), True, "missing")
    assert (row.counted_prompt_tokens, row.counted_completion_tokens, row.counted_by) == (8, tokens(SAID), "o200k")
    assert row.cost_usd == f"0.0001{2 + (tokens(SAID) - 10):d}"  # 8 · 2.5 + 10 · 10 millionths


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_stream_that_was_broken_off_is_counted_as_far_as_it_came(tmp_path: Path, leaves: bool):
    words = [f"word{number} " for number in range(30)]
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, one_in=0) as (house, kept):
        upstream.script(hang_after(*words) if leaves else fails_after(*words))
        async with house.chat(stream=True) as answer:
            seen = b""
            while b"word29" not in seen:
                seen += await answer.content.readany()
                assert seen
        (row,) = await kept.revised(1)

    assert row.state == ("cancelled" if leaves else "partial")
    assert (row.completion_tokens, row.counted_by, row.estimated) == (tokens("".join(words)), "o200k", True)


async def test_of_the_rest_one_in_so_many_is_counted_and_the_ids_tell_which(tmp_path: Path):
    from n4n.core.counting.sample import is_sampled

    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, one_in=5) as (house, kept):
        upstream.script(then=completion(SAID))
        await asyncio.gather(*(ask(house) for _ in range(100)))
        expected = {row.attempt_id for row in kept.rows if is_sampled(row.attempt_id, 5)}
        await kept.revised(len(expected))
        await asyncio.sleep(0.05)

        assert {row.attempt_id for row in kept.rows if row.revision} == expected
        assert 5 <= len(expected) <= 40


async def test_the_ratio_of_what_is_not_counted_is_learned_from_what_is(tmp_path: Path):
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(then=completion(SAID * 40, usage=usage(8, 999_999)))
        for number in range(1, 40):
            await ask(house)
            await kept.revised(number)
        last = kept.rows[-2]

    truth = tokens(SAID * 40)
    assert last.counted_by == "ratio" and abs(last.counted_completion_tokens - truth) < truth * 0.05, "whatever the provider says"


async def test_what_a_provider_counts_too_much_shows_per_endpoint(tmp_path: Path):
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url) as (house, kept):
        truth = tokens(SAID * 20)
        upstream.script(then=completion(SAID * 20, usage=usage(8, round(truth * 1.1))))
        for _ in range(10):
            await ask(house)
        await kept.revised(10)
        out, into = kept.counting.compared["e1", "output"], kept.counting.compared["e1", "input"]

    assert out.reported / out.counted == pytest.approx(1.1, abs=0.01)
    assert into.reported == into.counted == 80


async def test_tools_and_pictures_are_no_texts_so_that_nothing_is_compared_and_the_rest_is(tmp_path: Path):
    picture = [{"type": "text", "text": "ping"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url) as (house, kept):
        upstream.script(then=completion(SAID, usage=usage(800, 10)))
        await ask(house, messages=[{"role": "user", "content": picture}])
        (row,) = await kept.revised(1)

    assert (row.counted_prompt_tokens, row.counted_completion_tokens) == (None, tokens(SAID))


def served_at(tier: str) -> Answer:
    """An answer that names its tier of service."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}
    return (JSON, Whole(json.dumps({"id": "c", "choices": [choice], "usage": dict(usage(100, 10)), "service_tier": tier}).encode()))


async def test_a_named_tier_without_a_price_is_unknown_and_said_so(tmp_path: Path):
    price = {"input_per_1m": 2.5, "output_per_1m": 10, **FLEX}
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, one_in=0, price=price) as (house, kept):
        upstream.script(served_at("flex"), served_at("scale"))
        async with house.chat() as answer:
            flex = await answer.json()
        async with house.chat() as answer:
            scale = await answer.json()
            assert "x-n4n-usage-cost-usd" not in answer.headers
        rows = kept.rows

    assert flex["n4n"]["cost_usd"] == 0.000175  # 100 · 1.25 + 10 · 5 millionths
    assert scale["n4n"]["cost_usd"] is None
    assert scale["n4n"]["warnings"] == ["the cost is not known: service tier scale has no price at endpoint e1"]
    assert [(row.service_tier, row.cost_usd) for row in rows] == [("flex", "0.000175"), ("scale", None)]


async def test_nobody_waits_for_a_process_that_is_away_and_what_it_missed_is_told(tmp_path: Path):
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, path=str(tmp_path / "nobody")) as (house, kept):
        upstream.script(then=completion(SAID))
        for _ in range(3):
            await ask(house)
        assert len(kept.rows) == 3 and kept.counting.dropped["away"] == 3


async def test_a_process_that_stands_still_costs_its_counts_and_no_memory(tmp_path: Path):
    """Given a process that takes connections and reads nothing, when many answers come, then what does not fit is dropped and told."""
    stalled = socket.socket(socket.AF_UNIX)  # the kernel takes connections for it
    stalled.bind(str(tmp_path / "still"))
    stalled.listen()
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, path=str(tmp_path / "still")) as (house, kept):
        await eventually(lambda: "there" in repr(kept.counting))
        upstream.script(then=completion("x" * 500_000))
        for _ in range(30):
            await ask(house)
        assert kept.counting.dropped["full"] > 0
        assert kept.counting._writer.transport.get_write_buffer_size() < 12 << 20
    stalled.close()


async def test_a_router_that_comes_back_finds_the_process_that_came_back(tmp_path: Path):
    path = str(tmp_path / "again")
    async with ScriptedUpstream() as upstream, counted(tmp_path, upstream.base_url, path=path) as (house, kept):
        upstream.script(then=completion(SAID))
        await ask(house)
        assert kept.counting.dropped["away"] == 1
        (tmp_path / "later").mkdir()
        async with counters(tmp_path / "later") as there:
            os.symlink(there, path)
            await eventually(lambda: "there" in repr(kept.counting))
            await ask(house)
            await kept.revised(1)


async def test_streams_are_kept_within_bounds_over_all_of_them(tmp_path: Path):
    counting = Counting("", 1, Ledger(), clock=time.monotonic)
    whole, first, second = counting.room, counting.kept(), counting.kept()
    first.add(b"x" * 1000)
    assert counting.room == whole - 1000 and first.pieces == [b"x" * 1000]
    for _ in range(2000):
        second.add(b"x" * 1000)
    assert second.pieces is None, "one stream alone cannot have it all"
    counting.room = 500
    first.add(b"x" * 1000)
    assert first.pieces is None
    first.release()
    second.release()
    assert counting.room == 1500


async def test_who_asks_in_words_that_are_none_is_hung_up_on(tmp_path: Path):
    async with counters(tmp_path) as path:
        for noise in (b"\xff\xff\xff\xff", (4).to_bytes(4, "big") + b"abcd"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(noise)
            assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(packed(Question(7, "m", b"no json", [])))
        assert await reader.readexactly(4)
        writer.close()
