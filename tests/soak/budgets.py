"""Budgets under acceptance: a control plane, two routers, a Redis that is emptied and restarted, a provider that keeps its own bill.

race       a dollar, two hundred calls of five cents at once on two routers: what was spent beyond it
emptied    load until a budget is spent, while Redis is restarted empty: what was spent beyond it, by answers and by the ledger
changes    budgets and revocations while load runs: how long after their commit until both routers act by them
died       a router is killed with everything reserved: how long until that is free
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

import aiohttp
import psycopg

from n4n.runtime.control_client import ControlClient
from n4n.runtime.embedded import THROWAWAY, start_postgres
from tests.soak.load import percentile
from tests.support.answers import Answer, hang_before_headers, usage
from tests.support.fleet import ADMIN_TOKEN, Fleet, Role, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, Reply, reply, running_upstream
from tests.support.valkey import ValkeyServer, running_valkey

CENTS = 0.05  # of one answer: 4,000 tokens in at 2.5 and 4,000 out at 10 USD a million
FREE_WITHIN_S, CHANGED_WITHIN_S = 60.0, 1.0
ANSWER: Reply = reply("pong", usage=usage(4000, 4000))


@dataclass
class Figures:
    """What came of it; USD and seconds."""

    race_beyond: float = -1.0
    emptied_beyond: float = -1.0
    ledger_differs: float = -1.0
    answered: int = 0
    changes: list[float] = field(default_factory=list)
    freed_s: float = -1.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"race: {self.race_beyond:.2f} USD beyond a dollar (one reservation: 0.05)",
            f"emptied: {self.emptied_beyond:.2f} USD beyond 5, {self.answered} answers; the ledger differs by {self.ledger_differs:g}",
        ]
        if self.changes:
            p50, p99, worst = (1000 * percentile(self.changes, at) for at in (0.5, 0.99, 1.0))
            lines.append(f"changes: {len(self.changes)}, p50 {p50:.0f} ms, p99 {p99:.0f} ms, worst {worst:.0f} ms")
        if self.freed_s >= 0:
            lines.append(f"died: all was free after {self.freed_s:.0f} s")
        return "\n".join([*lines, *self.faults])


@dataclass
class Stage:
    """The house. `routers`: their base URLs."""

    fleet: Fleet
    operator: ControlClient
    redis: ValkeyServer
    upstream: HostedUpstream
    http: aiohttp.ClientSession
    roles: Sequence[Role]

    @property
    def routers(self) -> list[str]:
        """Base URLs."""
        return [f"http://127.0.0.1:{role.environ['N4N_PORT']}/v1" for role in self.roles]

    async def key(self, *budgets: dict[str, object]) -> tuple[str, str]:
        """A new key with these budgets, known to both routers: public id, secret."""
        made = await self.operator.create_key("acme", {"budgets": list(budgets)}, author="soak")
        await self.until(lambda status: status != 401, made.secret)
        return made.key.public_id, made.secret

    async def ask(self, router: str, key: str, **fields: object) -> int:
        """The status of one chat; 0: none came."""
        body = {"model": "m", "messages": [{"role": "user", "content": "ping"}], "max_tokens": 5000, **fields}
        try:
            async with self.http.post(f"{router}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}) as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def until(self, holds: Callable[[int], bool], key: str, *, path: str = "models") -> None:
        """Until both routers answer so. TimeoutError after ten seconds."""
        async with asyncio.timeout(10):
            for router in self.routers:
                while True:
                    status = await self.ask(router, key) if path == "chat" else await self._seen(router, key)
                    if holds(status):
                        break
                    await asyncio.sleep(0.005)

    async def _seen(self, router: str, key: str) -> int:
        async with self.http.get(f"{router}/models", headers={"authorization": f"Bearer {key}"}) as answer:
            return answer.status

    def billed(self, public_id: str) -> tuple[int, Decimal]:
        """Rows of a key in the ledger, and what they cost."""
        with psycopg.connect(libpq_url(self.fleet.database_url)) as connection:
            query = "SELECT count(*), coalesce(sum(cost_usd), 0) FROM usage_ledger WHERE key_id = %s AND state = 'ok'"
            row = connection.execute(query, (public_id,)).fetchone()
        assert row is not None
        return int(row[0]), Decimal(row[1])


def usd(amount: str, window: str = "day") -> dict[str, object]:
    """A hard budget."""
    return {"usd": amount, "window": window}


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """Everything, started."""
    with ExitStack() as stack:
        upstream = stack.enter_context(running_upstream())
        upstream.script(then=ANSWER)
        folder.chmod(0o711)  # noqa: ASYNC240  # nothing else runs yet
        postgres = start_postgres(folder, settings=THROWAWAY)
        stack.callback(postgres.stop)
        redis = stack.enter_context(running_valkey(folder))
        fleet = stack.enter_context(running_fleet(folder, postgres.url))
        fleet.control_plane(N4N_REDIS_URL=redis.url)
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog(upstream.base_url))
        fleet.create_key()  # a router without keys is not ready
        roles = [fleet.data_plane(name, N4N_REDIS_URL=redis.url, CANARY="sk-provider-canary") for name in ("r1", "r2")]
        for role in roles:
            eventually(lambda role=role: ready(role), "the routers", within=90)  # type: ignore[misc]
        connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=30)
        async with (
            ControlClient([fleet.admin_url], ADMIN_TOKEN) as operator,
            aiohttp.ClientSession(connector=connector, timeout=patience) as http,
        ):
            yield Stage(fleet, operator, redis, upstream, http, roles)


async def race(at: Stage, figures: Figures) -> None:
    """Two hundred at once for the last dollar."""
    public_id, key = await at.key(usd("1"))
    statuses = await asyncio.gather(*(at.ask(at.routers[n % 2], key) for n in range(200)))
    figures.race_beyond = statuses.count(200) * CENTS - 1.0
    if {*statuses} - {200, 402}:
        figures.faults.append(f"race: {sorted({*statuses})}")
    while any([await at.ask(router, key) == 200 for router in at.routers]):
        pass
    await _shipped(at, public_id, statuses.count(200))
    figures.race_beyond = float(at.billed(public_id)[1]) - 1.0


async def emptied(at: Stage, figures: Figures, restarts: int) -> None:
    """Load on both routers until nothing is left, Redis restarted empty meanwhile."""
    public_id, key = await at.key(usd("5"), usd("50", "month"))
    statuses: list[int] = []

    async def client(router: str) -> None:
        while statuses[-20:].count(402) < 20:
            statuses.append(await at.ask(router, key))
            await asyncio.sleep(0.1)

    clients = [asyncio.create_task(client(at.routers[n % 2])) for n in range(4)]
    for _ in range(restarts):
        await asyncio.sleep(0.7)
        at.redis.kill()
        await asyncio.sleep(0.2)
        at.redis.start()
    await asyncio.wait(clients)
    await asyncio.sleep(1.5)
    with at.redis.client() as client_of_redis:
        client_of_redis.flushall()
    for _ in range(60):
        statuses.append(await at.ask(at.routers[len(statuses) % 2], key))
        await asyncio.sleep(0.02)
    figures.answered = statuses.count(200)
    await _shipped(at, public_id, figures.answered)
    cost = at.billed(public_id)[1]
    figures.ledger_differs = float(cost) - figures.answered * CENTS
    figures.emptied_beyond = float(cost) - 5.0


async def _shipped(at: Stage, public_id: str, rows: int) -> None:
    """Until the ledger has so many rows."""
    async with asyncio.timeout(15):
        while at.billed(public_id)[0] < rows:  # noqa: ASYNC110  # the database tells nobody
            await asyncio.sleep(0.1)


async def changes(at: Stage, figures: Figures, count: int) -> None:
    """Budgets lowered and raised, keys revoked, while others are served."""
    public_id, key = await at.key(usd("0.01"))
    assert await at.ask(at.routers[0], key) == 200
    await at.until(lambda status: status == 402, key, path="chat")
    _, busy = await at.key()
    loading = True

    async def load(router: str) -> None:
        while loading:
            await at.ask(router, busy)
            await asyncio.sleep(0.05)

    loads = [asyncio.create_task(load(at.routers[n % 2])) for n in range(4)]
    for number in range(count):
        raised = number % 2 == 0
        await at.operator.update_key(public_id, {"budgets": [usd("1000" if raised else "0.01")]}, ["budgets"], author="soak")
        began = time.monotonic()  # it is committed
        await at.until(lambda status, raised=raised: status == (200 if raised else 402), key, path="chat")  # type: ignore[misc]
        figures.changes.append(time.monotonic() - began)
    for _ in range(count):
        doomed, secret = await at.key()
        await at.operator.revoke_key(doomed, author="soak")
        began = time.monotonic()
        await at.until(lambda status: status == 401, secret)
        figures.changes.append(time.monotonic() - began)
    loading = False
    await asyncio.wait(loads)


async def died(at: Stage, figures: Figures) -> None:
    """A router is killed while it holds all of a budget."""
    _, key = await at.key(usd("0.05"))
    at.upstream.script(_hangs, then=ANSWER)
    before = len(at.upstream.calls)
    asking = asyncio.create_task(at.ask(at.routers[1], key))
    async with asyncio.timeout(20):
        while len(at.upstream.calls) == before:  # noqa: ASYNC110  # another thread counts them
            await asyncio.sleep(0.01)
        while await at.ask(at.routers[0], key) != 402:
            pass
    began = time.monotonic()
    os.kill(at.roles[1].workers()[0], signal.SIGKILL)
    await asking
    while await at.ask(at.routers[0], key) == 402:  # noqa: ASYNC110  # nor does Redis
        await asyncio.sleep(0.25)
    figures.freed_s = time.monotonic() - began


def _hangs(_: object) -> Answer:
    return hang_before_headers()


async def run(folder: Path, *, restarts: int = 1, edits: int = 10, kill: bool = False) -> Figures:
    """All of it."""
    figures = Figures()
    async with stage(folder) as at:
        await race(at, figures)
        await emptied(at, figures, restarts)
        await changes(at, figures, edits)
        if kill:
            await died(at, figures)
    if figures.race_beyond > CENTS + 1e-9:
        figures.faults.append("race: more than one reservation was spent beyond the budget")
    if figures.emptied_beyond > 10 * CENTS:
        figures.faults.append("emptied: more than a tenth of the budget was spent beyond it")
    if percentile(figures.changes, 0.99) > CHANGED_WITHIN_S:
        figures.faults.append("changes: a router acted late")
    if figures.freed_s > FREE_WITHIN_S:
        figures.faults.append("died: reservations of a dead router were kept too long")
    return figures


def main() -> int:
    """Exit status 1 where a bound is broken."""
    parser = argparse.ArgumentParser(prog="make soak-budgets", description="Budgets through everything that can be killed.")
    parser.add_argument("--restarts", type=int, default=5, help="of Redis, empty, while a budget is spent (default 5)")
    parser.add_argument("--edits", type=int, default=100, help="of budgets, and as many revocations (default 100)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="n4n-budgets-"))
    try:
        figures = asyncio.run(run(folder, restarts=args.restarts, edits=args.edits, kill=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(figures)
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
