"""A fleet on a virtual clock: real `Limits`, lines and spending of every router, over a Redis that is the core's arithmetic.

Redis and its network cost time, lose everything, or cannot be reached by some; routers die without a word.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from types import SimpleNamespace

from hiredis import Reader

from data_plane.quota import Quotas
from data_plane.record import Record
from data_plane.spending import begin
from n4n.core.access import Key
from n4n.core.breaker import Breaker
from n4n.core.candidates import Candidate, Cooldown, Plan
from n4n.core.chat import Usage
from n4n.core.errors import GatewayError, StoreUnavailable
from n4n.core.limits.levels import Grant, Ledger, Settlement, reserve
from n4n.core.limits.subjects import Draw, Subject, Took
from n4n.runtime.limits import Limits
from n4n.runtime.limits.packed import RENEW, RESERVE, SETTLE, SIGHT
from n4n.runtime.stores import Command, Outcome, Reply
from tests.support.endpoints import chat

TRIP_S = 0.0005  # there and back
DEADLINE_S = 0.05
_DRAWN, _ENDED = Struct("<5d"), Struct("<6d")
_SHORT = {"cooldown": -1, "concurrency": -2, "streams": -3}
CHAT = chat(body_bytes=40)
USAGE = Usage(prompt_tokens=10, completion_tokens=10)


class Redis:
    """What all routers share. `subjects` by the first of their keys, as no script tells more of them than their numbers."""

    def __init__(self, clock: Callable[[], float], subjects: Mapping[str, Subject]) -> None:
        self._clock, self._subjects = clock, subjects
        self._ledgers: dict[str, Ledger] = {}
        self._routers: dict[bytes, float] = {}
        self.is_away = False

    def lose(self) -> None:
        """It was restarted, and is empty."""
        self._ledgers, self._routers = {}, {}

    def run(self, command: Command) -> Reply:
        """One script, at once."""
        reader = Reader()
        reader.feed(command.packed)
        _, sha, count, *words = reader.gets()
        keys, args, now = words[: int(count)], words[int(count) :], self._clock() * 1000
        if sha == SIGHT.sha:
            self._routers[args[0]] = now + float(args[1])
            self._routers = {name: until for name, until in self._routers.items() if until > now}
            return [len(self._routers), repr(now).encode()]
        key = keys[0].decode()
        subject, ledger = self._subjects[key], self._ledgers.setdefault(key, Ledger())
        if sha == RESERVE.sha:
            return self._reserved(args[1], subject, ledger, _DRAWN.unpack(args[2]), now)
        if sha == SETTLE.sha:
            _, tokens, *took = _ENDED.unpack(args[2])[:4]
            was_open = ledger.settle(args[1], subject, Draw(tokens), Settlement(Took(*took)), now)
            return args[1] + Struct("<dd").pack(was_open, now)
        assert sha == RENEW.sha
        added, whole = (Struct(f"<{len(numbers) // 8}d").unpack(numbers) for numbers in args[2:4])
        held = {args[at]: args[at + 1] == b"1" for at in range(4, len(args), 2)}
        ledger.renew(subject, held, added, now, float(args[1]), whole)
        return repr(now).encode()

    def _reserved(self, id: bytes, subject: Subject, ledger: Ledger, drawn: Sequence[float], now: float) -> bytes:
        answer = reserve([ledger], id, [subject], Draw(drawn[1], drawn[3] == 1, drawn[2]), now, drawn[4])
        whose, short, wait = 0.0, 0.0, 0.0
        if not isinstance(answer, Grant):
            names = [bucket.name for bucket in subject.buckets]
            whose, wait = 1.0, answer.wait_ms
            short = _SHORT[answer.bucket] if answer.bucket in _SHORT else names.index(answer.bucket) + 1.0
        (levels,) = answer.levels
        numbers = (whose, short, wait, now, levels.running, levels.streams, *levels.used)
        return id + Struct(f"<{len(numbers)}d").pack(*numbers)


class Way:
    """One router's way to Redis, as `Store` is. What is posted arrives before what is asked later."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.state = Breaker.CLOSED
        self.is_cut = False  # by the network, or because its router is dead

    @property
    def _fails(self) -> bool:
        return self.is_cut or self._redis.is_away

    async def command(self, command: Command) -> Reply:
        """One step."""
        if self.state is not Breaker.CLOSED:
            raise StoreUnavailable
        if self._fails:
            await asyncio.sleep(DEADLINE_S)
            raise StoreUnavailable
        reply = self._redis.run(command)
        await asyncio.sleep(TRIP_S)
        return reply

    ask = command  # the same, for scripts that Redis has surely learned

    async def pipeline(self, commands: Sequence[Command]) -> list[Outcome]:
        """Several."""
        raise NotImplementedError  # an account alone is asked here

    def post(self, command: Command) -> bool:
        """One that nobody waits for."""
        if self._fails or self.state is not Breaker.CLOSED:
            return False
        self._redis.run(command)
        return True

    async def keep(self, dice: random.Random) -> None:
        """The breaker: open once it fails, closed again a moment after it would not."""
        while True:
            await asyncio.sleep(0.1 + 0.4 * dice.random())
            self.state = Breaker.OPEN if self._fails else Breaker.CLOSED


class SimulatedRouter:
    """One router, until it dies."""

    def __init__(self, name: str, redis: Redis, clock: Callable[[], float], dice: random.Random) -> None:
        self.way, self._clock, self._dice = Way(redis), clock, dice
        self.limits = Limits(self.way, router=name, clock=clock, wall=clock, routers=1)  # type: ignore[arg-type]
        self.quotas = Quotas(self.limits, clock, dice.random, wall=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: list[BaseException] = []
        for work in (self.limits.keep(), self.way.keep(dice)):
            self._own(work)

    def _own(self, work: object) -> None:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(error)

    def ask(self, tenant: str, plan: Plan, told: Callable[[bool], None]) -> None:
        """One request through the plan's one account; `told` whether it was admitted, when that is decided."""
        self._own(self._asked(tenant, plan, told))

    async def _asked(self, tenant: str, plan: Plan, told: Callable[[bool], None]) -> None:
        record = Record(request_id="r", started=self._clock(), clock=self._clock)
        key, candidate = Key("testtesttest", tenant, bytes(32)), plan.candidates[0]
        spending = begin(self.quotas, key, CHAT, "interactive", plan, record)
        assert spending is not None
        try:
            while isinstance(found := await spending.reserve(candidate, lambda _: True), Cooldown):
                await spending.wait(found.until - self._clock(), self._clock() + 10.0)
            told(found is not None)
            await asyncio.sleep(0.2 + 1.6 * self._dice.random())
            spending.attempted(None, USAGE)
        except GatewayError:
            told(False)
        finally:
            if not self.way.is_cut or self._tasks:
                spending.close()

    async def die(self) -> None:
        """kill -9: what it held stays held, nobody is told."""
        self.way.is_cut = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def plan_of(candidate: Candidate) -> Plan:
    """As much of a plan as spending reads."""
    model = SimpleNamespace(id=candidate.endpoint.model, max_output_tokens=None)
    return SimpleNamespace(model=model, candidates=(candidate,), target=SimpleNamespace(name="m"), considered=1)  # type: ignore[return-value]
