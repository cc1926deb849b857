"""The run: a place with two routers, mixed requests on them, perhaps everything killed meanwhile, and the audit of what is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import psycopg

from n4n.runtime.embedded import THROWAWAY, RunningStore, start_postgres
from tests.soak.ledger.audit import Audit, Billed, Row, audited
from tests.soak.ledger.bill import PRICES, billing_provider
from tests.soak.ledger.clients import Clients, Request, requests
from tests.support.fleet import Fleet, Role, eventually, ready, running_fleet
from tests.support.house import bare_environ
from tests.support.stores import libpq_url
from tests.support.valkey import ValkeyServer, running_valkey

CREDENTIAL = {"CANARY": "sk-provider-canary"}
FIRST_TOKEN_MS = 1500
DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and how often each is killed or stopped while it runs; all 0: nothing is."""

    requests: int
    seed: int = 7
    workers: int = 0  # kill -9 of a router's worker
    routers: int = 0  # kill -9 of a whole router, which starts again on its disk
    redis: int = 0  # Redis killed, and started empty
    postgres: int = 0  # "immediate"
    planes: int = 0  # the control plane dies after COMMIT, before it acknowledges
    pause_s: float = 2.0  # between them

    @property
    def is_calm(self) -> bool:
        """Nobody is killed."""
        return not (self.workers or self.routers or self.redis or self.postgres or self.planes)


@dataclass(slots=True)
class Report:
    """What a run came to. `drained_s`: from the last answer, or from when all was well again, until every row was there."""

    audit: Audit
    seconds: float
    drained_s: float
    sums_agree: bool
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether all holds that must."""
        return not self.audit.wrong and self.sums_agree and self.drained_s <= DRAIN_S

    def __str__(self) -> str:
        told = self.audit
        lines = [
            f"{sum(told.saw.values())} requests in {self.seconds:.0f} s: {dict(told.saw)}",
            f"the provider saw {told.calls} calls: {dict(told.fates)}",
            f"the ledger has {told.rows} rows: {dict(told.states)}; {told.never_arrived} of them never reached the provider",
            f"attempts that ended well: {told.ledger_usd} USD in the ledger, {told.bill_usd} USD on the bill",
            f"whole answers that nobody heard to their end: {told.unheard}, {told.unheard_usd} USD, in the ledger as estimates",
            f"everything was in Postgres {self.drained_s:.1f} s later; the roll-ups are the sums of the rows: {self.sums_agree}",
        ]
        if self.faults:
            lines.append(f"meanwhile: {', '.join(self.faults)}")
        return "\n".join((*lines, *(f"WRONG {line}" for line in told.wrong[:20])))


@dataclass
class Place:
    """Everything that runs."""

    fleet: Fleet
    folder: Path
    routers: list[Role]
    plane: DyingPlane
    redis: ValkeyServer
    database: RunningStore
    provider: str
    keys: list[str]
    killed: list[tuple[int, float]] = field(default_factory=list)  # which router, and when

    def rows(self) -> list[Row]:
        """The ledger."""
        query = "SELECT attempt_id, request_id, attempt_no, provider, state, status, cost_usd FROM usage_ledger"
        with psycopg.connect(libpq_url(self.fleet.database_url)) as connection:
            return [Row(*row) for row in connection.execute(query).fetchall()]

    def count(self) -> int:
        """Rows so far; -1: Postgres is away."""
        try:
            with psycopg.connect(libpq_url(self.fleet.database_url), connect_timeout=2) as connection:
                row = connection.execute("SELECT count(*) FROM usage_ledger").fetchone()
                return int(row[0]) if row else -1
        except psycopg.Error:
            return -1

    def sums_agree(self) -> bool:
        """The roll-ups are the ledger's own sums."""
        query = """SELECT (SELECT (count(*), sum(cost_usd), sum(prompt_tokens)) FROM usage_ledger)::text,
            (SELECT (sum(attempts), sum(cost_usd), sum(prompt_tokens)) FROM usage_by_day)::text,
            (SELECT (sum(attempts), sum(cost_usd), sum(prompt_tokens)) FROM usage_by_hour)::text"""
        with psycopg.connect(libpq_url(self.fleet.database_url)) as connection:
            row = connection.execute(query).fetchone()
        return row is not None and len(set(row)) == 1

    def bill(self) -> list[Billed]:
        """What the provider says."""
        with urllib.request.urlopen(f"{self.provider}/bill", timeout=60) as answer:
            return [Billed(label, provider, fate, Decimal(cost), done) for label, provider, fate, cost, done in json.load(answer)]


