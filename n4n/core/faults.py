"""Faults that the catalog injects at an endpoint, for rehearsals: which attempts they strike, and what those are told.

An attempt that is struck fares as if the provider had been slow, or had answered with that status and an empty body. It is drawn for each
attempt anew, whether it is delayed and, independently, whether it is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from n4n.core.errors import Failure

if TYPE_CHECKING:
    from n4n.core.dialects import Dialect

USUAL_STATUS = 503  # where attempts are aborted and nobody says with which


@dataclass(frozen=True, slots=True)
class Fault:
    """`abort`, `delay`: shares of the attempts, in [0, 1], and of either kind what befalls those."""

    abort: float = 0.0
    status: int = USUAL_STATUS
    delay: float = 0.0
    delay_s: float = 0.0

    def __str__(self) -> str:
        aborted = f"{self.abort * 100:g} % of attempts are answered with status {self.status}" if self.abort else ""
        delayed = f"{self.delay * 100:g} % of attempts are delayed by {self.delay_s * 1000:.0f} ms" if self.delay else ""
        return ", ".join(filter(None, (aborted, delayed)))

    def strike(self, draw: Callable[[], float]) -> Strike:
        """What befalls the next attempt; always two numbers in [0, 1) are drawn, so that a seed means the same whatever the shares are."""
        delayed, aborted = draw() < self.delay, draw() < self.abort
        return Strike(self.delay_s if delayed else 0.0, self.status if aborted else None)


@dataclass(frozen=True, slots=True)
class Strike:
    """What befalls one attempt. `status` None: it is not aborted."""

    delay_s: float
    status: int | None

    def __str__(self) -> str:
        """As logs and traces tell it; empty: nothing befalls it."""
        delayed = f"delay {self.delay_s * 1000:.0f} ms" if self.delay_s else ""
        aborted = "" if self.status is None else f"abort {self.status}"
        return ", ".join(filter(None, (delayed, aborted)))


def fault_of(raw: Mapping[str, object] | None) -> Fault | None:
    """An endpoint's `fault` in its normal form; None: nothing is ever struck. A kind whose share is not said strikes every attempt."""
    if not raw:
        return None
    named = "abort_status" in raw or "abort_percent" in raw
    abort = cast(float, raw.get("abort_percent", 100.0)) / 100 if named else 0.0
    delay_s = cast(int, raw.get("delay_ms", 0)) / 1000
    delay = cast(float, raw.get("delay_percent", 100.0)) / 100 if delay_s else 0.0
    fault = Fault(abort, cast(int, raw.get("abort_status", USUAL_STATUS)), delay, delay_s if delay else 0.0)
    return fault if fault.abort or fault.delay else None


def injected(endpoints: Mapping[str, Mapping[str, object]]) -> list[str]:
    """A line for each endpoint of a valid document's `endpoints` that strikes, in order of name."""
    found = ((name, fault_of(cast(Mapping[str, object] | None, raw.get("fault")))) for name, raw in sorted(endpoints.items()))
    return [f"endpoint {name}: {told(fault)}" for name, fault in found if fault is not None]


def told(fault: Fault) -> str:
    """What people are told of it."""
    return f"a fault is injected: {fault}"


def answer(status: int, dialect: Dialect, now: float) -> Failure:
    """What an aborted attempt is told: the class that the dialect gives this status with nothing else to go by. `now`: Unix seconds."""
    return replace(dialect.failure(status, {}, b"", now), message=f"injected by the catalog, for a rehearsal: status {status}")
