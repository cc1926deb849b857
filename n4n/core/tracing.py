"""W3C trace context, and which requests are traced: pure, decided from the trace id alone, so that every node decides the same.

Formats: https://www.w3.org/TR/trace-context/. Samplers carry the names of OpenTelemetry's OTEL_TRACES_SAMPLER, and the share is
taken from the same bits of the trace id as its TraceIdRatioBased, so that a collector or an SDK that samples after us agrees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from n4n.core.errors import StartFailed

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_KEY = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_MEMBER = re.compile(_KEY + r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]\Z")
_MOST_MEMBERS, _LONGEST_STATE = 32, 512
_LOW_BITS = (1 << 64) - 1
_KINDS = ("always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")


class Parent(msgspec.Struct, frozen=True):
    """Where a request comes from, as its sender said."""

    trace_id: int
    span_id: int
    sampled: bool
    state: str = ""  # the tracestate header; '' where there was none, or one that is none


def read_parent(traceparent: str | None, tracestate: str | None = None) -> Parent | None:
    """The context that a request brought. None: it brought none, or one that is malformed, which is as if it brought none."""
    found = None if traceparent is None else _TRACEPARENT.match(traceparent.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not trace or not span:
        return None
    return Parent(trace, span, bool(int(flags, 16) & 1), _state(tracestate) if tracestate else "")


def _state(tracestate: str) -> str:
    """As it came, if it is a list that the standard allows; else '': a library would complain of it in the sender's words."""
    if len(tracestate) > _LONGEST_STATE:
        return ""
    members = [member for one in tracestate.split(",") if (member := one.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    good = len(keys) == len(members) <= _MOST_MEMBERS and all(map(_MEMBER.match, members))
    return ",".join(members) if good else ""


def traceparent(trace_id: int, span_id: int, *, sampled: bool) -> str:
    """The header that tells a provider whose child its work is."""
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if sampled else '00'}"


class Sampling(msgspec.Struct, frozen=True):
    """Which traces are kept from the beginning. Failures and fallbacks are kept besides, whatever this says."""

    bound: int = 1 << 64  # of the low 64 bits of a trace id: those below are kept
    parent_decides: bool = True  # where there is one

    def keeps(self, trace_id: int, parent: Parent | None) -> bool:
        """Whether the trace of this id is kept."""
        if parent is not None and self.parent_decides:
            return parent.sampled
        return trace_id & _LOW_BITS < self.bound


MOST_NOTABLE = 100  # traces a second and process that are kept for what happened in them, beside those that the sampler chose


class Room:
    """For so many a second and no more, whatever comes. `takes` is told the time in seconds, on any one clock."""

    def __init__(self, most: int = MOST_NOTABLE) -> None:
        self._most, self._second, self._taken = most, 0, 0

    def __repr__(self) -> str:
        return f"<Room for {self._most} a second>"

    def takes(self, now: float) -> bool:
        """Whether there is room for one more."""
        second = int(now)
        if second != self._second:
            self._second, self._taken = second, 0
        self._taken += 1
        return self._taken <= self._most


_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,127}\Z")


def word(told: str) -> str | None:
    """What others say, where it is one short word as names are; None: it may be anything, and is in no trace."""
    return told if _NAMED.match(told) else None


def sampling_of(environ: Mapping[str, str]) -> Sampling:
    """From OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; parentbased_always_on where nothing is said. StartFailed names the variable."""
    kind = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    if kind not in _KINDS:
        raise StartFailed(f"OTEL_TRACES_SAMPLER is {kind[:40]!r}; n4n knows {', '.join(_KINDS)}")
    share = 1.0 if kind.endswith("always_on") else 0.0
    if kind.endswith("traceidratio"):
        share = _share(environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0")
    return Sampling(round(share * (1 << 64)), parent_decides=kind.startswith("parentbased_"))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise StartFailed(f"OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, such as 0.01, not {text[:40]!r}")
    return share
