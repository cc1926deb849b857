"""docker-compose.yml as it stands: every n4n service's command and environment, run as local processes behind a balancer of its rules."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

import pytest
import yaml

from n4n.runtime.settings import Settings
from tests.support import compose
from tests.support.answers import completion
from tests.support.balancer import HostedBalancer, running_balancer
from tests.support.fleet import ADMIN_TOKEN, NODE_TOKEN, Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.house import free_port
from tests.support.router import catalog
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream

SECRETS = {
    "POSTGRES_PASSWORD": "not-a-real-password", "GRAFANA_PASSWORD": "not-one-either", "N4N_ADMIN_TOKEN": ADMIN_TOKEN,
    "N4N_NODE_TOKEN": NODE_TOKEN,
}  # fmt: skip
# From the Compose specification: what this file uses and may use.
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "env_file", "environment", "healthcheck", "image", "init", "ports", "profiles",
    "read_only",
    "restart", "security_opt", "shm_size", "stop_grace_period", "tmpfs", "ulimits", "volumes",
}  # fmt: skip
TOP_KEYS = {"name", "services", "volumes"}
PORTS = ("N4N_PORT", "N4N_ADMIN_PORT", "N4N_METRICS_PORT", "N4N_PROBER_PORT")
LIVES = ("N4N_PORT", "N4N_ADMIN_PORT", "N4N_PROBER_PORT")  # where each role answers whether it lives
Service = dict[str, object]


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """The services by name."""
    return cast(dict[str, Service], compose.read(SECRETS)["services"])


def environ_of(service: Service) -> dict[str, str]:
    return cast(dict[str, str], service.get("environment", {}))


def ours(services: dict[str, Service], role: str | None = None) -> dict[str, Service]:
    """The n4n services, of one role or of any."""
    return {
        name: service
        for name, service in services.items()
        if str(service["image"]).startswith("n4n:") and (role is None or service["command"] == [role])
    }


def test_the_file_holds_only_keys_that_compose_knows(services: dict[str, Service]) -> None:
    top = compose.read(SECRETS)

    assert {name for name in top if not name.startswith("x-")} == TOP_KEYS
    for name, service in services.items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(cast(dict[str, object], service.get("depends_on") or {})) <= set(services), name
    mounted = {str(volume).split(":")[0] for one in services.values() for volume in cast(list[str], one.get("volumes", []))}
    assert {name for name in mounted if not name.startswith(".")} == set(cast(dict[str, object], top["volumes"]))
    assert all((compose.ROOT / name).is_file() for name in mounted if name.startswith("."))


def test_grafana_reads_the_database_with_a_role_and_a_password_of_its_own(services: dict[str, Service]) -> None:
    sources = yaml.safe_load((compose.ROOT / "deploy/grafana/provisioning/datasources/n4n.yaml").read_text())["datasources"]
    [ledger] = [one for one in sources if one["type"] == "grafana-postgresql-datasource"]
    maker, grafana = services["grafana-reader"], services["grafana"]

    assert ledger["secureJsonData"]["password"] == "$GRAFANA_PASSWORD"
    assert f"CREATE ROLE {ledger['user']}" in (compose.ROOT / "deploy/grafana/reader.sql").read_text()
    assert environ_of(maker)["GRAFANA_PASSWORD"] == environ_of(grafana)["GRAFANA_PASSWORD"] == SECRETS["GRAFANA_PASSWORD"]
    assert "POSTGRES_PASSWORD" not in environ_of(grafana)
    assert environ_of(maker)["PGPASSWORD"] == environ_of(services["postgres"])["POSTGRES_PASSWORD"]
    mounted = {str(volume).split(":")[0] for volume in cast(list[str], grafana["volumes"])}
    pages = {f"./deploy/grafana/dashboards/{path.name}" for path in (compose.ROOT / "deploy/grafana/dashboards").glob("*.json")}
    assert pages <= mounted


def test_prometheus_scrapes_every_role_where_it_answers(services: dict[str, Service]) -> None:
    settings = yaml.safe_load((compose.ROOT / "deploy/prometheus/prometheus.yml").read_text())
    [job] = settings["scrape_configs"]
    ports = {"data-plane": "N4N_PORT", "control-plane": "N4N_METRICS_PORT", "prober": "N4N_PROBER_PORT"}
    known = {field.name.upper(): str(field.default) for field in fields(Settings)}

    scraped = {target for group in job["static_configs"] for target in group["targets"]}
    assert scraped == {
        f"{name}:{environ_of(one).get(ports[role], known[ports[role].removeprefix('N4N_')])}"
        for role in ports
        for name, one in ours(services, role).items()
    }


def test_there_are_two_of_each_plane_and_one_of_each_store(services: dict[str, Service]) -> None:
    watching = {name for name, service in services.items() if service.get("profiles") == ["monitoring"]}
    assert watching == {"prometheus", "otel-collector", "tempo", "grafana", "grafana-reader"}
    assert set(services) - set(ours(services)) - watching == {"postgres", "redis", "balancer"}
    assert sorted(ours(services)) == [f"{role}-{number}" for role in ("control-plane", "data-plane", "prober") for number in (1, 2)]
    for role, differs in (("control-plane", set()), ("data-plane", {"N4N_NODE"}), ("prober", {"N4N_NODE"})):
        first, second = ours(services, role).values()
        assert {name for name in environ_of(first) if environ_of(first)[name] != environ_of(second)[name]} == differs


def test_every_variable_of_ours_is_a_setting(services: dict[str, Service]) -> None:
    known = {f"N4N_{field.name.upper()}" for field in fields(Settings)}

    for name, service in ours(services).items():
        told = {variable for variable in environ_of(service) if variable.startswith("N4N_")}
        assert told == set(environ_of(service)) & known, name
    assert {name for name in compose.image_environ() if name.startswith("N4N_")} <= known


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_a_secret_that_is_not_set_stops_the_start_with_its_remedy(missing: str) -> None:
    with pytest.raises(compose.Missing, match=f"{missing}: make it with openssl rand -hex 32"):
        compose.read({name: value for name, value in SECRETS.items() if name != missing})


def test_no_secret_stands_in_the_file(services: dict[str, Service]) -> None:
    for service in services.values():
        for name, value in environ_of(service).items():
            if name.endswith(("_TOKEN", "_PASSWORD")):
                assert value in SECRETS.values(), name
    followers = [*ours(services, "data-plane").values(), *ours(services, "prober").values()]
    assert not any("ADMIN" in name and "TOKEN" in name for one in followers for name in environ_of(one))
    assert "/.env" in (compose.ROOT / ".gitignore").read_text().split()


def test_a_container_has_more_time_to_stop_than_its_requests(services: dict[str, Service]) -> None:
    for service in ours(services, "data-plane").values():
        assert int(str(service["stop_grace_period"]).removesuffix("s")) > int(environ_of(service)["N4N_DRAIN_SEC"]) + 5


def test_the_balancer_has_the_rules_that_the_tests_balancer_has(services: dict[str, Service]) -> None:
    rules = compose.balancer_rules()

    assert rules.said("balance", "leastconn")
    assert rules.said("retry-on", "conn-failure")
    assert rules.said("option", "httpchk", "GET", "/ready")
    assert rules.said("http-check", "expect", "status", "200")
    assert not rules.said("option", "http-buffer-request")
    assert rules.servers == [(name, int(environ_of(one)["N4N_PORT"])) for name, one in ours(services, "data-plane").items()]


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
def test_haproxy_takes_its_configuration() -> None:
    path = compose.ROOT / "deploy" / "haproxy" / "haproxy.cfg"
    done = subprocess.run(["haproxy", "-c", "-f", str(path)], capture_output=True, text=True, timeout=20)

    assert done.returncode == 0, done.stderr


def test_the_image_is_made_of_files_that_are_there_and_runs_as_nobody() -> None:
    whole = (compose.ROOT / "Dockerfile").read_text()
    sent = [line[1:] for line in (compose.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for line in whole.splitlines() if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]]

    assert sorted(copied) == sorted(sent), "what is copied is sent, and nothing else"
    assert all((compose.ROOT / name).exists() for name in copied)
    packages = {path.parent.name for path in compose.ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert packages <= set(copied)
    assert "--require-hashes" in whole
    assert compose.instructions("USER") == ["10001:10001"]
    assert compose.instructions("ENTRYPOINT") == ['["n4n"]']
    assert not any(fnmatch.fnmatch(name, "*.env*") for name in sent)


@dataclass
class Place:
    """The compose file's services, as local processes."""

    fleet: Fleet
    balancer: HostedBalancer
    key: str

    def role(self, name: str) -> Role:
        return next(role for role in self.fleet.roles if role.name == name)

    def at(self, version: int, access_version: int = 1) -> bool:
        """Whether all four workers follow these versions, and both probers the catalog's."""
        nodes = cast(list[dict[str, object]], self.fleet.told("nodes"))
        held = sorted((node["role"], node["applied_version"], node["access_version"]) for node in nodes if node["connected"])
        return held == [("data-plane", version, access_version)] * 4 + [("prober", version, 0)] * 2

    def ask(self) -> tuple[int, str]:
        """Status and catalog version of an answer through the balancer."""
        through = Role("balancer", self.fleet.folder, {"N4N_PORT": str(self.balancer.port)})
        status, headers, _ = ask(through, self.key)
        return status, headers.get("x-n4n-catalog-version", "")


