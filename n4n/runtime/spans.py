"""Work that is traced while it goes on, where nobody is in a hurry. A trace is kept or dropped whole, when its first piece has ended.

Kept is what the sampler chose, what the sender of a call wants kept, and besides, up to a bound per second, whatever failed or was
refused. Where no traces are wanted there is no Tracer, no work is current, and nothing is built: `begun` and `part` give one and the same
empty context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from n4n.core.tracing import Parent, Room, traceparent
from n4n.runtime.tracing import Kind, Span, Tracing, Value, new_span_id, new_trace_id

MOST_PARTS: Final = 200  # of one trace
_NOTHING: Final = nullcontext()


class Work:
    """One piece of a trace. As a context manager it is the current work, and ends with the block; one that raised has failed.

    `told`: its attributes. `kept` is None until its trace is decided, which is when the first piece of it ends.
    """

    __slots__ = (
        "_before", "_parent", "_parts", "_top", "_tracer", "begun_ns", "causes", "end_ns", "error", "kept", "kind", "links", "name",
        "notable", "sampled", "span_id", "told", "trace_id",
    )  # fmt: skip

    def __init__(
        self, tracer: Tracer, name: str, kind: Kind, top: Work | None, parent: Parent | None, causes: Sequence[Work | Parent], *, kept: bool
    ) -> None:
        self._tracer, self.name, self.kind = tracer, name, kind
        self._top, self._parent, self.causes = top if top is not None else self, parent, tuple(causes)
        self.trace_id = new_trace_id() if parent is None else parent.trace_id
        self.span_id, self.begun_ns, self.end_ns = new_span_id(), tracer.wall_ns(), 0
        self.sampled: bool = kept or (top.sampled if top is not None else tracer.keeps(self.trace_id, parent))
        self.notable = False
        self.kept: bool | None = None if top is None else top.kept
        self.told: dict[str, Value] = {}
        self.error: str | None = None
        self.links: tuple[tuple[int, int], ...] = ()
        self._parts: list[Work] = []
        self._before: Token[Work | None] | None = None

    def __repr__(self) -> str:
        return f"<Work {self.name} {self.told}>"

    def __enter__(self) -> Work:
        self._before = _CURRENT.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            with suppress(ValueError):  # a generator that was left is closed by the loop, in another context
                _CURRENT.reset(self._before)
            self._before = None
        if kind is not None and not self.end_ns:
            self.fail("cancelled" if issubclass(kind, asyncio.CancelledError) else kind.__name__)
        self.end()

    @property
    def context(self) -> Parent:
        """Whence what it causes comes."""
        return Parent(self.trace_id, self.span_id, self.sampled)

    @property
    def header(self) -> str:
        """The `traceparent` of calls that are a part of it."""
        return traceparent(self.trace_id, self.span_id, sampled=self.sampled)

    def part(self, name: str, kind: Kind = Kind.INTERNAL) -> Work:
        """A piece of this one."""
        return Work(self._tracer, name, kind, self._top, self.context, (), kept=False)

    def notice(self) -> None:
        """The whole trace is worth keeping, whatever the sampler says."""
        self._top.notable = True

    def fail(self, why: str) -> None:
        """It failed; `why` is a word of ours. What was said first stays."""
        if self.error is None:
            self.error = why
            self.told.setdefault("error.type", why)
        self.notice()

    def end(self) -> None:
        """It is over. A second time it changes nothing."""
        if self.end_ns:
            return
        self.end_ns = max(self.begun_ns, self._tracer.wall_ns())
        top = self._top
        if self is top:
            self._tracer.decide(self, self._parts)
            self._parts = []
        elif top.kept is None and len(top._parts) < MOST_PARTS:
            top._parts.append(self)
        elif top.kept:
            self._tracer.emit([self])

    def span(self) -> Span:
        """As it is exported."""
        parent = self._parent
        return Span(
            name=self.name,
            kind=self.kind,
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=0 if parent is None else parent.span_id,
            start_ns=self.begun_ns,
            end_ns=self.end_ns,
            attributes=self.told,
            error=self.error,
            links=self.links,
            state="" if parent is None else parent.state,
            remote_parent=parent is not None and self.kind is Kind.SERVER,
        )


_CURRENT: Final[ContextVar[Work | None]] = ContextVar("n4n_work", default=None)


class Tracer:
    """Of one process. `wall_ns`: nanoseconds since 1970."""

    def __init__(self, tracing: Tracing, wall_ns: Callable[[], int]) -> None:
        self._tracing, self.wall_ns = tracing, wall_ns
        self._room = Room()

    def begin(
        self,
        name: str,
        kind: Kind = Kind.INTERNAL,
        *,
        parent: Parent | None = None,
        causes: Sequence[Work | Parent] = (),
        kept: bool = False,
    ) -> Work:
        """The first piece of a trace, or of this process's part of one. It links to its `causes`; work among them is kept if this is.

        `kept`: whatever the sampler says. It is not current unless it is used with `with`.
        """
        return Work(self, name, kind, None, parent, causes, kept=kept)

    def keeps(self, trace_id: int, parent: Parent | None) -> bool:
        """Whether the sampler wants a trace."""
        return self._tracing.sampling.keeps(trace_id, parent)

    def decide(self, top: Work, parts: Sequence[Work]) -> None:
        """Whether a trace whose first piece has ended is kept."""
        top.kept = top.sampled or (top.notable and self._room.takes(top.end_ns / 1e9))
        causes, top.causes = top.causes, ()  # no chain of causes is held in memory
        if not top.kept:
            return
        top.links = tuple((cause.trace_id, cause.span_id) for cause in causes)
        late = [cause for cause in causes if isinstance(cause, Work) and self._is_wanted(cause)]
        self.emit([*late, top, *parts])

    def _is_wanted(self, cause: Work) -> bool:
        """Whether it is over and was thought dull until now; what is not over yet is kept when it is."""
        if cause.kept is None:
            cause.sampled = True
            return False
        dull, cause.kept = not cause.kept, True
        return dull

    def emit(self, works: Sequence[Work]) -> None:
        """They leave with the next batch."""
        self._tracing.emit([work.span() for work in works])


def begun(
    tracer: Tracer | None, name: str, kind: Kind = Kind.INTERNAL, *, parent: Parent | None = None, causes: Sequence[Work | Parent] = ()
) -> AbstractContextManager[Work | None]:
    """A trace that begins here and is the current work inside; None inside where none is wanted."""
    return _NOTHING if tracer is None else tracer.begin(name, kind, parent=parent, causes=causes)


def part(name: str, kind: Kind = Kind.INTERNAL) -> AbstractContextManager[Work | None]:
    """A piece of the current work, itself current inside; None inside where there is no current work."""
    current = _CURRENT.get()
    return _NOTHING if current is None else current.part(name, kind)


def current_work() -> Work | None:
    """What is being done here and now, if it is traced."""
    return _CURRENT.get()


def carried() -> tuple[tuple[str, str], ...]:
    """The metadata that makes a gRPC call a part of the current work; nothing where there is none."""
    current = _CURRENT.get()
    return () if current is None else carrying(current.context)


def carrying(parent: Parent) -> tuple[tuple[str, str], ...]:
    """The metadata that makes a gRPC call a part of what `parent` tells of."""
    told = ("traceparent", traceparent(parent.trace_id, parent.span_id, sampled=parent.sampled))
    return (told, ("tracestate", parent.state)) if parent.state else (told,)
