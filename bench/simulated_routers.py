"""Many routers in one process: each with its own stream, link and collector as a real one has them, and one compiled catalog for all.

Started by `bench.discovery`. Standard output is one JSON line per applied version; the line `forget` on standard input makes every
router forget what it holds, and the next stream begins with nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence

import uvloop

from n4n.core.discovery import AlreadyHeld, Apply, Collector, Heads, Held, LinkRules, Nack, NeedsNewStream, Part
from n4n.core.errors import CatalogRefused
from n4n.runtime import wire
from n4n.runtime.control_link import Ack, Answer, ControlLink, Identity, Leave, Refuse

COLLECTIONS = (wire.CATALOG, wire.ACCESS)


class Compiler:
    """Compiles each version once, as one router would."""

    def __init__(self) -> None:
        self._build: wire.CatalogBuild | None = None

    def compile(self, offer: Apply) -> None:
        """CatalogRefused when it is none."""
        if self._build is None or self._build.snapshot.checksum != offer.checksum:
            self._build = wire.build_catalog(offer.resources, version=offer.version, checksum=offer.checksum, before=self._build)


class SimulatedRouter:
    """A `control_link.Receiver`."""

    def __init__(self, name: str, compiler: Compiler) -> None:
        self.name = name
        self._compiler = compiler
        self._collectors = _empty()

    def forget(self) -> None:
        """As after the loss of its disk."""
        self._collectors = _empty()

    def begin(self) -> Sequence[Held]:
        """What is held."""
        return [collector.restart() for collector in self._collectors.values()]

    def lost(self) -> None:
        """The stream ended."""
        self.begin()

    async def receive(self, message: Part | Heads) -> Sequence[Answer]:
        """As the real follower answers."""
        if isinstance(message, Heads):
            return [
                Leave("version") for head in message.heads if isinstance(self._collectors[head.collection].heartbeat(head), NeedsNewStream)
            ]
        collector = self._collectors[message.collection]
        match collector.receive(message):
            case Apply() as offer:
                return (self._take_over(message.collection, collector, offer),)
            case AlreadyHeld():
                return (Ack(collector.held),)
            case Nack() as nack:
                return (Refuse(message.collection, nack),)
            case NeedsNewStream(version, field, reason):
                return (Refuse(message.collection, Nack(version, field, reason)), Leave(reason))
            case _:
                return ()

    def _take_over(self, collection: int, collector: Collector, offer: Apply) -> Answer:
        if collection == wire.CATALOG:
            try:
                self._compiler.compile(offer)
            except CatalogRefused as refused:
                return Refuse(collection, collector.refuse(refused.problems[0].field, refused.problems[0].message))
        held = collector.accept()
        line = {"router": self.name, "collection": collection, "version": held.version, "at": time.time(), "whole": offer.changed is None}
        print(json.dumps(line), flush=True)
        return Ack(held)


def _empty() -> dict[int, Collector]:
    return {collection: Collector(collection) for collection in COLLECTIONS}


async def run(target: str, token: str, prefix: str, count: int) -> None:
    """Until standard input ends."""
    compiler, loop = Compiler(), asyncio.get_running_loop()
    routers = [SimulatedRouter(f"{prefix}-{number}", compiler) for number in range(count)]
    links = [
        ControlLink(
            [target], Identity(router.name, "data-plane", "bench", token), router, rules=LinkRules(), clock=loop.time, draw=random.random
        )
        for router in routers
    ]
    tasks = [asyncio.create_task(link.run()) for link in links]
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while await orders.readline():
        for router in routers:
            router.forget()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
