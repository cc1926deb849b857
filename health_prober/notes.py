"""Findings of this prober: said in the log when they begin and end, shown as metrics, told to Redis while they stand."""

from __future__ import annotations

import logging
from collections.abc import Callable

from health_prober.instruments import Instruments
from n4n.core.errors import StoreUnavailable
from n4n.core.probes.findings import ALERTS, Finding, Kind, decoded, name_of
from n4n.runtime.logs import fields
from n4n.runtime.probes import findings
from n4n.runtime.stores import Store, command

log = logging.getLogger("n4n.prober")


class Notes:
    """`by`: this node's name; `wall`: Unix seconds."""

    def __init__(self, by: str, store: Store, instruments: Instruments, wall: Callable[[], float]) -> None:
        self._by, self._store, self._instruments, self._wall = by, store, instruments, wall
        self._standing: dict[str, Finding] = {}

    def __repr__(self) -> str:
        return f"<Notes: {len(self._standing)} findings>"

    def stand(self, kind: Kind, about: str, message: str, lasting_s: float, *, capability: str = "", score: float | None = None) -> None:
        """It stands, for so long unless it is said again."""
        now_ms = round(self._wall() * 1000)
        before = self._standing.get(name_of(kind, about, capability))
        since_ms = now_ms if before is None else before.since_ms
        finding = Finding(kind, about, message, self._by, since_ms, now_ms + round(lasting_s * 1000), capability, score)
        self._standing[finding.name] = finding
        self._store.post(findings.tell(finding))
        if before is None or before.message != message:
            alert = {"alert": kind.value} if kind in ALERTS else {}
            log.warning("%s: %s: %s", about, kind.value, message, extra=fields(event="finding", kind=kind.value, about=about, **alert))
            self._instruments.findings.labels(kind.value, about).set(1)

    def clear(self, kind: Kind, about: str, capability: str = "") -> None:
        """It stands no more."""
        gone = self._standing.pop(name_of(kind, about, capability), None)
        if gone is not None:
            self._forget(gone)
            self._store.post(findings.clear([gone.name]))
            log.info("%s: %s is over", about, kind.value, extra=fields(event="finding_over", kind=kind.value, about=about))

    def sweep(self) -> None:
        """What was not said again fades: another prober watches it now, or nobody."""
        now_ms = self._wall() * 1000
        for name in [name for name, one in self._standing.items() if one.until_ms <= now_ms]:
            self._forget(self._standing.pop(name))

    def _forget(self, gone: Finding) -> None:
        if not any(one.kind is gone.kind and one.about == gone.about for one in self._standing.values()):
            self._instruments.findings.labels(gone.kind.value, gone.about).set(0)

    async def score(self, about: str, capability: str) -> float | None:
        """Of a capability, as any prober told it last; None: nobody complained."""
        name = name_of(Kind.CHECK_FAILED, about, capability)
        known = self._standing.get(name)
        if known is None:
            try:
                raw = await self._store.command(command(b"HGET", findings.KEY, name))
            except StoreUnavailable:
                return None
            known = decoded(raw) if isinstance(raw, bytes) else None
        return None if known is None else known.score
