"""Where the runs take place: PostgreSQL, a control plane, routers as processes of their own, one Redis, and the catalog of all runs."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from n4n.runtime.embedded import THROWAWAY, start_postgres
from tests.support.fleet import Fleet, Role, eventually, ready, running_fleet
from tests.support.valkey import ValkeyServer, running_valkey

POOL_RPM, POOL_TPM = 300, 60_000  # of each of three accounts
MIXED_RPM = 600
START_S = 90.0  # of a program, on a machine that does other things
ALONE, TOGETHER = "each router keeps its share", "limits hold across routers"  # what a router says of Redis
_ACCOUNTS = ("plain", "fifth", "other", "mixed", "pool1", "pool2", "pool3", "deep1", "deep2", "deep3")


def document(provider: str, simulated: str) -> dict[str, object]:
    """`plain`, `quick`: no limits; `fifth`: two endpoints, one of which refuses; `mixed`: one account; `pool`, `deep`: three accounts."""
    free: dict[str, object] = {"provider": "counting"}
    accounts: dict[str, dict[str, object]] = {name: {**free, "credential": f"env:N4N_KEY_{name.upper()}"} for name in _ACCOUNTS}
    accounts["mixed"]["limits"] = {"rpm": MIXED_RPM}
    for number in (1, 2, 3):
        accounts[f"pool{number}"] |= {"provider": "quotas", "limits": {"scope": "shared", "rpm": POOL_RPM}}
        accounts[f"deep{number}"] |= {"provider": "quotas", "limits": {"scope": "shared", "tpm": POOL_TPM}}
    once = {"retry": {"max_retries": 0}}
    quick = {**once, "timeouts": {"first_token_ms": 1000}}
    pooled = {"model": "pool", "upstream_model": "gpt-4o-mini"}
    return {
        "providers": {
            "counting": {"dialect": "openai", "base_url": provider, "allow_private": True},
            "quotas": {"dialect": "openai", "base_url": simulated, "allow_private": True},
        },
        "accounts": accounts,
        "models": {"plain": once, "quick": quick, "fifth": {}, "mixed": {}, "pool": {}, "deep": {}},
        "endpoints": {
            "e-plain": {"model": "plain", "account": "plain"},
            "e-quick": {"model": "quick", "account": "plain"},
            "e-fifth": {"model": "fifth", "account": "fifth"},
            "e-other": {"model": "fifth", "account": "other"},
            "e-mixed": {"model": "mixed", "account": "mixed"},
            "e-pool": {**pooled, "accounts": ["pool1", "pool2", "pool3"]},
            "e-deep": {**pooled, "model": "deep", "accounts": ["deep1", "deep2", "deep3"]},
        },
    }


@dataclass
class Stage:
    """Everything that runs."""

    fleet: Fleet
    redis: ValkeyServer
    routers: list[Role]

    def ports(self) -> list[int]:
        """Of the routers that run."""
        return [int(role.environ["N4N_PORT"]) for role in self.routers if role.process is not None and role.process.poll() is None]

    def key(self, **limits: int) -> str:
        """A new key of a tenant of its own, known to all routers."""
        flags = [word for name, value in limits.items() for word in (f"--{name}", str(value))]
        tenant = f"tenant-{os.urandom(4).hex()}"
        made = self.fleet.told("key", "create", "--tenant", tenant, *flags)
        assert isinstance(made, dict)
        secret = str(made["secret"] if "secret" in made else made["api_key"])
        eventually(lambda: all(_knows(port, secret) for port in self.ports()), "the key at every router")
        return secret

    def leases(self) -> int:
        """Reservations in Redis that have not expired."""
        with self.redis.client() as client:
            seconds, micros = client.time()
            now = seconds * 1000 + micros / 1000
            return sum(client.zcount(name, now, "+inf") for name in client.scan_iter("n4n:*:l"))

    def said(self, role: Role, what: str) -> list[float]:
        """When a router said so, in Unix time."""
        lines = [json.loads(line) for line in role.errors.splitlines() if what in line and line.startswith("{")]
        return [datetime.fromisoformat(str(line["timestamp"])).timestamp() for line in lines]


def _knows(port: int, key: str) -> bool:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


@contextmanager
def stage(
    folder: Path,
    provider: str,
    simulated: str,
    *,
    routers: int = 3,
    redis_port: int | None = None,
    redis_url: Mapping[int, str] | None = None,
) -> Iterator[Stage]:
    """All of it, for as long as the block lasts. `redis_url`: routers that reach Redis by another way, by number."""
    stores = folder / "stores"
    stores.mkdir(parents=True)
    for one in (folder, stores):
        one.chmod(0o711)  # as root, the server is another user
    database = start_postgres(stores, settings=THROWAWAY)
    secrets = {f"N4N_KEY_{name.upper()}": name for name in _ACCOUNTS}
    try:
        with running_valkey(folder, port=redis_port) as redis, running_fleet(folder, database.url) as fleet:
            fleet.control_plane()
            eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane", within=START_S)
            fleet.apply(document(provider, simulated))
            fleet.create_key()  # routers are ready once there are keys
            roles = [
                fleet.data_plane(f"router-{number}", N4N_REDIS_URL=(redis_url or {}).get(number, redis.url), **secrets)
                for number in range(routers)
            ]
            for role in roles:
                eventually(partial(ready, role), f"{role.name} to be ready", within=START_S)
            yield Stage(fleet, redis, roles)
    finally:
        database.stop()
