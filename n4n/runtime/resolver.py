"""Where providers' names lead: look-ups with a deadline, remembered, and no address inside the house for those who may not go there.

A look-up that fails or takes too long is answered with what the name led to before, so that a name server's outage is none
of ours. `public_socket` is the last gate: it sees each address just before it is connected to, however it was come by, so
that a name which led outside when it was checked and inside a moment later (DNS rebinding) leads nowhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from n4n.core.addresses import is_public

FRESH_S = 30.0  # how long an answer is used without asking again
STALE_S = 3600.0  # and for how long it stands in for one that does not come
LOOK_UP_S = 1.5  # half of a usual connect timeout, so that there is time left to connect
MOST_NAMES = 1000

Address = tuple[socket.AddressFamily, str]
LookUp = Callable[[str], Awaitable[Sequence[Address]]]
AddrInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class NotPublic(OSError):
    """The provider's address is inside this network"""


@dataclass(frozen=True, slots=True)
class _Known:
    addresses: tuple[Address, ...]
    at: float


class Names:
    """What names lead to. One for all connections of a worker; one look-up of a name at a time."""

    def __init__(self, clock: Callable[[], float], look_up: LookUp | None = None) -> None:
        self._clock, self._look_up = clock, look_up or system_look_up
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Task[tuple[Address, ...]]] = {}

    async def addresses(self, name: str) -> tuple[Address, ...]:
        """All addresses of a name; OSError when there are none, or they do not come in time and none were known."""
        known = self._known.get(name)
        age = self._clock() - known.at if known is not None else STALE_S
        if known is not None and age < FRESH_S:
            return known.addresses
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await asyncio.shield(self._asked(name))
        except OSError as error:  # TimeoutError is one
            if known is not None and age < STALE_S:
                return known.addresses
            raise OSError("the name could not be resolved") from error

    def _asked(self, name: str) -> asyncio.Task[tuple[Address, ...]]:
        """The look-up that runs, or a new one. It goes on when nobody waits for it any more: the next one may profit."""
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.get_running_loop().create_task(self._ask(name), name="name look-up")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, whoever waits
        return task

    async def _ask(self, name: str) -> tuple[Address, ...]:
        try:
            found = tuple(await self._look_up(name))
            if not found:
                raise OSError("the name has no addresses")
            if len(self._known) >= MOST_NAMES:
                self._known.pop(next(iter(self._known)))
            self._known[name] = _Known(found, self._clock())
            return found
        finally:
            del self._running[name]

    async def close(self) -> None:
        """Gives up what still runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def system_look_up(name: str) -> Sequence[Address]:
    """By the system's resolver, on a thread of the loop."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(socket.AddressFamily(family), str(address[0])) for family, _, _, _, address in found]


def public_socket(target: AddrInfo) -> socket.socket:
    """A socket for an address outside the house; NotPublic for any other."""
    family, kind, protocol, _, address = target
    if family not in (socket.AF_INET, socket.AF_INET6) or not _is_public(address[0]):
        raise NotPublic
    return socket.socket(family, kind, protocol)


def _is_public(address: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(address))
    except ValueError:
        return False
