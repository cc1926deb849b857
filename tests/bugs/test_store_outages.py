"""Cases 28 and 29: an answer that reaches somebody else after a cancelled call, and a store whose outage blocks requests for ever."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores import Script, Store, StoreSettings, Tcp, command, settings_of
from tests.support.loops import on_both_loops
from tests.support.store import READY_S, Changes
from tests.support.store_proxy import store_proxy
from tests.support.valkey import ValkeyServer, running_valkey

NONCE = Script("nonce", "return {KEYS[1], ARGV[1]}")
CALLS, AT_ONCE = 2_000, 200
DELAY_S = 0.1
OURS_S = 0.4  # a busy machine's own lateness, on top of a deadline


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A server that stays well."""
    with running_valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@dataclass
class Score:
    """What became of the calls."""

    right: int = 0
    crossed: int = 0
    gone: int = 0
    failed: list[str] = field(default_factory=list)


async def one_call(store: Store, nonce: str, score: Score) -> None:
    """A call that checks that the answer is its own, by script, by command or in a pipeline."""
    match random.randrange(3):
        case 0:
            answers = [await store.run(NONCE, ["k"], [nonce])]
        case 1:
            answers = [[b"k", await store.command(command(b"ECHO", nonce))]]
        case _:
            outcomes = await store.pipeline([NONCE.call(["k"], [nonce]), command(b"ECHO", nonce)])
            for outcome in outcomes:
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
            answers = [outcomes[0], [b"k", outcomes[1]]]
    if all(answer == [b"k", nonce.encode()] for answer in answers):
        score.right += 1
    else:
        score.crossed += 1


async def client(store: Store, numbers: Iterator[int], score: Score) -> None:
    """Calls one after the other; half of them go away at a random moment."""
    for number in numbers:
        call = asyncio.create_task(one_call(store, f"nonce-{number}", score))
        if number % 2:
            await asyncio.wait([call], timeout=random.uniform(0, 2.5 * DELAY_S))
            call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            score.gone += 1
        except StoreUnavailable as error:
            score.failed.append(str(error))


@on_both_loops
async def test_half_of_2000_calls_cancelled_leave_no_answer_to_anybody_else(server: ValkeyServer) -> None:
    async with store_proxy(server.port) as proxy:
        store = Store(settings_of(proxy.url, deadline_s=5.0))
        try:
            assert await store.ready(READY_S)
            proxy.delay_s = DELAY_S
            numbers, score = iter(range(CALLS)), Score()
            await asyncio.gather(*(client(store, numbers, score) for _ in range(AT_ONCE)))
            assert (score.crossed, score.failed) == (0, [])
            assert score.right + score.gone == CALLS and score.gone > CALLS / 4
            assert store.state is Breaker.CLOSED and proxy.connections == 2  # one that asked what the server is; no call made another
        finally:
            await store.close()


@on_both_loops
async def test_calls_that_run_out_of_time_beside_cancelled_ones_leave_no_answer_either(server: ValkeyServer) -> None:
    async with store_proxy(server.port) as proxy:
        store = Store(settings_of(proxy.url, deadline_s=0.2))
        try:
            assert await store.ready(READY_S)
            numbers, score = iter(range(CALLS)), Score()
            calls = asyncio.gather(*(client(store, numbers, score) for _ in range(AT_ONCE)))
            while not calls.done():
                proxy.delay_s = random.uniform(0.0, 0.13)
                await asyncio.sleep(0.02)
            assert score.crossed == 0 and score.right > 0 and score.right + score.gone + len(score.failed) == CALLS
        finally:
            await store.close()


def by_url(port: int) -> StoreSettings:
    """As N4N_REDIS_URL says it."""
    return settings_of(f"redis://127.0.0.1:{port}/0")


def by_hand(port: int) -> StoreSettings:
    """As host and port."""
    return StoreSettings((Tcp("127.0.0.1", port),))


@dataclass
class Load:
    """Requests that each ask the store once, and how long each took: (begun, seconds, answered)."""

    store: Store
    took: list[tuple[float, float, bool]] = field(default_factory=list)
    stop: bool = False

    async def run(self, kind: int) -> None:
        """Until it is stopped."""
        while not self.stop:
            begun = time.monotonic()
            self.took.append((begun, *(await self._timed(kind, begun))))
            await asyncio.sleep(0.002)

    async def _timed(self, kind: int, begun: float) -> tuple[float, bool]:
        try:
            async with asyncio.timeout(5):
                match kind % 3:
                    case 0:
                        await self.store.run(NONCE, ["k"], ["x"])
                    case 1:
                        await self.store.command(command(b"GET", "k"))
                    case _:
                        outcomes = await self.store.pipeline([NONCE.call(["k"], ["x"])])
                        return time.monotonic() - begun, not isinstance(outcomes[0], StoreUnavailable)
        except StoreUnavailable:
            return time.monotonic() - begun, False
        return time.monotonic() - begun, True


@pytest.mark.parametrize("configured", [by_url, by_hand])
@on_both_loops
async def test_a_stopped_redis_blocks_nobody_and_is_taken_back(configured: object, tmp_path: Path) -> None:
    with running_valkey(tmp_path) as victim:
        changes = Changes()
        store = Store(configured(victim.port), changes)  # type: ignore[operator]
        try:
            assert await store.ready(READY_S)
            deadline_s = by_hand(1).deadline_s
            assert deadline_s == by_url(1).deadline_s == 0.05
            load = Load(store)
            clients = [asyncio.create_task(load.run(kind)) for kind in range(12)]
            await asyncio.sleep(0.2)

            stopped, on_loop = time.monotonic(), asyncio.get_running_loop().time()
            victim.freeze()
            await changes.until(lambda: changes[-1][0] is Breaker.OPEN, within_s=2)
            assert changes.at[-1] - on_loop < 1  # scripts, commands and pipelines alike: all count
            opened = time.monotonic()
            await asyncio.sleep(2)
            thawed = time.monotonic()
            victim.thaw()
            assert await store.ready(5)
            await asyncio.sleep(0.3)
            load.stop = True
            await asyncio.gather(*clients)
        finally:
            victim.thaw()
            await store.close()

        assert max(took for _, took, _ in load.took) < deadline_s + OURS_S
        while_open = [took for begun, took, _ in load.took if opened < begun < thawed]
        assert statistics.quantiles(while_open, n=20)[18] < 0.002
        assert not any(answered for begun, _, answered in load.took if opened < begun < thawed)
        assert all(answered for begun, took, answered in load.took if begun + took < stopped)
        assert load.took[-1][2]
