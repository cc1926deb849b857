"""A node tells a control plane how it is, every few seconds. What does not arrive is not repeated: the next word has everything."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see control_link

import grpc

from n4n.core.errors import StartFailed
from n4n.runtime import wire
from n4n.runtime.control_link import Identity, open_channel
from n4n.runtime.vitals import Vitals

REPORT = "/n4n.v1.Operations/Report"
EVERY_S = 5.0
_CALL_S = 5.0


class VitalsLink:
    """`run` until cancelled. `told`: how many words arrived."""

    def __init__(
        self, targets: Sequence[str], identity: Identity, run: str, vitals: Callable[[], Vitals], *, every_s: float = EVERY_S
    ) -> None:
        self._targets = itertools.cycle(targets) if targets else None
        self._identity, self._run, self._vitals, self._every_s = identity, run, vitals, every_s
        self._channel: grpc.aio.Channel | None = None
        self.told = 0

    def __repr__(self) -> str:
        return f"VitalsLink({self._identity.node}, {self.told} told)"

    async def run(self) -> None:
        """Until cancelled."""
        if self._targets is None:
            return
        try:
            while True:
                await self._tell(next(self._targets) if self._channel is None else "")
                await asyncio.sleep(self._every_s)
        finally:
            await self._hang_up()

    async def _tell(self, target: str) -> None:
        try:
            if self._channel is None:
                self._channel = open_channel(target, _CALL_S, self._identity.tls)
            call = self._channel.unary_unary(REPORT, None, None)
            await call(
                wire.encode_vitals(self._identity.node, self._run, self._vitals()), timeout=_CALL_S, metadata=self._identity.metadata
            )
            self.told += 1
        except (TimeoutError, grpc.aio.AioRpcError, StartFailed):
            await self._hang_up()

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)
