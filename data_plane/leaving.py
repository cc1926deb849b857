"""How a worker goes: it stops being ready, stops accepting, finishes what it has, closes what is idle, and never drops a request.

SERVING ──SIGTERM──▶ LEAVING     /ready says 503; connections are still accepted, every answer closes its own
SERVING ──SIGUSR2──▶ DRAINING    another worker has taken over this socket: accept nothing more
LEAVING ──SIGUSR2──▶ DRAINING    the supervisor has seen to it that nobody new waits in the socket's queue
LEAVING ──alone────▶ DRAINING    without a supervisor the same, by itself, after the lame-duck time
DRAINING ──────────▶ gone        nothing runs and nothing is likely to come, or `drain_sec` is over
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from data_plane.connections import Connection
from data_plane.intake import Intake
from data_plane.listeners import HANDSHAKE_S, hold_newcomers_back
from data_plane.reports import AT_ONCE, LEAVES, STOP_ACCEPTING, Reports
from data_plane.web import Web
from n4n.runtime.settings import Settings

_LOOK_S = 0.01
_QUIET_S = 5.0  # one that was replaced waits so long for a last request on idle connections, so that its answer can say it closes
_HEAD_S = 2.0  # how long who has just connected, or begun to send, may take until the request is there
_CUT_S = 2.0  # how long the last words of what `drain_sec` cuts off may take


class Orders:
    """What the signals said. Install it in the worker's loop."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._leave, self._stop_accepting = asyncio.Event(), asyncio.Event()

    def obey(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen to SIGTERM, SIGINT and SIGUSR2."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_leave)
        loop.add_signal_handler(STOP_ACCEPTING, self._stop_accepting.set)

    def _asked_to_leave(self) -> None:
        """Somebody who asks twice means at once; but a supervisor and its service manager may both ask, and the former can kill."""
        if self._leave.is_set() and not self._reports.supervised:
            os._exit(AT_ONCE)
        self._leave.set()

    async def given(self) -> bool:
        """Waits for the first order. True: leave; False: another worker has taken over."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._leave, self._stop_accepting)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._stop_accepting.is_set()

    async def to_stop_accepting(self, within_s: float) -> bool:
        """Waits for the supervisor's word; False: there is no supervisor any more, or it said nothing for so long."""
        await until(lambda: self._stop_accepting.is_set() or not self._reports.supervised, within_s)
        return self._stop_accepting.is_set()


@dataclass(frozen=True, slots=True)
class Serving:
    """A worker that serves: its handler, its server, and the socket through which connections come; `shares`: to other workers too."""

    handler: Web
    server: web.Server
    intake: Intake
    sock: socket.socket
    shares: bool

    @property
    def busy(self) -> bool:
        """Whether requests run."""
        return bool(self.handler.running)

    def quiet(self, for_s: float) -> bool:
        """Whether nothing runs and nothing is likely to come, `for_s` seconds after what is idle may be taken as idle."""
        connections = self.server.connections
        if self.busy or not connections:
            return not self.busy
        owed = any(isinstance(one, Connection) and not one.busy and one.head.since is not None for one in connections)
        return for_s >= (_HEAD_S if owed else 0.0)


async def drain(serving: Serving, orders: Orders, reports: Reports, settings: Settings, *, replaced: bool) -> None:
    """From the first order until nothing runs, at most `drain_sec`; what still runs then is told so and ended."""
    clock = asyncio.get_running_loop().time
    end = clock() + settings.drain_sec
    serving.handler.draining = True
    quiet_from = clock() + _QUIET_S
    if not replaced:
        serving.handler.leaving = True
        reports.say(LEAVES)
        await _until_nobody_waits(serving, orders, reports, settings)
        quiet_from = clock()  # idle connections had the lame-duck time
    await serving.intake.stop()
    await until(lambda: serving.quiet(for_s=clock() - quiet_from), end - clock())
    serving.server.pre_shutdown()  # closes what is idle; what came in before that is still served
    await asyncio.sleep(_LOOK_S)
    await until(lambda: not serving.busy, end - clock())
    if serving.busy:
        serving.handler.cut()
        await until(lambda: not serving.busy, _CUT_S)


async def until(over: Callable[[], bool], within_s: float) -> None:
    """Waits until it is over, at most so long."""
    clock = asyncio.get_running_loop().time
    end = clock() + within_s
    while not over() and clock() < end:  # noqa: ASYNC110  # several conditions, once in a worker's life
        await asyncio.sleep(_LOOK_S)


async def _until_nobody_waits(serving: Serving, orders: Orders, reports: Reports, settings: Settings) -> None:
    """Goes on accepting until a balancer has noticed and the socket's queue is empty for good."""
    if reports.supervised and await orders.to_stop_accepting(settings.drain_sec):
        await asyncio.sleep(_LOOK_S)  # one more round of accepting
        return
    if not reports.orphaned:
        await asyncio.sleep(min(settings.lame_duck_sec, settings.drain_sec))
        if serving.shares:
            return  # the others go on
    hold_newcomers_back(serving.sock)
    await asyncio.sleep(HANDSHAKE_S)
