"""The stream guard: what goes out, and when, so that a failure before release is invisible to the client.

    HOLDING ──chunk──▶ HOLDING      fewer content-bearing events than `chunks`, younger than `max_hold_ms`
    HOLDING ──open───▶ RELEASED     the gate opens: everything kept back goes out at once
    HOLDING ──end────▶ FINISHED     a short answer goes out whole
    HOLDING ──fail───▶ ABANDONED    the client saw nothing: next candidate; so it is where output comes slower than it must
    RELEASED ─chunk──▶ RELEASED     what comes goes out
    RELEASED ─end────▶ FINISHED
    RELEASED ─fail───▶ INTERRUPTED  the client saw output: say so, and close

The gate opens for the `chunks`-th content-bearing event, for time, or because too much would have to be kept. Comments and
role-only deltas are no reason to open it, and nothing, comments included, goes out before it is open.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from n4n.core.catalog import StreamGuardPolicy
from n4n.core.chat import Chunk, Comment, Done, Event, Failed
from n4n.core.errors import Failure, FailureClass
from n4n.core.usage import BYTES_PER_TOKEN

MAX_EVENTS = 64
MAX_BYTES = 256 * 1024
TOO_SLOW = Failure(FailureClass.TIMEOUT, "the provider's output came slower than the model's min_tokens_per_s")


class GuardState(Enum):
    """Where one attempt's stream is."""

    HOLDING = "holding"
    RELEASED = "released"
    FINISHED = "finished"
    ABANDONED = "abandoned"
    INTERRUPTED = "interrupted"


class Signal(Enum):
    """What an event means to the guard."""

    CHUNK = "chunk"
    OPEN = "open"
    END = "end"
    FAIL = "fail"


TRANSITIONS: dict[tuple[GuardState, Signal], GuardState] = {
    (GuardState.HOLDING, Signal.CHUNK): GuardState.HOLDING,
    (GuardState.HOLDING, Signal.OPEN): GuardState.RELEASED,
    (GuardState.HOLDING, Signal.END): GuardState.FINISHED,
    (GuardState.HOLDING, Signal.FAIL): GuardState.ABANDONED,
    (GuardState.RELEASED, Signal.CHUNK): GuardState.RELEASED,
    (GuardState.RELEASED, Signal.END): GuardState.FINISHED,
    (GuardState.RELEASED, Signal.FAIL): GuardState.INTERRUPTED,
}


class IllegalEvent(Exception):
    """The stream is over; nothing may follow its end."""


class Hold(msgspec.Struct, frozen=True):
    """Nothing goes out now."""


class Release(msgspec.Struct, frozen=True):
    """The gate has opened: all that was kept back, in order, the last event included."""

    events: tuple[Event, ...]


class Pass(msgspec.Struct, frozen=True):
    """The gate is open: this event goes out."""

    event: Event


class Abandon(msgspec.Struct, frozen=True):
    """Failed while holding: nothing went out, the next candidate may have its turn."""

    failure: Failure


class Interrupt(msgspec.Struct, frozen=True):
    """Failed after output went out: one error event, then close."""

    failure: Failure


class Finish(msgspec.Struct, frozen=True):
    """The stream ended well; these events, if any, were still kept back."""

    events: tuple[Event, ...] = ()


Decision = Hold | Release | Pass | Abandon | Interrupt | Finish
_HOLD = Hold()


