"""What Redis must know of caps after it lost everything: a tenant's spending at a provider, an account's tokens today, by the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import text

from control_plane.spending import Reading, Standing
from n4n.core.budgets import calendar_span
from n4n.core.errors import StoreUnavailable
from n4n.runtime.limits.tallies import Counter, of_account, of_cap, tally
from n4n.runtime.stores import Store

_TOKENS: Final = """
    SELECT account, sum(prompt_tokens + completion_tokens) AS tokens FROM usage_ledger
    WHERE started_at >= :midnight AND account = ANY(:accounts) AND state <> 'unknown' GROUP BY account"""


async def tokens_today(reading: Reading, accounts: Sequence[str], now_ms: int) -> Mapping[str, int]:
    """Since midnight (UTC), by account. DatabaseAway."""
    midnight = datetime.fromtimestamp(calendar_span("day", now_ms).begins / 1000, UTC)
    async with reading() as connection:
        rows = await connection.execute(text(_TOKENS), {"midnight": midnight, "accounts": list(accounts)})
        return {row.account: int(row.tokens) for row in rows}


async def seed_caps(store: Store, caps: Sequence[Standing], accounts: Mapping[str, int], now_ms: int) -> None:
    """Each counter is so high at least. StoreUnavailable."""
    counters: dict[int, list[tuple[str, float, float]]] = {}

    def add(counter: Counter, spent: int) -> None:
        if spent > 0:
            counters.setdefault(counter.ends_ms, []).append((counter.name, 0.0, float(spent)))

    for one in caps:
        add(of_cap(one.held.tenant, one.held.provider, one.held.budget, now_ms), one.spent)
    for account, tokens in accounts.items():
        add(of_account(account, now_ms), tokens)
    for outcome in await store.pipeline([tally(ends_ms, found) for ends_ms, found in counters.items()]):
        if isinstance(outcome, StoreUnavailable):
            raise outcome