class DyingPlane:
    """The control plane of `dying_plane`, started again whenever it died."""

    def __init__(self, fleet: Fleet, redis_url: str) -> None:
        self._fleet, self._order = fleet, fleet.folder / "die"
        self._environ = {**bare_environ(), **fleet.control_plane_settings(N4N_REDIS_URL=redis_url)}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """And waits until it answers."""
        with (self._fleet.folder / "control-plane.err").open("ab") as err:
            command = [sys.executable, "-m", "tests.soak.ledger.dying_plane", str(self._order)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err, env=self._environ)
        eventually(lambda: self._fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")

    def die(self) -> None:
        """With the next batch; then it starts again."""
        assert self.process is not None
        self._order.touch()
        self.process.wait(30)
        self.start()

    def stop(self) -> None:
        """For good."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def document(provider: str) -> dict[str, object]:
    """Four providers of one model, and three of another that makes embeddings."""
    names = tuple(PRICES)
    price = {
        name: {"input_per_1m": float(fresh), "cached_input_per_1m": float(cached), "output_per_1m": float(out)}
        for name, (fresh, cached, out) in PRICES.items()
    }
    model = {
        "retry": {"max_retries": 3, "backoff_ms": 5},
        "circuit_breaker": {"failure_threshold": 10_000},
        "timeouts": {"first_token_ms": FIRST_TOKEN_MS},
    }
    of_chats = {f"e-{name}": {"model": "m", "account": f"a-{name}", "upstream_model": "billed", "price": price[name]} for name in names}
    of_vectors = {f"v-{name}": {**of_chats[f"e-{name}"], "model": "vectors", "supports": ["embeddings"]} for name in names[:3]}
    return {
        "providers": {
            name: {
                "dialect": "anthropic" if name == "p4" else "openai",
                "base_url": f"{provider}/{name}" + ("" if name == "p4" else "/v1"),
                "allow_private": True,
            }
            for name in names
        },
        "accounts": {f"a-{name}": {"provider": name, "credential": "env:CANARY"} for name in names},
        "models": {"m": model, "vectors": model},
        "endpoints": {**of_chats, **of_vectors},
    }


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """Stores, a control plane, two routers and the provider; all of it is gone at the end."""
    stores = folder / "stores"
    for one in (folder, stores):
        one.mkdir(exist_ok=True)
        one.chmod(0o711)  # as root, the server is another user
    database = start_postgres(stores, settings=THROWAWAY)
    with running_valkey(stores) as redis, billing_provider() as provider, running_fleet(folder, database.url) as fleet:
        plane = DyingPlane(fleet, redis.url)
        plane.start()
        made = None
        try:
            fleet.apply(document(provider))
            keys = [fleet.create_key(), fleet.create_key("beta", "--rpm", "1000000", "--tpm", "1000000000", "--concurrency", "100000")]
            routers = [fleet.data_plane(name, **CREDENTIAL, N4N_REDIS_URL=redis.url) for name in ("r1", "r2")]
            for router in routers:
                eventually(lambda router=router: ready(router), f"{router.name} to be ready")
            made = Place(fleet, folder, routers, plane, redis, database, provider, keys)
            yield made
        finally:
            plane.stop()
            database = made.database if made is not None else database
    database.stop()


class Mayhem:
    """Kills and stops, one thing after the other. On the main thread: stores end with the thread that starts them."""

    def __init__(self, plan: Plan, where: Place) -> None:
        self._plan, self._place = plan, where
        self.done: list[str] = []

    def run(self) -> None:
        """All of the plan."""
        plan = self._plan
        left: dict[Callable[[int], None], int] = {
            self._worker: plan.workers, self._redis: plan.redis, self._postgres: plan.postgres,
            self._plane: plan.planes, self._router: plan.routers,
        }  # fmt: skip
        for number in range(max(left.values())):
            for fault, times in left.items():
                if number < times:
                    time.sleep(plan.pause_s)
                    fault(number)
                    self.done.append(fault.__name__.strip("_"))

    def _worker(self, number: int) -> None:
        router = self._place.routers[number % 2]
        gone = router.workers()
        self._kill(number % 2, *gone)
        eventually(lambda: router.workers() not in ([], gone) and ready(router), "the next worker")

    def _router(self, number: int) -> None:
        router = self._place.routers[number % 2]
        assert router.process is not None
        self._kill(number % 2, router.process.pid, *router.workers())
        router.process.wait(30)
        router.start()
        eventually(lambda: ready(router), f"{router.name} to be ready")

    def _kill(self, which: int, *pids: int) -> None:
        self._place.killed.append((which, time.time()))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _redis(self, _: int) -> None:
        self._place.redis.kill()
        time.sleep(0.5)
        self._place.redis.start()

    def _postgres(self, _: int) -> None:
        before = self._place.database
        before.process.popen.send_signal(signal.SIGQUIT)
        before.process.popen.wait(30)
        self._place.database = start_postgres(self._place.folder / "stores", settings=THROWAWAY)
        assert self._place.database.url == before.url

    def _plane(self, _: int) -> None:
        self._place.plane.die()


def run(plan: Plan, folder: Path, *, sigterm: bool = True) -> Report:
    """`sigterm`: both routers are told to go 100 ms after the last answer. AssertionError: something did not come about in its time."""
    with place(folder) as where:
        clients = Clients([int(router.environ["N4N_PORT"]) for router in where.routers], where.keys)
        mayhem, over = Mayhem(plan, where), threading.Event()
        load = threading.Thread(target=_load, args=(clients, plan, over), name="load")
        began = time.monotonic()
        load.start()
        try:
            mayhem.run()
        finally:
            over.set()
            load.join()
        seconds = time.monotonic() - began
        if sigterm:
            time.sleep(0.1)
            for router in where.routers:
                assert router.stop() == 0
        drained = _drained(where, clients.sent, bool(plan.is_calm))
        audit = audited(where.rows(), where.bill(), clients.sent, where.killed)
        return Report(
            audit, seconds, drained, where.sums_agree(), [f"{mayhem.done.count(one)} × {one}" for one in dict.fromkeys(mayhem.done)]
        )


def _load(clients: Clients, plan: Plan, over: threading.Event) -> None:
    """As many as were asked for, and more for as long as something is killed."""
    keys, number = len(clients.keys), 0
    asyncio.run(clients.send(requests(plan.requests, plan.seed, keys)))
    while not over.is_set():
        number += 1
        asyncio.run(clients.send(requests(200, plan.seed + 1000 * number, keys)))


def _drained(where: Place, sent: Sequence[Request], calm: bool) -> float:
    """Until there are as many rows as the provider saw calls, and no more come."""
    began, calls = time.monotonic(), len(where.bill())
    eventually(lambda: where.count() >= calls, f"{calls} rows", within=4 * DRAIN_S)
    took, rows = time.monotonic() - began, where.count()
    time.sleep(1.0 if calm else 3.0)
    return took if where.count() == rows else time.monotonic() - began
