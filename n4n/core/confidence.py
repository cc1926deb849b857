"""How far a few measurements can be trusted: 95 % intervals of a mean and of a share."""

from __future__ import annotations

import math
from collections.abc import Sequence

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
      2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip  # Student's t, 1 to 30 degrees of freedom
_Z = 1.96


def mean_of(values: Sequence[float]) -> tuple[float, float | None] | None:
    """The mean and half of its interval's width; None: no values, or one, which tells no width."""
    if not values:
        return None
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    t = _T[len(values) - 2] if len(values) - 1 <= len(_T) else _Z
    return mean, t * math.sqrt(variance / len(values))


def share_of(hits: int, count: int) -> tuple[float, float, float] | None:
    """A share and the bounds of its interval (Wilson's: it makes sense at 0 of 20 too); None: nothing was counted."""
    if not count:
        return None
    share, z2 = hits / count, _Z**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return share, max(0.0, middle - half), min(1.0, middle + half)
