"""The policies of a model as the catalog gives them: repetition, breaker, stream guard, time, probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from n4n.core.errors import FailureClass

_POLICY_WORDS: dict[str, frozenset[FailureClass]] = {
    "429": frozenset((FailureClass.RATE_LIMITED, FailureClass.QUOTA_EXHAUSTED)),
    "5xx": frozenset((FailureClass.SERVER_ERROR, FailureClass.OVERLOADED)),
}
TRANSIENT = frozenset(
    (FailureClass.RATE_LIMITED, FailureClass.QUOTA_EXHAUSTED, FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR)
)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often, and how long before the first repetition on the same endpoint."""

    max_retries: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`retry_on` gates retry and fallback of the transient classes; `by_class` narrows single classes."""

    retry_on: frozenset[FailureClass] = TRANSIENT
    max_retries: int = 2
    backoff_ms: int = 200
    by_class: Mapping[FailureClass, RetryRule] = field(default_factory=dict)

    def rule(self, failure_class: FailureClass) -> RetryRule:
        """The rule for one class."""
        return self.by_class.get(failure_class) or RetryRule(self.max_retries, self.backoff_ms)


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """`failure_threshold` failures within the window open the breaker for a jittered, growing time; in a row where `consecutive`."""

    failure_threshold: int = 5
    window_sec: float = 20.0
    recovery_timeout_sec: float = 30.0
    consecutive: bool = False


PRESETS: Mapping[str, BreakerPolicy] = MappingProxyType({
    "quick": BreakerPolicy(3, 20.0, 30.0),  # three in 20 s: 30 s
    "patient": BreakerPolicy(4, 60.0, 300.0, consecutive=True),  # more than three in a row within 60 s: 5 minutes
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamGuardPolicy:
    """Hold until `chunks` content-bearing events or `max_hold_ms` after the first of them. A stream that is slower than
    `min_tokens_per_s` by then fails; None: however slow it is.
    """

    chunks: int = 3
    max_hold_ms: int = 100
    min_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Milliseconds per phase; `first_token_ms` None: 8,000 for streams, 120,000 for the head of a whole answer."""

    connect_ms: int = 2_000
    first_token_ms: int | None = None
    idle_ms: int = 30_000
    total_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class ProbePolicy:
    """How a model is probed. `param`: the member of a chat request that bounds the output, with `max_tokens` as its value."""

    interval_sec: float = 30.0
    max_tokens: int = 1
    timeout_ms: int = 5_000
    param: str = "max_tokens"
    prompt: str = "ping"
    effort: str | None = None  # of reasoning; None: not asked for
    stream: bool = True  # as most traffic is: it tells of the first token too
    enabled: bool = True
    checks_interval_sec: float = 21_600.0  # between two deeper checks: does it obey a system prompt, a JSON format; 0: none
    checks_max_tokens: int = 64


def breaker_policy(raw: Mapping[str, object]) -> BreakerPolicy:
    """From a valid document."""
    base = PRESETS[str(raw["preset"])] if "preset" in raw else BreakerPolicy()
    threshold = cast(int, raw.get("failure_threshold", base.failure_threshold))
    window, recovery = (cast(float, raw.get(name, getattr(base, name))) for name in ("window_sec", "recovery_timeout_sec"))
    return BreakerPolicy(threshold, window, recovery, raw.get("consecutive", base.consecutive) is True)


def _classes(words: Iterable[str]) -> frozenset[FailureClass]:
    return frozenset(found for word in words for found in (_POLICY_WORDS[word] if word in _POLICY_WORDS else (FailureClass(word),)))


def retry_policy(raw: Mapping[str, object]) -> RetryPolicy:
    """From a valid document."""
    base = RetryPolicy()
    retries, backoff = cast(int, raw.get("max_retries", base.max_retries)), cast(int, raw.get("backoff_ms", base.backoff_ms))
    by_class: dict[FailureClass, RetryRule] = {}
    narrowed = cast(Mapping[str, Mapping[str, int]], raw.get("by_class", {}))
    for word in sorted(narrowed, key=lambda word: word not in _POLICY_WORDS):  # a single class is nearer than a group
        rule = RetryRule(narrowed[word].get("max_retries", retries), narrowed[word].get("backoff_ms", backoff))
        by_class.update(dict.fromkeys(_classes((word,)), rule))
    retry_on = _classes(cast(list[str], raw["retry_on"])) if "retry_on" in raw else base.retry_on
    return RetryPolicy(retry_on, retries, backoff, by_class)
