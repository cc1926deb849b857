"""How a score falls, comes back and is forgotten: the catalog's `health` of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Of the signals of one endpoint.

    `live_weight`, `probe_weight`: the part of the success rate that one signal decides; so it is the rate of about the last
    1 / weight signals. A probe weighs more because there are few.
    `half_life_sec`: without news, half of the distance to `neutral` is gone after so long.
    `floor`: the least score, so that an endpoint can prove itself.
    `step_successes` in a row, and `step_sec`, are needed for each step back (5 %, 25 %, 100 %).
    """

    half_life_sec: float = 600.0
    neutral: float = 1.0
    floor: float = 0.05
    live_weight: float = 0.05
    probe_weight: float = 0.3
    step_sec: float = 10.0
    step_successes: int = 3
