"""Attempts at endpoints whose faults the catalog injects: struck or not, delayed, answered in the provider's place, and marked as such."""

from __future__ import annotations

import asyncio

from data_plane.record import Record
from data_plane.router import Router
from n4n.core.catalog import Endpoint
from n4n.core.dialects import Dialect
from n4n.core.errors import Failure
from n4n.runtime.rehearsal import endured
from n4n.runtime.upstream import Phases


async def rehearse(router: Router, record: Record, endpoint: Endpoint, dialect: Dialect, phases: Phases) -> Failure | Phases:
    """How the newest attempt failed without a call, or what time is left for one.

    The fault is that of the catalog in force: it may have been taken back since the request was planned.
    """
    now = router.snapshot.endpoints.get(endpoint.id)
    if now is None or now.fault is None:
        return phases
    strike, attempt, begun = now.fault.strike(router.draw), record.attempts[-1], router.clock()
    attempt.injected = str(strike)
    try:
        came = await endured(strike, dialect, phases, router.clock, router.wall)
    except asyncio.CancelledError:
        attempt.ended = router.clock()  # the client left, and nothing was sent that could be billed
        raise
    finally:
        record.waited_s += router.clock() - begun
    if isinstance(came, Failure):
        record.attempt_ended(came)
        attempt.status = None  # which is the provider's, and it was not asked
    return came
