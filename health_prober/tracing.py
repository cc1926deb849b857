"""Traces of a prober: one for each task that it carries out, which links to the turn that granted it and to what made it due.

A call of a provider is a client span in it, and the provider is told of it, as routers do. No prompt, no answer, no key and no address is
in any attribute. What may make a task due: `schedule`, its interval is over; `first`, this prober has not carried it out before;
`recheck`, the last time it ended ill; `silence`, live traffic had answered the question until now, and no longer does.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import AbstractContextManager, nullcontext
from typing import Final, assert_never

from health_prober.calls import Heard
from n4n.core.catalog import Account, Endpoint, Provider
from n4n.core.chat import ChatRequest
from n4n.core.errors import Failure
from n4n.core.gen_ai import provider_name
from n4n.core.pricing import usd
from n4n.core.probes.work import BalanceLook, Checks, Job, Probe
from n4n.runtime.spans import Tracer, Work, current_work, part
from n4n.runtime.tracing import Kind, Value

_NOTHING: Final = nullcontext()
WELL: Final = "ok"
UNFAILED: Final = frozenset((WELL, "unclear"))  # the second says nothing of anybody


class Traces:
    """Of one prober: knows how each task ended the last time."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._last: dict[str, Work] = {}
        self._spared: set[str] = set()

    def __repr__(self) -> str:
        return f"<Traces of {len(self._last)} tasks>"

    def turn(self) -> Work:
        """A turn begins. It is worth a span only where it grants something; it is kept where a task that it granted is."""
        return self._tracer.begin("n4n turn")

    def spared(self, task: str) -> None:
        """It was not carried out, as live traffic had just answered the question."""
        self._spared.add(task)

    def begin(self, job: Job, turn: Work | None) -> Work:
        """A task is carried out."""
        name = job.task.name
        before, causes = self._last.get(name), [turn] if turn is not None else []
        cause = "schedule"
        if before is not None and before.error is not None:
            cause = "recheck"
            if before.kept:
                causes = [*causes, before]
        elif name in self._spared:
            cause = "silence"
        elif before is None:
            cause = "first"
        self._spared.discard(name)
        work = self._last[name] = self._tracer.begin(_NAMES[type(job)], causes=causes)
        work.told["n4n.probe.cause"] = cause
        match job:
            case Probe() | Checks():
                work.told |= {"n4n.endpoint": job.endpoint.id, "n4n.provider": job.endpoint.provider.name, "n4n.model": job.endpoint.model}
            case BalanceLook():
                work.told |= {"n4n.account": job.account.name, "n4n.provider": job.provider.name}
            case never:
                assert_never(never)
        return work

    def keep_only(self, tasks: Container[str]) -> None:
        """Others are gone from the catalog."""
        self._last = {name: work for name, work in self._last.items() if name in tasks}
        self._spared = {name for name in self._spared if name in tasks}


_NAMES: Final[dict[type[Job], str]] = {Probe: "n4n probe", Checks: "n4n checks", BalanceLook: "n4n balance"}


def carried_out(traces: Traces | None, job: Job, turn: Work | None) -> AbstractContextManager[Work | None]:
    """A task's trace, the current one inside; nothing where no traces are wanted."""
    return _NOTHING if traces is None else traces.begin(job, turn)


def granted(turn: Work | None, claims: int, grants: int, members: int, *, alone: bool) -> None:
    """A turn is over. `alone`: Redis was away, nobody was asked."""
    if turn is not None and grants:
        turn.told |= {"n4n.claims": claims, "n4n.grants": grants, "n4n.probers": members, "n4n.alone": alone}
        turn.end()


def attempt(request: ChatRequest, endpoint: Endpoint, account: Account, ids: tuple[str, str]) -> AbstractContextManager[Work | None]:
    """A call of a provider, as a client span; `ids`: of the request and the attempt. It is the current work inside."""
    if current_work() is None:
        return _NOTHING
    operation = "embeddings" if request.native is not None else "chat"
    made = part(f"{operation} {endpoint.upstream_model}", Kind.CLIENT)
    assert isinstance(made, Work)
    made.told |= {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": endpoint.upstream_model,
        "gen_ai.request.stream": request.stream,
        "n4n.request_id": ids[0],
        "n4n.attempt_id": ids[1],
        "n4n.endpoint": endpoint.id,
        **_place(endpoint.provider, account),
    }
    if endpoint.region:
        made.told["n4n.region"] = endpoint.region
    return made


def asked_balance(provider: Provider, account: Account) -> AbstractContextManager[Work | None]:
    """A question about a balance, as a client span, the current one inside."""
    made = part("balance", Kind.CLIENT)
    if isinstance(made, Work):
        made.told |= _place(provider, account)
    return made


def _place(provider: Provider, account: Account) -> dict[str, Value]:
    told: dict[str, Value] = {"gen_ai.provider.name": provider_name(provider.name, provider.dialect)}
    return told | {"n4n.provider": provider.name, "n4n.account": account.name}


def header_line(work: Work | None) -> bytes:
    """What tells the provider whose child its work is; empty: nothing."""
    return b"" if work is None else f"traceparent: {work.header}\r\n".encode()


def heard_back(work: Work | None, heard: Heard, cost_pico: int | None) -> None:
    """How a call ended."""
    if work is None:
        return
    failed(work, heard.failure)
    told = work.told
    if heard.injected:
        told["n4n.injected_fault"] = heard.injected
    if heard.failure is None:
        told["http.response.status_code"] = 200
    if heard.ttft_s is not None:
        told["gen_ai.response.time_to_first_chunk"] = round(heard.ttft_s, 6)
    if heard.usage is not None:
        told["gen_ai.usage.input_tokens"] = heard.usage.prompt_tokens
        told["gen_ai.usage.output_tokens"] = heard.usage.completion_tokens
    if cost_pico is not None:
        told["n4n.cost_usd"] = str(usd(cost_pico))


def failed(work: Work | None, failure: Failure | None) -> None:
    """A call ended so; None: well."""
    if work is None:
        return
    work.told["n4n.outcome"] = WELL if failure is None else failure.failure_class.value
    if failure is not None:
        if failure.status is not None and failure.may_have_run:
            work.told["http.response.status_code"] = failure.status
        work.fail(failure.failure_class.value)


def came_to(outcome: str, account: str = "") -> None:
    """What the current task came to, in the words of `n4n_probes_total`; `account`: whose turn it was."""
    work = current_work()
    if work is None:
        return
    work.told["n4n.outcome"] = outcome
    if account:
        work.told["n4n.account"] = account
    if outcome not in UNFAILED:
        work.fail(outcome)
    elif outcome != WELL:
        work.notice()


def checked(capability: str, *, passed: bool) -> None:
    """What a deeper check of the current task came to."""
    work = current_work()
    if work is None:
        return
    work.told[f"n4n.check.{capability}"] = passed
    if not passed:
        work.notice()
