"""The ledger's rows held against the provider's bill and against what clients saw; every way in which they may differ has a name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tests.soak.ledger.clients import Leaves, Request, Saw


@dataclass(frozen=True, slots=True)
class Row:
    """Of the ledger."""

    attempt_id: str
    request_id: str
    attempt_no: int
    provider: str
    state: str
    status: int | None
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Billed:
    """A call that the provider saw."""

    request_id: str
    provider: str
    fate: str
    cost_usd: Decimal
    completed: bool


@dataclass(slots=True)
class Audit:
    """What was found; `wrong` is empty where all is well."""

    rows: int = 0
    calls: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    fates: Mapping[str, int] = field(default_factory=dict)
    saw: Mapping[str, int] = field(default_factory=dict)
    ledger_usd: Decimal = Decimal()  # of all attempts that ended well
    bill_usd: Decimal = Decimal()  # of all calls whose answer left whole, without those that nobody heard to their end
    unheard: int = 0  # calls whose answer left whole while their client left or their router died: their rows are estimates
    unheard_usd: Decimal = Decimal()
    never_arrived: int = 0  # rows of attempts that were noted, and whose client left or router died before a byte was sent
    wrong: list[str] = field(default_factory=list)


def audited(rows: Sequence[Row], calls: Sequence[Billed], requests: Sequence[Request], killed: Iterable[tuple[int, float]] = ()) -> Audit:
    """`killed`: which router, and when."""
    found = Audit(len(rows), len(calls), Counter(row.state for row in rows), Counter(call.fate for call in calls))
    found.saw = Counter(one.saw.value for one in requests)
    if len({row.attempt_id for row in rows}) != len(rows):
        found.wrong.append("an attempt has two rows")
    by_request: defaultdict[str, tuple[list[Row], list[Billed]]] = defaultdict(lambda: ([], []))
    for row in sorted(rows, key=lambda row: row.attempt_no):
        by_request[row.request_id][0].append(row)
    for call in calls:
        by_request[call.request_id][1].append(call)
    found.bill_usd = sum((call.cost_usd for call in calls if call.completed), Decimal())
    kills = list(killed)
    known = {one.id: one for one in requests}
    for label, (its_rows, its_calls) in by_request.items():
        _audit_one(found, known[label], its_rows, its_calls, _was_killed(known[label], kills))
    found.bill_usd -= found.unheard_usd
    if found.ledger_usd != found.bill_usd:
        found.wrong.append(f"the ledger says {found.ledger_usd} USD, the bill {found.bill_usd}")
    for one in requests:
        if one.leaves is Leaves.SENDING and one.id in by_request:
            found.wrong.append(f"{one.id}: half a request was dispatched")
        if one.saw is Saw.BROKEN and not _was_killed(one, kills):
            found.wrong.append(f"{one.id}: {one.skin}, {one.told}, though nobody was killed")
    return found


def _was_killed(one: Request, kills: Sequence[tuple[int, float]]) -> bool:
    return any(router == one.router and one.began - 0.5 <= at <= one.ended + 0.5 for router, at in kills)


def _audit_one(found: Audit, one: Request, rows: list[Row], calls: list[Billed], killed: bool) -> None:
    excused = one.saw is Saw.LEFT or killed
    if len(rows) < len(calls):
        found.wrong.append(f"{one.id}: {len(calls)} calls, {len(rows)} rows: {[call.fate for call in calls]}")
    extra = len(rows) - len(calls)
    if extra > 0:
        found.never_arrived += extra
        silent = sum(row.status is None and row.state in ("cancelled", "unknown") for row in rows)
        if not excused or extra > silent:
            states = [row.state for row in rows]
            found.wrong.append(f"{one.id}: {len(calls)} calls, {len(rows)} rows, {states}, left {one.leaves.value}, saw {one.saw.value}")
    if any(row.state == "unknown" for row in rows) and not killed:
        found.wrong.append(f"{one.id}: unknown, though its router was not killed")
    if any(row.state == "cancelled" for row in rows) and not excused:
        found.wrong.append(f"{one.id}: cancelled, though its client stayed")
    completed = [call for call in calls if call.completed]
    doubtful = [call for call in calls if call.fate == "ok" and not call.completed]  # the provider thought that nobody was there
    for row in rows:
        if row.state != "ok":
            continue
        found.ledger_usd += row.cost_usd or 0
        for candidates in (completed, doubtful):
            same = next((call for call in candidates if (call.provider, call.cost_usd) == (row.provider, row.cost_usd)), None)
            if same is not None:
                candidates.remove(same)
                found.bill_usd += same.cost_usd if candidates is doubtful else 0
                break
        else:
            found.wrong.append(f"{one.id}: {row.cost_usd} USD at {row.provider} is on no bill: {calls}")
    for call in completed:
        found.unheard += 1
        found.unheard_usd += call.cost_usd
        if not excused:
            found.wrong.append(f"{one.id}: a whole answer of {call.provider} for {call.cost_usd} USD is in no row: {rows}")
