"""When somebody is told: an alert must be wrong for a while before it fires, is told once, and once more when it is over.

WATCHED ──wrong──▶ PENDING    since when is kept
PENDING ──right──▶ WATCHED    nobody was told
PENDING ─for `for_s`─▶ FIRING  told
FIRING ──wrong──▶ FIRING      not told again
FIRING ──right for `CALM_S`──▶ WATCHED  told that it is over; a short pause is not its end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from n4n.core.alerts.rules import BY_NAME, CALM_S, Rule, Severity

Subject = tuple[tuple[str, str], ...]  # labels and their values


@dataclass(frozen=True, slots=True)
class Violation:
    """Something is wrong now. `labels`: those of the rule's `by`."""

    rule: str
    labels: Subject
    value: float

    @property
    def key(self) -> str:
        """The same for the same trouble, as long as it lasts: what a receiver tells duplicates by."""
        return "/".join([self.rule, *(f"{name}={value}" for name, value in self.labels)])

    @property
    def severity(self) -> Severity:
        """Whom it wakes."""
        return BY_NAME[self.rule].severity

    @property
    def summary(self) -> str:
        """In words."""
        return BY_NAME[self.rule].summary.format(value=_plain(self.value), **dict(self.labels))


@dataclass(frozen=True, slots=True)
class Standing:
    """One trouble as it stands. `last_wrong`: Unix seconds."""

    violation: Violation
    since: float
    last_wrong: float
    firing: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell."""

    violation: Violation
    since: float
    resolved: bool

    @property
    def rule(self) -> Rule:
        """The alert."""
        return BY_NAME[self.violation.rule]


Board = Mapping[str, Standing]


def watch(board: Board, wrong: Iterable[Violation], now: float, *, hold: float = 1.0) -> tuple[dict[str, Standing], list[Notice]]:
    """The board after one look, and what is to be told. `hold` scales every wait, for rehearsals."""
    after: dict[str, Standing] = {}
    notices: list[Notice] = []
    for violation in wrong:
        known = board.get(violation.key)
        standing = Standing(violation, now, now) if known is None else replace(known, violation=violation, last_wrong=now)
        if not standing.firing and now - standing.since >= BY_NAME[violation.rule].for_s * hold:
            standing = replace(standing, firing=True)
            notices.append(Notice(violation, standing.since, resolved=False))
        after[violation.key] = standing
    for key, standing in board.items():
        if key in after or not standing.firing:
            continue
        if now - standing.last_wrong >= CALM_S * hold:
            notices.append(Notice(standing.violation, standing.since, resolved=True))
        else:
            after[key] = standing
    return after, notices


def _plain(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
