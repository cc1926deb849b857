"""One observation of an endpoint: **probe** (we asked) or **live** (traffic)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from n4n.core.errors import FailureClass


class Source(StrEnum):
    """Who asked."""

    PROBE = "probe"
    LIVE = "live"


class Signal(msgspec.Struct, frozen=True):
    """How one call ended. `failure` None: well. What was not measured is None; times in seconds.

    `ttft_s`: until the first token, of a stream; `latency_s`: until the first output, or the whole answer where it came at once;
    `at`: when it ended, on the clock of who tells; `trial`: it was the one call that a half-open breaker lets through.
    A class that speaks of an account, a quota or a request (429, 401, 400, …) changes neither score nor breaker.
    """

    endpoint: str
    source: Source
    failure: FailureClass | None = None
    latency_s: float | None = None
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    at: float = 0.0
    trial: bool = False
