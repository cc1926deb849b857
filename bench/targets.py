"""What n4n must reach, beside what was measured, from the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.measured import Measured, Run, middle
from bench.pairs import NAME, PAIRS
from bench.proxies import BARE, NGINX
from bench.report import markdown
from bench.routers import SGLANG
from bench.trials import TWO_WORKERS


@dataclass(frozen=True, slots=True)
class Target:
    """One line. `value` is None where it was not measured, or what it is compared with was not."""

    what: str
    must: str
    value: float | None
    meets: Callable[[float], bool]
    beside: str = ""
    form: str = ".2f"

    @property
    def verdict(self) -> str:
        """In a word."""
        return "not measured" if self.value is None else "met" if self.meets(self.value) else "not met"

    def cells(self) -> list[str]:
        """As a row."""
        return [self.what, self.must, "" if self.value is None else format(self.value, self.form), self.beside, self.verdict]


def targets_table(measured: Measured) -> str:
    """All of them."""
    return markdown("Targets", ["", "must", "measured", "CPU µs of n4n / of the other", ""], [one.cells() for one in targets(measured)])


def targets(measured: Measured) -> Iterator[Target]:
    """In the order in which they are written down."""
    for trial, what, base, least in (
        ("json32", "JSON, 32 connections", NGINX, 0.18),
        ("json32", "JSON, 32 connections", BARE, 2.0),
        ("json32", "JSON, 32 connections", SGLANG, 1.0),
        ("tls32", "JSON, TLS to the upstream", BARE, 2.0),
        ("sse256", "SSE streams per second", NGINX, 0.45),
    ):
        yield _ratio(measured, trial, what, base, least)
    nginx, ours = measured.low.get(NGINX, ()), measured.low.get(NAME, ())
    for label, value in (("p50", lambda low: low.added_p50), ("p95", lambda low: low.added_p95)):
        yield _at_most(f"added {label} at 50 requests/s", "× nginx's own", 3.5, _over(middle(ours, value), middle(nginx, value)))
    yield _at_most("the stream guard, beyond its own rule", "ms", 2.0, middle(measured.guard, lambda one: one.beyond))
    yield _at_least("128 connections ÷ 32", 0.85, _over(measured.rate("json128", NAME), measured.rate("json32", NAME)))
    one, two = measured.workers.get(NAME, ()), measured.workers.get(TWO_WORKERS, ())
    per_request = _over(middle(two, lambda turn: turn.run.worker_us), middle(one, lambda turn: turn.run.worker_us))
    yield _at_most("CPU per request, 2 workers ÷ 1", "", 1.1, per_request)
    shares = [share / max(1, sum(turn.connections)) for turn in two for share in turn.connections]
    furthest = max((abs(share - 0.5) * 100 for share in shares), default=None)
    yield Target("connections of each of 2 workers of 128, furthest from half", "≤ 10 %", furthest, lambda seen: seen <= 10, form=".0f")
    for pair in PAIRS:
        for kind in pair.kinds:
            yield _at_least(
                f"{kind}, {pair.what}: on ÷ off", pair.least, middle(measured.pairs(pair, kind), lambda on: on[0].rate / on[1].rate)
            )
    yield _at_most("a plan for 10 candidates ÷ a whole request's CPU", "", 0.1, middle(measured.plans, lambda one: one.share), ".3f")
    yield _at_most("the same at 5,000 models ÷ at 10", "", 1.2, middle(measured.plans, lambda one: one.growth))
    growth = middle(measured.memory, lambda memory: memory.mib / memory.first_mib)
    yield _at_most("RSS, after all ÷ after the first 50,000 requests", "", 1.05, growth, ".3f")


def _on_over_off(turns: tuple[Run, Run]) -> float:
    on, off = turns
    return on.rate / off.rate


def _ratio(measured: Measured, trial: str, what: str, base: str, least: float) -> Target:
    ratio = _over(measured.rate(trial, NAME), measured.rate(trial, base))
    costs = measured.worker_us(trial, NAME), measured.worker_us(trial, base)
    beside = f"{costs[0]:,.0f} / {costs[1]:,.0f}" if costs[0] is not None and costs[1] is not None else ""
    return Target(what, f"≥ {least:g} × {base}", ratio, lambda value: value >= least, beside, ".3f")


def _at_least(what: str, least: float, value: float | None) -> Target:
    return Target(what, f"≥ {least:g}", value, lambda seen: seen >= least)


def _at_most(what: str, unit: str, most: float, value: float | None, form: str = ".2f") -> Target:
    return Target(what, f"≤ {most:g} {unit}".strip(), value, lambda seen: seen <= most, form=form)


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
