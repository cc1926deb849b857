"""The run: a small fleet behind a balancer under steady load, one kind of fault after the other, and the figures to judge it by."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from n4n.runtime.control_client import ControlClient
from n4n.runtime.embedded import THROWAWAY, RunningStore, start_postgres
from tests.soak.load import Load, steady
from tests.soak.plan import Plan
from tests.soak.report import Report, Step, report_of
from tests.soak.upstream import steady_upstream
from tests.support.balancer import HostedBalancer, running_balancer
from tests.support.fleet import ADMIN_TOKEN, Fleet, Role, eventually, ready, running_fleet
from tests.support.router import catalog

ROUTERS = ("router-a", "router-b")
CREDENTIAL = {"CANARY": "sk-provider-canary"}
LOOK_S = 0.01  # between two looks at the version a router uses


@dataclass
class Place:
    """Everything that runs."""

    fleet: Fleet
    balancer: HostedBalancer
    database: RunningStore
    upstream: str
    key: str

    @property
    def control(self) -> Role:
        """The control plane."""
        return self.fleet.roles[0]

    @property
    def routers(self) -> list[Role]:
        """The data planes."""
        return [role for role in self.fleet.roles if role.name in ROUTERS]

    def versions(self) -> list[int]:
        """What each router answers from now; 0: it does not answer."""
        return [self._version(role) for role in self.routers]

    def _version(self, role: Role) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", int(role.environ["N4N_PORT"]), timeout=5)
        try:
            connection.request("POST", "/v1/route:explain", b'{"model": "m"}', {"authorization": f"Bearer {self.key}"})
            told = json.loads(connection.getresponse().read())
            return int(told.get("catalog_version", 0))
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


class Soak:
    """One run."""

    def __init__(self, plan: Plan, place: Place, load: Load) -> None:
        self._plan, self._place, self._load = plan, place, load
        self._steps: list[Step] = []
        self._applied_s: list[float] = []
        self._killed_at = float("inf")
        self._version = 1

    def run(self) -> Report:
        """Every kind of fault, then load alone for the rest of the time."""
        plan, place, begun = self._plan, self._place, time.monotonic()
        thirds = [plan.versions // 3] * 2
        thirds.append(plan.versions - sum(thirds))
        self._step("load alone", 1, lambda: time.sleep(2.0))
        self._step("versions applied", thirds[0], lambda: self._apply(thirds[0]))
        self._step("control plane killed", 1, self._kill_control_plane)
        self._step("Postgres stopped in immediate mode", 1, self._restart_postgres)
        self._step("worker killed", 1, self._kill_worker)
        self._step("versions applied", thirds[1], lambda: self._apply(thirds[1]))
        self._step("both routers stopped by SIGTERM", plan.rolls, lambda: self._roll(_stop_and_start))
        self._step("both routers' workers replaced", plan.rolls, lambda: self._roll(Role.replace_workers))
        self._step("versions applied", thirds[2], lambda: self._apply(thirds[2]))
        self._step("load alone", 1, lambda: time.sleep(max(1.0, begun + plan.seconds - time.monotonic())))
        eventually(lambda: set(place.versions()) == {self._version}, f"version {self._version} everywhere", within=10)
        self._steps.append(Step("end", 0, time.monotonic()))
        return report_of(self._load.sent, self._steps, self._applied_s, self._killed_at, (self._version, *place.versions()))

    def _step(self, name: str, count: int, fault: Callable[[], None]) -> None:
        """One kind of fault; over when both routers serve and every request that saw it has ended."""
        self._steps.append(Step(name, count, time.monotonic()))
        fault()
        self._both_serve()
        over = time.monotonic()
        eventually(lambda: self._load.oldest > over, "the requests that saw it")

    def _both_serve(self) -> None:
        eventually(lambda: all(member.ready for member in self._place.balancer.members), "both routers to be ready")

    def _apply(self, count: int) -> None:
        for _ in range(count):
            self._version += 1
            document = _document(self._place.upstream, self._version)
            committed_s = asyncio.run(_applied(self._place.fleet.admin_url, document))
            eventually(lambda: min(self._place.versions()) >= self._version, f"version {self._version} on both routers", within=10)
            self._applied_s.append(max(0.0, time.time() - committed_s))
            time.sleep(LOOK_S)

    def _kill_control_plane(self) -> None:
        self._place.control.kill()
        time.sleep(self._plan.outage_s)
        self._place.control.start()
        self._await_control_plane()

    def _await_control_plane(self) -> None:
        eventually(lambda: self._place.fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")

    def _restart_postgres(self) -> None:
        before = self._place.database
        before.process.popen.send_signal(signal.SIGQUIT)
        before.process.popen.wait(30)
        self._place.database = start_postgres(self._place.fleet.folder / "stores", settings=THROWAWAY)
        assert self._place.database.url == before.url
        self._await_control_plane()

    def _kill_worker(self) -> None:
        router = self._place.routers[0]
        (worker,) = router.workers()
        self._killed_at = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: router.workers() not in ([], [worker]) and ready(router), "the next worker")

    def _roll(self, one: Callable[[Role], None]) -> None:
        for _ in range(self._plan.rolls):
            for router in self._place.routers:
                one(router)
                eventually(lambda router=router: ready(router), f"{router.name} to be ready")
                self._both_serve()


def _stop_and_start(router: Role) -> None:
    assert router.stop() == 0
    router.start()


def _document(upstream: str, version: int) -> dict[str, object]:
    return catalog(upstream) | {"models": {"m": {"strategy": "cost", "aliases": [f"name-{version}"]}}}


async def _applied(admin_url: str, document: dict[str, object]) -> float:
    """Makes it the next version; when it was committed, in Unix time."""
    async with ControlClient([admin_url], ADMIN_TOKEN) as client:
        applied = await client.apply(json.dumps(document), author="soak")
    return applied.version.committed_at_ms / 1000


def soak(plan: Plan, folder: Path) -> Report:
    """Starts everything, runs the plan, stops everything. AssertionError when something does not come to pass in its time."""
    with _place(folder) as place, steady(f"http://127.0.0.1:{place.balancer.port}", place.key, plan.rate) as load:
        return Soak(plan, place, load).run()


@contextmanager
def _place(folder: Path) -> Iterator[Place]:
    stores = folder / "stores"
    stores.mkdir()
    for one in (folder, stores):
        one.chmod(0o711)  # as root, the server is another user
    database = start_postgres(stores, settings=THROWAWAY)
    with steady_upstream() as upstream, running_fleet(folder, database.url) as fleet:
        fleet.control_plane()
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(_document(upstream, 1))
        key = fleet.create_key()
        routers = [fleet.data_plane(name, N4N_LAME_DUCK_SEC="1", **CREDENTIAL) for name in ROUTERS]
        for router in routers:
            eventually(lambda router=router: ready(router), f"{router.name} to be ready")
        with running_balancer([int(router.environ["N4N_PORT"]) for router in routers]) as balancer:
            place = Place(fleet, balancer, database, upstream, key)
            try:
                yield place
            finally:
                database = place.database
    database.stop()