class Map:
    """Where the services of the file are on this machine."""

    def __init__(self, services: dict[str, Service], folder: Path, database_url: str, redis_url: str) -> None:
        self._services, self._folder = services, folder
        self._database_url, self._redis_url = database_url, redis_url
        self.ports = {(name, kind): free_port() for name in ours(services) for kind in PORTS}

    def role(self, name: str) -> Role:
        """A service as a process that has not been started."""
        service = self._services[name]
        (command,) = cast(list[str], service["command"])
        told = {**compose.image_environ(), **environ_of(service)}
        told = {variable: self._here(name, variable, value) for variable, value in told.items() if variable.startswith("N4N_")}
        told |= {kind: str(port) for (one, kind), port in self.ports.items() if one == name}
        if command in ("data-plane", "prober"):
            told["CANARY"] = "sk-provider-canary"  # as from providers.env
        return Role(name, self._folder, {"ROLE": command, **told})

    def _here(self, name: str, variable: str, value: str) -> str:
        match variable:
            case "N4N_DATABASE_URL":
                store = environ_of(self._services["postgres"])
                account = f"{store['POSTGRES_USER']}:{store['POSTGRES_PASSWORD']}"
                assert value == f"postgresql://{account}@postgres:5432/{store['POSTGRES_DB']}"
                return libpq_url(self._database_url)
            case "N4N_REDIS_URL":
                assert value == "redis://redis:6379/0"
                return self._redis_url
            case "N4N_ADMIN_URL":
                return ",".join(self._control_plane(name, place) for place in value.split(","))
            case "N4N_HOST" | "N4N_ADMIN_HOST":
                assert value == "0.0.0.0"
                return "127.0.0.1"
            case "N4N_DATA_DIR":
                return str(self._folder / f"{name}-files")
        return value

    def _control_plane(self, name: str, place: str) -> str:
        host, port = place.split(":")
        there = name if host == "127.0.0.1" else host
        assert self._services[there]["command"] == ["control-plane"]
        assert port == environ_of(self._services[there]).get("N4N_ADMIN_PORT", "9400")
        return f"127.0.0.1:{self.ports[there, 'N4N_ADMIN_PORT']}"


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as scripted:
        scripted.script(then=completion("pong"))
        yield scripted


