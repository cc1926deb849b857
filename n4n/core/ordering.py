"""In which order candidates are tried: the sort keys of a plan, smallest first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from n4n.core.catalog import Endpoint

SICK = 0.5  # a score below it: more than three in ten calls failed lately, or it is just coming back


class Place(NamedTuple):
    """Where one endpoint stands; compared field by field."""

    substitute: bool
    slow: bool
    liked: int
    step: int
    strange: bool
    first: float
    latency: float
    cost: float
    name: str


def key(
    strategy: str,
    endpoint: Endpoint,
    score: float,
    latency_ms: float | None,
    tokens_per_s: float | None,
    draw: Callable[[], float],
    factor: float = 1.0,
) -> float:
    """The strategy's own number. Whatever is asked for, who is sick comes last, but for its share: `score` of the requests.

    `factor`: what is left of its accounts; who has nothing left comes last, too.
    """
    if strategy == "balanced":
        return balanced(endpoint.weight * score * factor, draw())
    if factor <= 0.0 or (score < SICK and strategy != "health" and draw() >= score):
        return math.inf
    match strategy:
        case "health":
            return -score
        case "cost":
            return cost(endpoint)
        case "throughput":
            return 0.0 if tokens_per_s is None else -tokens_per_s
        case _:
            return latency(latency_ms)


def balanced(weight: float, drawn: float) -> float:
    """Sorting by this is a weighted random order without replacement; weight 0 goes last. `drawn` in [0, 1).

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): key = log(u) / weight.
    """
    return -math.log(1.0 - drawn) / weight if weight > 0 else math.inf


def latency(latency_ms: float | None) -> float:
    """Unmeasured ones last."""
    return math.inf if latency_ms is None else latency_ms


def cost(endpoint: Endpoint) -> float:
    """The dearer of input and output price, pico-USD per token; unpriced ones last."""
    if endpoint.price is None or endpoint.price.base.input is None or endpoint.price.base.output is None:
        return math.inf
    return max(endpoint.price.base.input, endpoint.price.base.output)
