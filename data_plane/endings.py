"""Ends what runs under a key that was revoked, or whose budget was lowered below what is spent: a word to the client, and no more output.

A key that merely expires may finish what it began. What is said in a request whose tenant does not want it told any more is forgotten.
"""

from __future__ import annotations

import asyncio
from asyncio import Task

from data_plane.overspent import budget_exceeded
from data_plane.router import Router
from data_plane.web import Web
from n4n.core.access import AccessSnapshot, Key
from n4n.core.errors import BudgetExceeded, GatewayError, KeyRevoked
from n4n.core.limits.purse import Overspent
from n4n.core.limits.subjects import Draw
from n4n.runtime.labels import new_reservation_id
from n4n.runtime.limits import Reservation

AGAIN_S = 0.7  # by then the spending of a budget that is new to Redis is known there


class Endings:
    """Of one worker. `changed` when other keys are in force, `keep` in the background."""

    def __init__(self, router: Router, web: Web) -> None:
        self._router, self._web = router, web
        self._doubted: dict[str, Key] = {}
        self._news = asyncio.Event()

    def changed(self, before: AccessSnapshot | None, after: AccessSnapshot) -> None:
        """What runs is held against the keys in force."""
        for task, key_id in self._running():
            key, was = after.keys.get(key_id), None if before is None else before.keys.get(key_id)
            if key is None or not key.capture_content:
                self._web.running[task].content = None
            if key is None:
                if was is None or was.expires_at is None or was.expires_at > self._router.wall():
                    self._web.end(task, KeyRevoked())
            elif was is not None and (was.budgets != key.budgets or was.tenant_budgets != key.tenant_budgets):
                self._doubted[key_id] = key
                self._news.set()

    async def keep(self) -> None:
        """Asks whether edited budgets are spent, until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            doubted, self._doubted = self._doubted, {}
            for wait_s in (0.0, AGAIN_S):
                await asyncio.sleep(wait_s)
                for key_id, key in doubted.items():
                    error = await self._spent(key)
                    if error is not None:
                        self._end(key_id, error)

    async def _spent(self, key: Key) -> BudgetExceeded | None:
        """The budget that is spent, whatever is reserved of it."""
        quotas = self._router.quotas
        caller = None if quotas is None else quotas.caller(key)
        if quotas is None or caller is None or not caller.spends:
            return None
        (answer,) = await quotas.limits.reserve(new_reservation_id(), ((caller.party, Draw()),))
        if isinstance(answer, Reservation):
            quotas.limits.give_back(answer)
        if isinstance(answer, Overspent) and answer.spent >= answer.budget.amount:
            return budget_exceeded(answer, self._router.wall())
        return None

    def _end(self, key_id: str, error: GatewayError) -> None:
        for task, whose in self._running():
            if whose == key_id:
                self._web.end(task, error)

    def _running(self) -> list[tuple[Task[None], str]]:
        return [(task, record.key_id) for task, record in self._web.running.items() if record.key_id is not None]