class StreamGuard:
    """Decides event by event. `now` is in seconds on any steady clock; `deadline` is on the same clock."""

    __slots__ = ("_bytes", "_chunks", "_content", "_first_at", "_kept", "_max_hold_s", "_min_rate", "_tokens", "deadline", "state")

    def __init__(self, policy: StreamGuardPolicy) -> None:
        self._chunks, self._max_hold_s = policy.chunks, policy.max_hold_ms / 1000
        self._kept: list[Event] = []
        self._content = self._bytes = 0
        self._min_rate = policy.min_tokens_per_s
        self._first_at: float | None = None  # content; `_tokens` came after it
        self._tokens = 0.0
        self.state = GuardState.HOLDING
        self.deadline: float | None = None  # when `tick` opens the gate; None: nothing waits for time

    def __repr__(self) -> str:
        return f"<StreamGuard {self.state.name}, {len(self._kept)} kept, {self._content} of {self._chunks} with content>"

    def receive(self, event: Event, now: float) -> Decision:
        """What to do, now that this event came. Raises IllegalEvent after the end, and changes nothing."""
        if self.state is GuardState.RELEASED and isinstance(event, Chunk):  # nearly all events of a long stream
            return Pass(event)
        signal = self._signal(event, now)
        if signal is Signal.OPEN and self._is_slow(event, now):
            event, signal = Failed(TOO_SLOW), Signal.FAIL
        state = TRANSITIONS.get((self.state, signal))
        if state is None:
            raise IllegalEvent(f"the stream is {self.state.value}; {type(event).__name__} cannot follow")
        before, self.state = self.state, state
        match event:
            case Failed(failure):
                return self._fail(failure)
            case Done():
                return Finish(self._empty())
            case Chunk() | Comment() if before is GuardState.RELEASED:
                return Pass(event)
            case Chunk():
                self._keep(event, now)
        return Release(self._empty()) if state is GuardState.RELEASED else _HOLD

    def tick(self, now: float) -> Decision:
        """Time passed: opens the gate when it is due, or gives the stream up; else, in every state, Hold."""
        if self.state is GuardState.HOLDING and self._due(now):
            if self._is_slow(None, now):
                self.state = TRANSITIONS[self.state, Signal.FAIL]
                return self._fail(TOO_SLOW)
            self.state = TRANSITIONS[self.state, Signal.OPEN]
            return Release(self._empty())
        return _HOLD

    def _signal(self, event: Event, now: float) -> Signal:
        match event:
            case Failed():
                return Signal.FAIL
            case Done():
                return Signal.END
            case Chunk() if self.state is GuardState.HOLDING and self._opens(event, now):
                return Signal.OPEN
        return Signal.CHUNK

    def _opens(self, chunk: Chunk, now: float) -> bool:
        return (
            self._content + chunk.content >= self._chunks
            or len(self._kept) + 1 >= MAX_EVENTS
            or self._bytes + len(chunk.payload) > MAX_BYTES
            or self._due(now)
        )

    def _due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline

    def _is_slow(self, event: Event | None, now: float) -> bool:
        """Whether less than the least came since the first content; one token may be on its way."""
        if self._min_rate is None or self._first_at is None:
            return False
        if isinstance(event, Chunk) and event.finishes:
            return False
        came = self._tokens + (_tokens(event) if isinstance(event, Chunk) else 0.0)
        return came + 1.0 < self._min_rate * (now - self._first_at)

    def _keep(self, chunk: Chunk, now: float) -> None:
        self._kept.append(chunk)
        if chunk.finishes:
            self._min_rate = None  # it is all there, however long it took
        if self._min_rate is not None and chunk.content:
            self._tokens += 0.0 if self._first_at is None else _tokens(chunk)
            self._first_at = now if self._first_at is None else self._first_at
        self._content += chunk.content
        self._bytes += len(chunk.payload)
        if self.deadline is None and (chunk.content or chunk.finishes):  # an answer without output must not wait for ever
            self.deadline = now + self._max_hold_s

    def _fail(self, failure: Failure) -> Decision:
        self._empty()
        return Abandon(failure) if self.state is GuardState.ABANDONED else Interrupt(failure)

    def _empty(self) -> tuple[Event, ...]:
        kept, self._kept, self.deadline = tuple(self._kept), [], None
        return kept


def _tokens(chunk: Chunk) -> float:
    """About how many; an event with content has one at least."""
    return max(1.0, chunk.output_bytes / BYTES_PER_TOKEN) if chunk.content else 0.0
