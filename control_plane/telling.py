"""What is to be told of alerts, and to whom it is told yet. It stands in Postgres, so that any control plane goes on with it.

Each receiver is told by itself: one that hangs makes no other wait. Of one trouble it is told in order, the end never before the beginning.
Who tells takes a notice for LEASE first; whoever dies meanwhile leaves it to another, so a receiver may hear it twice, under the same key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

import aiohttp
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.schema import DatabaseAway
from control_plane.traffic import Reading
from control_plane.webhooks import SEND_S, Body, Webhook, send, told_of
from n4n.core.alerts.watch import Notice
from n4n.runtime.spans import Tracer, begun
from n4n.runtime.tracing import Kind

GIVEN_UP: Final = timedelta(hours=24)  # after which nobody needs to hear of it
LEASE: Final = timedelta(seconds=3 * SEND_S)
AT_ONCE: Final = 8  # notices that one receiver is told at a time
POLL_S: Final = 2.0
_RETRIES_S: Final = (0.0, 2.0, 10.0, 60.0, 300.0)  # and so on, every five minutes
_KEPT: Final = timedelta(days=90)
_TAKE = """
    UPDATE alert_deliveries AS mine SET due = :leased, tries = mine.tries + 1
    FROM alert_notices AS known
    WHERE known.id = mine.notice AND mine.receiver = :receiver AND mine.notice IN (
        SELECT notice FROM alert_deliveries AS ready WHERE receiver = :receiver AND due <= :now AND NOT EXISTS (
            SELECT FROM alert_deliveries AS earlier
            WHERE earlier.receiver = ready.receiver AND earlier.key = ready.key AND earlier.notice < ready.notice
        ) ORDER BY notice LIMIT :most FOR UPDATE SKIP LOCKED
    ) RETURNING mine.notice, known.at, known.told, mine.tries
"""
_TOLD = "DELETE FROM alert_deliveries WHERE notice = :notice AND receiver = :receiver"
_LATER = "UPDATE alert_deliveries SET due = :due WHERE notice = :notice AND receiver = :receiver"
_NOTE = """
    INSERT INTO alert_notices (at, due, told, pending) VALUES (:now, :now, CAST(:told AS jsonb), CAST('[]' AS jsonb)) RETURNING id
"""
_OWE = "INSERT INTO alert_deliveries (notice, receiver, key, due) VALUES (:notice, :receiver, :key, :now)"
_log = logging.getLogger("n4n.control_plane")


async def note(connection: AsyncConnection, notices: Iterable[Notice], webhooks: Sequence[Webhook], now: datetime) -> None:
    """Keeps what is to be told, and what was told long ago no longer."""
    for notice in notices:
        told = msgspec.json.encode(told_of(notice, now.timestamp())).decode()
        number = (await connection.execute(text(_NOTE), {"now": now, "told": told})).scalar_one()
        for webhook in webhooks:
            owed = {"notice": number, "receiver": webhook.name, "key": notice.violation.key, "now": now}
            await connection.execute(text(_OWE), owed)
    await connection.execute(text("DELETE FROM alert_notices WHERE at < :before"), {"before": now - _KEPT})
    gone = "DELETE FROM alert_deliveries WHERE due < :before"  # to receivers that are in nobody's settings any more
    await connection.execute(text(gone), {"before": now - GIVEN_UP})


class Teller:
    """Tells receivers what they are still to be told. `hold` scales the time between two tries, for rehearsals."""

    def __init__(
        self,
        reading: Reading,
        webhooks: Sequence[Webhook],
        now: Callable[[], datetime],
        *,
        hold: float = 1.0,
        tracer: Tracer | None = None,
    ) -> None:
        self._reading, self._webhooks, self._now, self._hold, self._tracer = reading, webhooks, now, hold, tracer

    async def keep(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http, asyncio.TaskGroup() as group:
            for webhook in self._webhooks:
                group.create_task(self._keep_telling(http, webhook), name=f"alerts to {webhook.name}")

    async def _keep_telling(self, http: aiohttp.ClientSession, webhook: Webhook) -> None:
        while True:
            try:
                while await self.tell(http, webhook):
                    pass
            except DatabaseAway:  # whoever looks says so
                pass
            await asyncio.sleep(POLL_S * self._hold)

    async def tell_all(self, http: aiohttp.ClientSession) -> int:
        """One round for every receiver; how many notices were tried."""
        return sum(await asyncio.gather(*(self.tell(http, webhook) for webhook in self._webhooks)))

    async def tell(self, http: aiohttp.ClientSession, webhook: Webhook) -> int:
        """Tells one receiver what is due, the oldest first; how many notices were tried. DatabaseAway."""
        now = self._now()
        values = {"now": now, "leased": now + LEASE, "receiver": webhook.name, "most": AT_ONCE}
        async with self._reading() as connection:
            due = (await connection.execute(text(_TAKE), values)).all()
        problems = await asyncio.gather(*(self._send(http, webhook, cast(Body, told), tries) for _, _, told, tries in due))
        if due:
            async with self._reading() as connection:
                for (number, at, told, tries), problem in zip(due, problems, strict=True):
                    await self._answered(connection, webhook, number, at, str(told["alert"]), tries, problem)
        return len(due)

    async def _send(self, http: aiohttp.ClientSession, webhook: Webhook, told: Body, tries: int) -> str:
        """A trace of its own; the receiver is not told of it, as it is somebody else's."""
        with begun(self._tracer, "n4n alert", Kind.CLIENT) as work:
            problem = await send(http, webhook, told)
            if work is not None:
                work.told |= {"n4n.alert": str(told["alert"]), "n4n.alert.status": str(told["status"])}
                work.told |= {"n4n.receiver": webhook.name, "n4n.tries": tries}
                if problem:
                    work.fail("not_taken")
        return problem

    async def _answered(
        self, connection: AsyncConnection, webhook: Webhook, number: int, at: datetime, alert: str, tries: int, problem: str
    ) -> None:
        now, whose = self._now(), {"notice": number, "receiver": webhook.name}
        if problem and tries == 1:
            _log.warning("alert %s could not be told to %s: %s; it is tried again", alert, webhook.name, problem)
        if problem and now - at <= GIVEN_UP:
            due = now + timedelta(seconds=_RETRIES_S[min(tries, len(_RETRIES_S) - 1)] * self._hold)
            await connection.execute(text(_LATER), {"due": due, **whose})
            return
        if problem:
            _log.warning("alert %s was not told to %s: given up after a day", alert, webhook.name)
        await connection.execute(text(_TOLD), whose)
