"""What callers wait for: a call with one answer, or several that are answered together; and the one timer for all their deadlines.

A call stays in its connection's queue until its reply has come, whoever still waits. A caller that was cancelled or ran out of time is gone
from the call, so its reply is read and dropped in its turn, and nobody else can be given it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores.commands import Command, Script
from n4n.runtime.stores.replies import Reply

NO_ANSWER = "Redis did not answer in time"
_LATE_S = 0.01  # a timer that rings so late tells of a loop that stood still
_EXCUSED_S = 0.001  # then what came meanwhile is read first

Outcome = Reply | StoreUnavailable


class Carrier(Protocol):
    """Where a call was sent."""

    def missed(self, calls: int, now: float) -> None:
        """So many calls ran out of time on it."""


class Call:
    """One command on its way. `carrier` is the connection it is on, `hops` how often it was sent on."""

    __slots__ = ("carrier", "deadline", "hops", "name", "packed", "script")

    def __init__(self, packed: bytes, name: str, script: Script | None) -> None:
        self.packed, self.name, self.script = packed, name, script
        self.carrier: Carrier | None = None
        self.deadline, self.hops = 0.0, 0

    def is_done(self) -> bool:
        """Whether nobody waits any more: answered, failed, cancelled or out of time."""
        raise NotImplementedError

    def answer(self, reply: Reply) -> bool:
        """False: too late, or for nobody."""
        raise NotImplementedError

    def fail(self, error: StoreUnavailable) -> None:
        """Tells whoever still waits."""
        raise NotImplementedError


class Single(Call):
    """A call by itself: its failure is raised where it is awaited."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Reply], packed: bytes, name: str, script: Script | None = None) -> None:
        self.packed, self.name, self.script, self.future = packed, name, script, future
        self.carrier = None
        self.deadline, self.hops = 0.0, 0

    def is_done(self) -> bool:
        """As the future is."""
        return self.future.done()

    def answer(self, reply: Reply) -> bool:
        """Wakes the caller."""
        if self.future.done():
            return False
        self.future.set_result(reply)
        return True

    def fail(self, error: StoreUnavailable) -> None:
        """Wakes the caller with the error."""
        if not self.future.done():
            self.future.set_exception(error)


class Batch:
    """The answers of a pipeline, in the order of its commands."""

    __slots__ = ("future", "left", "outcomes")

    def __init__(self, future: asyncio.Future[list[Outcome]], size: int) -> None:
        self.future, self.left = future, size
        self.outcomes: list[Outcome] = [None] * size

    def put(self, index: int, outcome: Outcome) -> None:
        """One of them; with the last the caller goes on."""
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.outcomes)


class Part(Call):
    """One command of a pipeline: its failure is its outcome."""

    __slots__ = ("_batch", "_has_outcome", "_index")

    def __init__(self, batch: Batch, index: int, command: Command) -> None:
        super().__init__(command.packed, command.name, command.script)
        self._batch, self._index, self._has_outcome = batch, index, False

    def is_done(self) -> bool:
        """Whether it has an outcome, or nobody waits for the pipeline any more."""
        return self._has_outcome or self._batch.future.done()

    def answer(self, reply: Reply) -> bool:
        """An outcome."""
        return self._take(reply)

    def fail(self, error: StoreUnavailable) -> None:
        """An outcome too."""
        self._take(error)

    def _take(self, outcome: Outcome) -> bool:
        if self.is_done():
            return False
        self._has_outcome = True
        self._batch.put(self._index, outcome)
        return True


class Unheard(Call):
    """A command for which nobody waits: what comes back, or nothing, counts as for any other."""

    __slots__ = ("_is_done",)

    def __init__(self, packed: bytes, name: str, script: Script | None = None) -> None:
        self.packed, self.name, self.script = packed, name, script
        self.carrier = None
        self.deadline, self.hops = 0.0, 0
        self._is_done = False

    def is_done(self) -> bool:
        """Whether it was answered or ran out of time."""
        return self._is_done

    def answer(self, reply: Reply) -> bool:
        """Only whether it was in time."""
        in_time, self._is_done = not self._is_done, True
        return in_time

    def fail(self, error: StoreUnavailable) -> None:
        """Nobody to tell."""
        self._is_done = True


class Deadlines:
    """Fails calls `span_s` after they began, wherever they are. All have the same span, so they are due in the order they came."""

    __slots__ = ("_due", "_excused", "_loop", "_timer", "span_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, span_s: float) -> None:
        self._loop, self.span_s = loop, span_s
        self._due: deque[Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._excused = False

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, call: Call) -> None:
        """Its time runs from now."""
        call.deadline = self._loop.time() + self.span_s
        due = self._due
        if due and due[0].is_done():  # one goes for each that comes: never more of them than ever waited at once
            due.popleft()
        due.append(call)
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._ring)

    def stop(self) -> None:
        """No deadline any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()

    def _ring(self) -> None:
        now = self._loop.time()
        if not self._excused and self._due and now > self._due[0].deadline + _LATE_S:
            self._excused = True
            self._timer = self._loop.call_at(now + _EXCUSED_S, self._ring)
            return
        self._excused = False
        for carrier, calls in self._expire(now).items():
            carrier.missed(calls, now)
        self._timer = self._loop.call_at(max(self._due[0].deadline, now + _EXCUSED_S), self._ring) if self._due else None

    def _expire(self, now: float) -> Mapping[Carrier, int]:
        """Forgets what is done and fails what is due; how many of those were where."""
        missed: dict[Carrier, int] = {}
        due = self._due
        while due and (due[0].is_done() or due[0].deadline <= now):
            call = due.popleft()
            if not call.is_done():
                call.fail(StoreUnavailable(NO_ANSWER))
                if call.carrier is not None:
                    missed[call.carrier] = missed.get(call.carrier, 0) + 1
        return missed