@pytest.fixture
def place(services: dict[str, Service], tmp_path: Path, postgres_url: str, redis_url: str, upstream: HostedUpstream) -> Iterator[Place]:
    """All of them, started, with a catalog and a key."""
    here = Map(services, tmp_path, postgres_url, redis_url)
    with running_fleet(tmp_path, postgres_url) as fleet:
        fleet.admin_port = here.ports["control-plane-1", "N4N_ADMIN_PORT"]
        for name in ours(services):
            role = here.role(name)
            role.start()
            fleet.roles.append(role)
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog(upstream.base_url))
        key = fleet.create_key()
        members = [here.ports[name, "N4N_PORT"] for name, _ in compose.balancer_rules().servers]
        with running_balancer(members) as balancer:
            balancer.settled(*[True] * len(members), within=20)
            running = Place(fleet, balancer, key)
            eventually(lambda: running.at(1), "every worker at version 1")
            yield running


def kill_children_too(role: Role) -> None:
    """kill -9 of a container: everything in it is gone at once."""
    for pid in role.workers():
        os.kill(pid, 9)
    role.kill()


def test_the_services_start_answer_and_outlive_each_other(place: Place, upstream: HostedUpstream) -> None:
    assert [place.ask() for _ in range(4)] == [(200, "1")] * 4
    assert all(member.served for member in place.balancer.members), "both routers answer"
    nodes = cast(list[dict[str, object]], place.fleet.told("nodes"))
    routers, probers = ([str(node["node"]) for node in nodes if node["role"] == role] for role in ("data-plane", "prober"))
    assert {name.rsplit("-", 1)[0] for name in routers} == {"data-plane-1", "data-plane-2"} and probers == ["prober-1", "prober-2"]

    place.role("control-plane-1").kill()
    kill_children_too(place.role("data-plane-1"))
    place.balancer.settled(False, True)
    assert [place.ask() for _ in range(4)] == [(200, "1")] * 4

    place.fleet.admin_port = int(place.role("control-plane-2").environ["N4N_ADMIN_PORT"])
    place.fleet.apply(catalog(upstream.base_url, model={"aliases": ["again"]}))
    eventually(lambda: place.ask() == (200, "2"), "the next version")

    place.role("control-plane-1").start()
    place.role("data-plane-1").start()
    eventually(lambda: ready(place.role("data-plane-1")), "the router again")
    place.balancer.settled(True, True)

    eventually(lambda: place.at(2), "every worker at version 2")


def test_the_image_knows_whether_its_role_lives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.spec_from_file_location("healthcheck", compose.ROOT / "deploy" / "healthcheck.py")
    assert found is not None and found.loader is not None
    healthcheck = importlib.util.module_from_spec(found)
    found.loader.exec_module(healthcheck)
    for name, role in (("control-plane-1", "control-plane"), ("data-plane-2", "data-plane"), ("prober-1", "prober")):
        for variable in LIVES:
            monkeypatch.setenv(variable, place.role(name).environ[variable])
        command = f"/sbin/docker-init\0--\0/opt/n4n/bin/python\0/opt/n4n/bin/n4n\0{role}\0".encode()
        assert healthcheck.role(command) == role
        assert healthcheck.lives(role)
        for variable in LIVES:
            monkeypatch.setenv(variable, str(free_port()))
        assert not healthcheck.lives(role)
