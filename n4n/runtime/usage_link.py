"""Ships a router's usage to any control plane: batches of settled rows, one on the way at a time, each until it is acknowledged.

What a batch holds is safe in Postgres once it is acknowledged, and may arrive twice: rows are told apart by their attempt. Runs whose
process is gone are taken over first: what they had dispatched and not settled is closed as unknown in our own log, then theirs is shipped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see control_link

import grpc

from n4n.core.discovery import LinkRules, Tries, answered, next_try
from n4n.core.errors import StartFailed
from n4n.core.ledger import closed_as_unknown, settled_lines, still_open, whole_lines
from n4n.runtime import wire
from n4n.runtime.control_link import Identity, open_channel, told
from n4n.runtime.open_attempts import OpenAttempts
from n4n.runtime.segments import Orphan, Segments, orphans
from n4n.runtime.spans import Tracer, begun, carried
from n4n.runtime.tracing import Kind

REPORT = "/n4n.v1.Usage/Report"
BATCH_BYTES = 512 << 10  # of a segment; a thousand rows
EVERY_S = 0.5
LOOK_FOR_ORPHANS_S = 2.0
CALL_S = 15.0
log = logging.getLogger("n4n.usage")


class UsageLink:
    """`run` until cancelled, then `last_words`. Plain attributes tell how it stands."""

    def __init__(
        self,
        targets: Sequence[str],
        identity: Identity,
        segments: Segments,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float],
        known: OpenAttempts | None = None,
        rules: LinkRules | None = None,
        every_s: float = EVERY_S,
        tracer: Tracer | None = None,
    ) -> None:
        """`known`: hears of what is safe."""
        self.problem = ""  # why the last batch did not arrive; empty: it did
        self.shipped = 0  # bytes acknowledged
        self._targets = itertools.cycle(targets) if targets else None
        self._identity, self._segments, self._known = identity, segments, known
        self._clock, self._draw, self._rules, self._every_s = clock, draw, rules or LinkRules(), every_s
        self._tracer = tracer
        self._tries = Tries()
        self._channel: grpc.aio.Channel | None = None
        self._report: Callable[..., grpc.aio.UnaryUnaryCall[bytes, bytes]] | None = None

    def __repr__(self) -> str:
        return f"UsageLink({self._segments!r}, {self.problem!r})"

    async def run(self) -> None:
        """Until cancelled."""
        look_at = self._clock()
        try:
            while True:
                if self._clock() >= look_at:
                    await self._take_over_all()
                    look_at = self._clock() + LOOK_FOR_ORPHANS_S
                if not await self._ship_next():
                    await asyncio.sleep(self._every_s)
        finally:
            await self._hang_up()

    async def last_words(self, within_s: float) -> None:
        """Ships what there is; what does not arrive in time stays for whoever comes next."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while await self._ship_next():
                    pass
        await self._hang_up()

    async def _ship_next(self) -> bool:
        """One batch of our own; False: there is none."""
        segment = self._segments.oldest()
        if segment is None:
            return False
        lines = segment.read(BATCH_BYTES)
        end = segment.acked + len(lines)
        settled = settled_lines(lines)
        await self._deliver(str(segment.path and segment.path.name), end, settled)
        self._segments.acked(segment, end)
        if self._known is not None:
            self._known.shipped(settled)
        return True

    async def _take_over_all(self) -> None:
        gone = [orphan for orphan in orphans(self._segments.folder) if await self._take_over(orphan)]
        if gone and self._known is not None:
            while await self._ship_next():  # what they never settled stands in our own log now
                pass
            for orphan in gone:
                self._known.forget(orphan.name)

    async def _take_over(self, orphan: Orphan) -> bool:
        """Whether all of it is shipped, but for what we closed."""
        try:
            left: dict[bytes, bytes] = {}
            for path in orphan.paths:
                left = still_open(left, await _lines_of(path))
            log.info(
                "usage that %s left in %d segments is shipped; attempts it never settled: %d", orphan.name, len(orphan.paths), len(left)
            )
            for line in closed_as_unknown(left.values()):
                self._segments.append(line)
            for path in orphan.paths:
                settled = settled_lines(await _lines_of(path))
                while settled:
                    end = settled.find(b"\n", BATCH_BYTES) + 1 or len(settled)
                    await self._deliver(path.name, end, settled[:end])
                    settled = settled[end:]
                orphan.shipped(path)
        except OSError as error:
            log.warning("usage that %s left cannot be read (%s)", orphan.name, (error.strerror or str(error)).lower())
        finally:
            orphan.leave()
        return not orphan.paths

    async def _deliver(self, source: str, end: int, rows: bytes) -> None:
        """Until some control plane has it."""
        if not rows:
            return
        while True:
            with begun(self._tracer, "n4n.v1.Usage/Report", Kind.CLIENT) as work:
                problem = await self._try(wire.encode_usage(self._identity.node, source, end, rows), end)
                if work is not None:
                    work.told |= {"rpc.system.name": "grpc", "rpc.method": "n4n.v1.Usage/Report", "n4n.bytes": len(rows)}
                    if problem:
                        work.fail("not_shipped")
            if problem != self.problem:
                log.log(logging.WARNING if problem else logging.INFO, "usage: %s", problem or "it is shipped again")
            self.problem = problem
            if not problem:
                self._tries = answered(self._tries)
                self.shipped += len(rows)
                return
            await self._hang_up()
            self._tries, wait = next_try(self._tries, self._clock(), self._draw(), self._rules)
            await asyncio.sleep(wait)

    async def _try(self, report: bytes, end: int) -> str:
        """'' when it is safe, else why not."""
        if self._targets is None:
            return "no control plane is named; set N4N_ADMIN_URL"
        try:
            if self._report is None:
                self._channel = open_channel(next(self._targets), self._rules.connect_s, self._identity.tls)
                self._report = self._channel.unary_unary(REPORT, None, None)
            receipt = await self._report(report, timeout=CALL_S, metadata=(*self._identity.metadata, *carried()))
        except grpc.aio.AioRpcError as error:
            return told(error)
        except StartFailed as error:
            return str(error)
        return "" if wire.acknowledged_usage(receipt) == end else "the control plane acknowledged something else; is it of another version?"

    async def _hang_up(self) -> None:
        channel, self._channel, self._report = self._channel, None, None
        if channel is not None:
            await channel.close(None)


async def _lines_of(path: Path) -> bytes:
    """Off the loop: it may be many segments, of megabytes each, on a disk that has just been busy."""
    return whole_lines(await asyncio.to_thread(path.read_bytes))
