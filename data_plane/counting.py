"""A router's side of counting: what of its answers is counted, brought to the counting process of the node, and what comes back of it.

    settled ─▶ doubted, or one of the share? ─▶ brought ─▶ counted ─▶ the row once more, revised; the ratios of its model learn

Rows are written before, with counts by ratio: nothing waits for a count, and what is not counted within PATIENCE_S, or for want of room, or
because the process is away, stays as it was. Pieces of streams are kept until they end, within bounds over all streams of this router.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from data_plane.record import AttemptRecord, Record
from n4n.core.chat import Usage
from n4n.core.counting.encodings import is_own
from n4n.core.counting.ratios import Ratios
from n4n.core.counting.sample import is_sampled
from n4n.core.counting.wire import LENGTH, MOST_BYTES, Counted, Question, Unreadable, counted, packed
from n4n.runtime.telemetry import Instruments

PATIENCE_S = 10.0
RETRY_S, TELL_S = 1.0, 1.0
MOST_WAITING = 8 << 20  # bytes on their way to the process
MOST_PENDING = 1024
MOST_QUESTION = 2 << 20  # bytes of one question: pictures and documents are not counted anyway
MOST_KEPT = 64 << 20  # bytes of all streams of this router
MOST_OF_ONE = 1 << 20


class Kept:
    """The pieces of one stream while it runs. `pieces` None: there was no room for all of them."""

    __slots__ = ("_counting", "_size", "pieces")

    def __init__(self, counting: Counting) -> None:
        self._counting, self._size = counting, 0
        self.pieces: list[bytes] | None = []

    def add(self, piece: bytes) -> None:
        """One more that bears text."""
        if self.pieces is None:
            return
        size = len(piece)
        if self._size + size > MOST_OF_ONE or self._counting.room < size:
            self.release()
            self.pieces = None
            return
        self.pieces.append(piece)
        self._size += size
        self._counting.room -= size

    def release(self) -> None:
        """The stream has ended; whoever wants the pieces has them."""
        self._counting.room += self._size
        self._size = 0


class Waiting(msgspec.Struct):
    """An answer on its way to be counted, without what is in it."""

    record: Record
    attempt: AttemptRecord
    reported: Usage | None
    output_bytes: int
    latency_ms: float
    until: float


class Revising(Protocol):
    """Who writes rows."""

    def revise(self, waiting: Waiting, told: Counted) -> None:
        """The row of an attempt once more, with its exact counts."""
        ...


class Compared:
    """Tokens of one endpoint that were both reported and counted, in one direction, since they were last told."""

    __slots__ = ("counted", "reported")

    def __init__(self) -> None:
        self.counted = self.reported = 0


class Counting:
    """Of one router. `path`: the socket of the counting process; `one_in`: the share that is counted though nothing is wrong."""

    def __init__(self, path: str, one_in: int, ledger: Revising, *, clock: Callable[[], float]) -> None:
        self._path, self._one_in, self._ledger, self._clock = path, one_in, ledger, clock
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, Waiting] = {}
        self._number = 0
        self._ratios: dict[str, Ratios] = {}
        self.room = MOST_KEPT
        self.counted = 0
        self.dropped = {"away": 0, "full": 0, "large": 0, "late": 0}
        self.compared: dict[tuple[str, str], Compared] = {}  # by endpoint and direction
        self._own: dict[str, bool] = {}  # endpoints whose models are counted by their own vocabulary

    def __repr__(self) -> str:
        return f"<Counting {self._path}: {'there' if self._writer else 'away'}, {len(self._waiting)} waiting, {self.dropped} dropped>"

    def kept(self) -> Kept:
        """For a stream that begins."""
        return Kept(self)

    def ratios(self, model: str) -> Ratios:
        """Bytes to a token of a model's requests and answers, as far as they were counted."""
        known = self._ratios.get(model)
        if known is None:
            known = self._ratios[model] = Ratios()
        return known

    def settled(self, record: Record, attempt: AttemptRecord, latency_ms: float) -> None:
        """An attempt's row was written."""
        answered, usage = record.answered, record.usage
        record.answered, record.sent = None, b""
        if answered is None or usage is None or not (usage.doubt or is_sampled(attempt.attempt_id, self._one_in)):
            return
        writer = self._writer
        if writer is None:
            self.dropped["away"] += 1
        elif answered.pieces is None or len(answered.body) + sum(map(len, answered.pieces)) > MOST_QUESTION:
            self.dropped["large"] += 1
        elif writer.transport.get_write_buffer_size() > MOST_WAITING or len(self._waiting) >= MOST_PENDING:
            self.dropped["full"] += 1
        else:
            self._number += 1
            until = self._clock() + PATIENCE_S
            self._waiting[self._number] = Waiting(record, attempt, answered.reported, answered.output_bytes, latency_ms, until)
            writer.write(packed(Question(self._number, attempt.endpoint.upstream_model, answered.body, answered.pieces)))

    async def keep(self, instruments: Instruments) -> None:
        """Until it is cancelled: connects, listens, connects again, and tells how it goes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_connected())
            while True:
                await asyncio.sleep(TELL_S)
                self._forget_late()
                self._tell(instruments)

    async def _stay_connected(self) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, Unreadable):
                await self._listen()
            self.dropped["away"] += len(self._waiting)
            self._waiting.clear()
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        writer.transport.set_write_buffer_limits(high=2 * MOST_WAITING)
        self._writer = writer
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH), "big")
                if length > MOST_BYTES:
                    raise Unreadable
                self._told(counted(await reader.readexactly(length)))
        finally:
            self._writer = None
            writer.close()

    def _told(self, told: Counted) -> None:
        waiting = self._waiting.pop(told.number, None)
        if waiting is None:
            return
        self.counted += 1
        self._learn(waiting, told)
        self._own[waiting.attempt.endpoint.id] = is_own(waiting.attempt.endpoint.upstream_model)
        self._ledger.revise(waiting, told)

    def _learn(self, waiting: Waiting, told: Counted) -> None:
        output = (told.output or 0) + told.reasoning if told.output_exact else None
        ratios = self.ratios(waiting.attempt.endpoint.model)
        ratios.learn(waiting.record.body_bytes, told.prompt if told.prompt_exact else None, waiting.output_bytes, output)

    def compare(self, endpoint: str, direction: str, reported: int, tokens: int) -> None:
        """Tokens that a provider reported and that were counted exactly."""
        both = self.compared.get((endpoint, direction))
        if both is None:
            both = self.compared[endpoint, direction] = Compared()
        both.reported += reported
        both.counted += tokens

    def _forget_late(self) -> None:
        now = self._clock()
        late = [number for number, one in self._waiting.items() if now >= one.until]
        for number in late:
            del self._waiting[number]
        self.dropped["late"] += len(late)

    def _tell(self, instruments: Instruments) -> None:
        """What was counted since the last time, to the metrics."""
        instruments.counted.inc(self.counted)
        self.counted = 0
        for why, count in self.dropped.items():
            instruments.uncounted.labels(why).inc(count)
            self.dropped[why] = 0
        for (endpoint, direction), both in self.compared.items():
            vocabulary = "own" if self._own.get(endpoint, False) else "other"
            instruments.compared.labels(endpoint, direction, "reported", vocabulary).inc(both.reported)
            instruments.compared.labels(endpoint, direction, "counted", vocabulary).inc(both.counted)
        self.compared.clear()
