"""Limits that hold across routers: buckets and leases in Redis, this router's share of them while Redis is away.

    packed    subjects as the bytes that scripts take
    scripts   the steps as commands, and what Redis answers
    budgets   the same for those that have budgets; what is known of their spending
    away      budgets while Redis is away
    lua/      the steps: reserve, settle, renew; and what routers tell each other
    limits    `Limits`: reserve and settle, whether Redis is there or not

The arithmetic is that of n4n/core/limits/levels.py, which stands in for Redis.
"""

from n4n.runtime.limits.limits import Limits, Reservation, Sight
from n4n.runtime.limits.packed import Party

__all__ = ["Limits", "Party", "Reservation", "Sight"]
