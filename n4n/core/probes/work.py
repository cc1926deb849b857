"""All that probers of one catalog have to do: a task for each endpoint, for its deeper checks, and for each balance that is watched."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from n4n.core.catalog import Account, Endpoint, Model, Provider, Snapshot
from n4n.core.chat import ChatRequest
from n4n.core.errors import MalformedRequest
from n4n.core.probes.balances import EVERY_S, api_of
from n4n.core.probes.budget import budget_of
from n4n.core.probes.checks import Check, checks_of
from n4n.core.probes.profile import is_probed, most_pico, probe_request
from n4n.core.probes.schedule import Task

GRACE_S = 2.0  # of a lease, beyond what its task can take; less where intervals are short
BALANCE_S = 10.0  # for the answer to a question about a balance
_LEAST_GRACE_S = 0.5
_NO_API = "nobody at its provider's host is known to tell a balance: set balance: {api: …} to one who speaks the same way, or leave it out"
_QUICKEST_S, _SLOWEST_S = 0.1, 1.0


class Probe(msgspec.Struct, frozen=True):
    """One small completion of one endpoint."""

    task: Task
    endpoint: Endpoint
    model: Model
    request: ChatRequest


class Checks(msgspec.Struct, frozen=True):
    """A few questions to one endpoint, one after the other."""

    task: Task
    endpoint: Endpoint
    model: Model
    checks: tuple[Check, ...]


class BalanceLook(msgspec.Struct, frozen=True):
    """What is left on one account."""

    task: Task
    account: Account
    provider: Provider
    api: str


Job = Probe | Checks | BalanceLook


class Work(msgspec.Struct, frozen=True):
    """By task. `unaskable`: what can be asked nothing as the catalog says it (`endpoint NAME`, `account NAME`), and why."""

    jobs: Mapping[str, Job]
    unaskable: Mapping[str, str]

    @property
    def tasks(self) -> dict[str, Task]:
        """For a schedule."""
        return {name: job.task for name, job in self.jobs.items()}


def work_of(snapshot: Snapshot, dialects: Container[str]) -> Work:
    """The same at every prober of the same catalog and version, whatever keys it has."""
    jobs: dict[str, Job] = {}
    unaskable: dict[str, str] = {}
    for endpoint in snapshot.endpoints.values():
        model = snapshot.models[endpoint.model]
        if endpoint.provider.dialect not in dialects or not is_probed(model.probe, endpoint, budget_of(endpoint.provider)):
            continue
        try:
            found = _of_endpoint(endpoint, model)
        except MalformedRequest as error:
            unaskable[f"endpoint {endpoint.id}"] = f"the probe makes no request: {error.message}"
            continue
        jobs.update({job.task.name: job for job in found})
    for endpoint in snapshot.endpoints.values():
        for account in endpoint.accounts:
            api = api_of(account, endpoint.provider)
            if api is not None and f"b:{account.name}" not in jobs:
                task = Task(f"b:{account.name}", EVERY_S, BALANCE_S + GRACE_S)
                jobs[task.name] = BalanceLook(task, account, endpoint.provider, api)
            elif api is None and account.balance is not None:
                unaskable[f"account {account.name}"] = _NO_API
    return Work(jobs, unaskable)


def _of_endpoint(endpoint: Endpoint, model: Model) -> list[Job]:
    policy, purse = model.probe, endpoint.provider.name
    timeout_s = policy.timeout_ms / 1000
    request = probe_request(model, endpoint)
    cost = most_pico(request, policy.max_tokens, endpoint)
    lease_s = timeout_s + min(GRACE_S, max(_LEAST_GRACE_S, policy.interval_sec / 2))
    found: list[Job] = [Probe(Task(f"p:{endpoint.id}", policy.interval_sec, lease_s, purse, cost), endpoint, model, request)]
    checks = tuple(checks_of(model, endpoint)) if policy.checks_interval_sec else ()
    if checks:
        cost = sum(most_pico(check.request, policy.checks_max_tokens, endpoint) for check in checks)
        lease_s = check_timeout_s(model) * len(checks) + GRACE_S
        found.append(Checks(Task(f"c:{endpoint.id}", policy.checks_interval_sec, lease_s, purse, cost), endpoint, model, checks))
    return found


def first_token_s(model: Model) -> float:
    """How long a probe's first token may take: no longer than routers would wait for one."""
    timeout_s, allowed_ms = model.probe.timeout_ms / 1000, model.timeouts.first_token_ms
    return timeout_s if allowed_ms is None else min(timeout_s, allowed_ms / 1000)


def check_timeout_s(model: Model) -> float:
    """For one deeper check: there is more to write than in a probe."""
    return max(30.0, model.probe.timeout_ms / 1000)


def pace(work: Work) -> tuple[float, float]:
    """Seconds between a prober's turns, and after which silence it is given up: such that a dead one's tasks are taken over in time."""
    shortest = min((job.task.interval_s for job in work.jobs.values()), default=30.0)
    turn_s = min(_SLOWEST_S, max(_QUICKEST_S, shortest / 25))
    return turn_s, 5 * turn_s
