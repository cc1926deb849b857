"""Our ledger beside a provider's export: where they differ by more than a tolerance, by day and model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from n4n.core.provider_exports import Stated

MEASURES = (
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_usd",
)  # what is judged; how a provider counts requests is its own affair
EVERY = "*"  # all models together, where the export does not tell them apart
_DATED = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8})\Z")
_Sums = dict[tuple[date, str], dict[str, Decimal]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure of one day and model. `share`: of the larger of the two; 1 where one side knows nothing of it."""

    day: date
    model: str
    measure: str
    ours: Decimal
    theirs: Decimal

    @property
    def share(self) -> Decimal:
        """0: they agree."""
        most = max(abs(self.ours), abs(self.theirs))
        return abs(self.ours - self.theirs) / most if most else Decimal()


def family(model: str) -> str:
    """A model without the date of its snapshot: providers bill the snapshot that an alias stood for."""
    return _DATED.sub("", model.strip().lower())


def compared(ours: Iterable[Stated], theirs: Iterable[Stated]) -> list[Difference]:
    """Every measure that the export tells, by day and model, and by day alone where it names no model. Ours always names one."""
    ours, theirs = list(ours), list(theirs)
    found: list[Difference] = []
    for named in (True, False):
        stated = [one for one in theirs if (one.model is not None) is named]
        measures = [measure for measure in MEASURES if any(getattr(one, measure) is not None for one in stated)]
        days = {one.day for one in stated}
        left, right = _sums((one for one in ours if one.day in days), named), _sums(stated, named)
        for key in sorted(left.keys() | right.keys()):
            mine, other = left.get(key, {}), right.get(key, {})
            found += [Difference(*key, name, mine.get(name, Decimal()), other.get(name, Decimal())) for name in measures]
    return found


def totals(differences: Iterable[Difference]) -> list[Difference]:
    """The whole of each measure, as if it were one day and model; the day is the first."""
    sums: dict[tuple[str, str], Difference] = {}
    for one in differences:
        key = (one.measure, EVERY if one.model == EVERY else "")
        before = sums.get(key, Difference(one.day, one.model, one.measure, Decimal(), Decimal()))
        sums[key] = Difference(before.day, "", one.measure, before.ours + one.ours, before.theirs + one.theirs)
    return list(sums.values())


def beyond(differences: Iterable[Difference], tolerance: Decimal) -> list[Difference]:
    """Those that differ by more than this share."""
    return [one for one in differences if one.share > tolerance]


def _sums(stated: Iterable[Stated], named: bool) -> _Sums:
    sums: _Sums = {}
    for one in stated:
        told: Mapping[str, Decimal | None] = {measure: getattr(one, measure) for measure in MEASURES}
        into = sums.setdefault((one.day, family(one.model or EVERY) if named else EVERY), {})
        for measure, value in told.items():
            if value is not None:
                into[measure] = into.get(measure, Decimal()) + value
    return sums
