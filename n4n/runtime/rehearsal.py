"""An attempt that the catalog's fault strikes: it waits, and is answered, in the provider's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from n4n.core.dialects import Dialect
from n4n.core.errors import Failure
from n4n.core.faults import Strike, answer
from n4n.runtime.upstream import Phases
from n4n.runtime.upstream.faults import late


async def endured(
    strike: Strike, dialect: Dialect, phases: Phases, clock: Callable[[], float], wall: Callable[[], float]
) -> Failure | Phases:
    """The delay, within the bounds of the attempt; then how it failed, or what is left of its time for the provider to be asked in.

    The time to the first byte, or token, runs meanwhile, as it would if the provider were slow. Cancelled, it ends at once.
    """
    if strike.delay_s:
        begun = clock()
        left, phase = phases.first_byte_s, "first_token"
        if phases.deadline - begun < left:
            left, phase = phases.deadline - begun, "total"
        await asyncio.sleep(min(left, strike.delay_s))
        if left <= strike.delay_s:
            return late(phase).failure
        phases = replace(phases, first_byte_s=phases.first_byte_s - (clock() - begun))
    return phases if strike.status is None else answer(strike.status, dialect, wall())
