"""What a router has under way, told to Redis, so that it is known even where the whole machine is lost with its disk.

    n4n:{open}          runs by their last word, which is another number each second
    n4n:{open:RUN}      of one run: the dispatch line of every attempt whose row is not in Postgres yet, by attempt; and the router's name

A dispatch is written with all others of the same ten milliseconds; nobody waits for that, and no request pays a round trip. It goes when
Postgres has its row. While Redis is away nothing is written; when it is back, or has forgotten us, all that is under way is written anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.core.ledger import DISPATCHED, attempt_of
from n4n.runtime.stores import Command, Outcome, Reply, Store, Word, command

INDEX = "n4n:{open}"
WRITE_S = 0.01  # dispatches are gathered for so long
BEAT_S = 1.0
KEPT_S = 7 * 86_400  # how long Redis keeps what nobody comes for
MOST_KEPT = 20_000  # of one run, in Redis: beyond, those that are settled go before Postgres has them
MOST_GONE = 50_000  # attempts whose removal waits for Redis to come back
_CHUNK = 500
_AGAIN_S = 0.1
_NODE = "node"  # the field that holds the router's name


def _key(run: str) -> str:
    return f"n4n:{{open:{run}}}"


class OpenAttempts:
    """Of one run. `unsettled`: the dispatch lines of what is under way; `wall`: any number that grows, such as Unix time."""

    def __init__(self, store: Store, run: str, node: str, *, unsettled: Callable[[], list[bytes]], wall: Callable[[], float]) -> None:
        self._store, self._run, self._node, self._unsettled, self._wall = store, run, node, unsettled, wall
        self._key = _key(run)
        self._added: list[Word] = []  # attempt, line, attempt, line, …
        self._gone: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._behind = True  # Redis does not have all that is under way
        self._overflown = False  # more went than could be remembered
        self.crowded = False  # Redis holds too many: what is settled goes at once

    def __repr__(self) -> str:
        return f"<OpenAttempts {self._run}: {len(self._added) // 2} to write, {len(self._gone)} to remove>"

    def dispatched(self, attempt: str, line: bytes) -> None:
        """It is about to be sent."""
        self._added += (attempt, line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_S, self._rang)

    def settled(self, attempt: str) -> None:
        """Its row is on our disk; called where `crowded`."""
        self._remove([attempt])

    def shipped(self, lines: bytes) -> None:
        """These settled lines are in Postgres."""
        self._remove([attempt_of(line).decode() for line in lines.splitlines()])

    def forget(self, run: str) -> None:
        """All that another run left is in Postgres, and Redis need not hold it."""
        for one in (command(b"DEL", _key(run)), command(b"ZREM", INDEX, run)):
            self._store.post(one)

    async def keep(self) -> None:
        """Tells once a second that we live, and at once when Redis has come (back), until it is cancelled."""
        while True:
            await self._store.ready(BEAT_S)
            await self.beat()
            await asyncio.sleep(BEAT_S if not self._behind else _AGAIN_S)

    async def beat(self) -> None:
        """One word; what was missed meanwhile is written, and what went is removed."""
        beat = (
            command(b"HSET", self._key, _NODE, self._node),
            command(b"HLEN", self._key),
            command(b"EXPIRE", self._key, KEPT_S),
            command(b"ZADD", INDEX, repr(self._wall()), self._run),
            command(b"EXPIRE", INDEX, KEPT_S),
        )
        outcomes = await self._store.pipeline(beat)
        if any(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
            self._behind = True
            return
        _, held, _, is_new, _ = outcomes
        self.crowded = isinstance(held, int) and held > MOST_KEPT
        if self._behind or is_new == 1:
            self._write_all()
        self._send()

    def close(self, *, all_shipped: bool) -> None:
        """The end of the run; what is not shipped stays known. Call it while the store is open."""
        self._rang()
        if all_shipped:
            self.forget(self._run)

    # --- what is sent and not waited for ---

    def _remove(self, attempts: Sequence[str]) -> None:
        if len(self._gone) + len(attempts) > MOST_GONE:
            self._gone, self._overflown = [], True
        else:
            self._gone += attempts

    def _rang(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send()

    def _send(self) -> None:
        """In this order: what is dispatched and gone in one breath is gone."""
        added, self._added = self._added, []
        if added and not self._store.post(command(b"HSET", self._key, *added)):
            self._behind = True
        for at in range(0, len(self._gone), _CHUNK):
            if not self._store.post(command(b"HDEL", self._key, *self._gone[at : at + _CHUNK])):
                self._gone = self._gone[at:]
                return
        self._gone = []

    def _write_all(self) -> None:
        if self._overflown and not self._store.post(command(b"DEL", self._key)):
            return
        lines = self._unsettled()
        for at in range(0, len(lines), _CHUNK):
            words: list[Word] = []
            for line in lines[at : at + _CHUNK]:
                words += (attempt_of(line), line)
            if not self._store.post(command(b"HSET", self._key, *words)):
                return
        self._behind = self._overflown = False


class LeftBehind:
    """What runs left in Redis, as a control plane sees it. Every call raises StoreUnavailable where Redis does not answer in time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def words(self) -> dict[str, float]:
        """Every run's last word."""
        match await self._store.command(command(b"ZRANGE", INDEX, 0, -1, b"WITHSCORES")):
            case list() as reply:
                told = cast(Sequence[bytes], reply)
                words = zip(told[::2], told[1::2], strict=True)
                named = {run.decode(errors="replace"): float(word) for run, word in words}
                return {run: word for run, word in named.items() if "\ufffd" not in run}  # that was none of our runs
            case _:
                raise StoreRefused("CROSSED", "open attempts")

    async def node(self, run: str) -> str:
        """Which router it was; its run where that is not known."""
        told = await self._store.command(command(b"HGET", _key(run), _NODE))
        return told.decode(errors="replace") if isinstance(told, bytes) else run

    async def dispatches(self, run: str) -> AsyncIterator[dict[bytes, bytes]]:
        """Its dispatch lines by attempt, some hundreds at a time; perhaps one of them twice."""
        cursor: bytes | int = 0
        while True:
            cursor, told = _scanned(await self._store.command(command(b"HSCAN", _key(run), cursor, b"COUNT", _CHUNK)))
            fields = dict(zip(told[::2], told[1::2], strict=True))
            yield {attempt: line for attempt, line in fields.items() if line.startswith(DISPATCHED)}
            if int(cursor) == 0:
                return

    async def closed(self, run: str, attempts: Sequence[bytes]) -> None:
        """These have their rows."""
        if attempts:
            await self._store.command(command(b"HDEL", _key(run), *attempts))

    async def forget(self, run: str) -> None:
        """All of it has. A router that lives after all writes itself down again, with everything that it has under way."""
        await _all_of(self._store, (command(b"DEL", _key(run)), command(b"ZREM", INDEX, run)))


async def _all_of(store: Store, commands: Sequence[Command]) -> list[Outcome]:
    outcomes = await store.pipeline(commands)
    for outcome in outcomes:
        if isinstance(outcome, StoreUnavailable):
            raise outcome
    return outcomes


def _scanned(reply: Reply) -> tuple[bytes, Sequence[bytes]]:
    match reply:
        case [bytes(cursor), list() as told]:
            return cursor, cast(Sequence[bytes], told)
        case _:
            raise StoreRefused("CROSSED", "open attempts")
