"""Who has not been heard of: a fold over what is told of somebody's last word, by our own clock alone.

A word is a number that is another one each time. Nobody's clock is compared with ours: gone is whose number has been the same for so long
as we have looked on without a break.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sighting(NamedTuple):
    """The word that was there, and since when (our clock, in seconds)."""

    word: float
    since: float


def looked(known: Mapping[str, Sighting], told: Mapping[str, float], now: float) -> dict[str, Sighting]:
    """After one look: who is told of no more is forgotten."""
    return {name: _still(known.get(name), word, now) for name, word in told.items()}


def absent(known: Mapping[str, Sighting], now: float, after_s: float) -> list[str]:
    """Whose word has not changed for `after_s`, longest first."""
    return sorted((name for name, seen in known.items() if now - seen.since >= after_s), key=lambda name: known[name].since)


def _still(seen: Sighting | None, word: float, now: float) -> Sighting:
    return seen if seen is not None and seen.word == word else Sighting(word, now)
