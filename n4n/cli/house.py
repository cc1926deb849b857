"""The programs that `n4n up` runs: started in order, started again when they die, stopped in the opposite order within a bound.

One thread, no event loop: a child is tied to the life of the thread that started it, and there is nothing else to do meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from n4n.cli.notices import notice
from n4n.cli.restarts import Restarts, after_death
from n4n.core.errors import StartFailed
from n4n.runtime.process import Child


class Running(Protocol):
    """What a start gives back."""

    @property
    def process(self) -> Child: ...

    def stop(self, within_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A child of ours that needs nothing but its signal to stop."""

    process: Child

    def stop(self, within_s: float) -> None:
        """End it, surely after `within_s`."""
        self.process.stop(within_s)


@dataclass(frozen=True, slots=True)
class Service:
    """How to start one program. `rank`: those of the highest stop first, together. `restarted`: False, its death is only told."""

    name: str
    start: Callable[[], Running]
    rank: int
    stop_within_s: float
    restarted: bool = True


@dataclass(slots=True)
class _Room:
    """A service and its present state; `due` is when it shall start again, None while it runs or stays dead."""

    service: Service
    running: Running
    since: float
    restarts: Restarts = field(default_factory=Restarts)
    due: float | None = None
    told: bool = False


class House:
    """All services of one `n4n up`."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._rooms: list[_Room] = []

    def __repr__(self) -> str:
        return f"<House: {', '.join(repr(room.running.process) for room in self._rooms)}>"

    def start(self, service: Service) -> Running:
        """Start it and keep it; StartFailed when it cannot be started at all."""
        running = service.start()
        self._rooms.append(_Room(service, running, time.monotonic()))
        return running

    def dead(self) -> list[tuple[Service, int]]:
        """Services that have ended, with their exit status."""
        ended = ((room.service, room.running.process.poll()) for room in self._rooms)
        return [(service, status) for service, status in ended if status is not None]

    def pids(self) -> dict[str, int]:
        """The process id of every service."""
        return {room.service.name: room.running.process.pid for room in self._rooms}

    def look_after(self) -> float:
        """Tell of the dead, start those that are due; returns in how many seconds to look again."""
        for room in self._rooms:
            self._look_into(room)
        now = time.monotonic()
        return min((max(room.due - now, 0.0) for room in self._rooms if room.due is not None), default=60.0)

    def _look_into(self, room: _Room) -> None:
        status = room.running.process.poll()
        if status is None:
            return
        if not room.service.restarted:
            if not room.told:
                notice(f"{room.service.name} ended {_how(status)}; it stays down until the next `n4n up`", "program_stays_down")
            room.told = True
        elif room.due is None:
            self._plan(room, f"ended {_how(status)}")
        elif room.due <= time.monotonic():
            self._start_again(room)

    def _plan(self, room: _Room, what: str) -> None:
        now = time.monotonic()
        room.restarts, pause_s = after_death(room.restarts, now - room.since, self._draw())
        room.due = now + pause_s
        notice(f"{room.service.name} {what}; starting it again in {pause_s:.1f} s", "program_ended")

    def _start_again(self, room: _Room) -> None:
        room.since, room.due = time.monotonic(), None
        try:
            room.running = room.service.start()
        except StartFailed as error:
            self._plan(room, f"did not start: {error}")

    def stop(self) -> None:
        """End everything, rank by rank; what does not go in its time is killed."""
        for rank in sorted({room.service.rank for room in self._rooms}, reverse=True):
            _stop_together([room for room in self._rooms if room.service.rank == rank])
        self._rooms.clear()

    def kill(self) -> None:
        """End every program at once; stores get the signal they need to save what they hold. For signal handlers: waits for nothing."""
        for room in self._rooms:
            if isinstance(room.running, Program):
                room.running.process.kill()
            else:
                room.running.process.ask_to_stop()


def _stop_together(rooms: Sequence[_Room]) -> None:
    for room in rooms:
        room.running.process.ask_to_stop()
    begun = time.monotonic()
    for room in reversed(rooms):
        room.running.stop(max(room.service.stop_within_s - (time.monotonic() - begun), 0.1))


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"
