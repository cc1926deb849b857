"""Requests with an idempotency key: one execution for one key of a tenant, across routers, and its answer for all who ask again.

    the first ──claims──▶ executes ──▶ its answer is stored ──▶ its last bytes leave
    another ──▶ waits for it (on this worker: for its end; elsewhere: asks Redis now and then) ──▶ replays it, or executes where it failed

On one worker at most one request per key talks to Redis; those beside it wait for what that one comes to. Where Redis cannot be used the
request is executed all the same, and says in its warnings that its key was not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from data_plane.answers import Answer, ClientGone
from data_plane.outgoing import Way
from data_plane.record import Record
from n4n.core.chat import Chunk, Usage
from n4n.core.errors import IdempotencyMismatch, StillExecuting, StoreUnavailable
from n4n.core.idempotency import MOST_BYTES, Different, Done, Kept, Known, Mine, Running, lasting, pauses
from n4n.runtime.idempotency import Owned, Records
from n4n.runtime.labels import new_attempt_id

ALONE = "idempotency-key was not kept: Redis cannot be used now, so the same key sent again may be executed again"
_AT_ONCE = 1 << 20  # bytes of a body whose fingerprint is taken without leaving the loop
_REPLAY = b"x-n4n-idempotent-replay: true\r\n"


class Held:
    """A `way` out that keeps a copy of what passes, and from `finishing` on the rest itself until `let_go`. Errors as the way's."""

    __slots__ = ("_fields", "_head", "_pieces", "_rest", "_sign_of_life", "_size", "_stream", "finishing", "way")

    def __init__(self, way: Way, sign_of_life: bytes) -> None:
        self.way, self._sign_of_life = way, sign_of_life
        self.finishing = self._stream = False
        self._fields = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: tuple[bytes, bool] | None = None  # of a stream that begins with its end
        self._rest: Callable[[], None] | None = None

    @property
    def begun(self) -> bool:
        """Whether the client was sent anything."""
        return self.way.begun

    @property
    def clogged(self) -> bool:
        """As the way is."""
        return self.way.clogged

    async def room(self) -> None:
        """As the way's."""
        await self.way.room()

    def whole(self, status: int, fields: bytes, body: bytes, *, last: bool) -> None:
        """An answer in one piece."""
        self._fields = fields
        self._copy(body)
        self._rest = partial(self.way.whole, status, fields, body, last=last)

    def begin(self, fields: bytes, *, last: bool) -> bytes:
        """The head of a stream."""
        self._fields, self._stream = fields, True
        if not self.finishing:
            return self.way.begin(fields, last=last)
        self._head = (fields, last)
        return b""

    def piece(self, head: bytes, piece: bytes, *, end: bool) -> None:
        """Some of a stream; signs of life are no part of it."""
        if piece != self._sign_of_life:
            self._copy(piece)
        if self.finishing:
            self._rest = partial(self._end, piece)
        else:
            self.way.piece(head, piece, end=end)

    def kept(self) -> Kept | None:
        """The whole answer; None: it is too large to be kept."""
        return Kept(self._stream, lasting(self._fields), b"".join(self._pieces)) if self._size <= MOST_BYTES else None

    def let_go(self) -> None:
        """The client gets what was held back."""
        assert self._rest is not None
        self._rest()

    def _end(self, piece: bytes) -> None:
        fields = self._head
        self.way.piece(b"" if fields is None else self.way.begin(fields[0], last=fields[1]), piece, end=True)

    def _copy(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MOST_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()


class KeptAnswer:
    """An answer, made by another over `held`, that is stored before its last bytes leave: so who has it can have it again."""

    def __init__(self, inner: Answer, held: Held, store: Callable[[Kept | None], Awaitable[None]]) -> None:
        self._inner, self._held, self._store = inner, held, store
        self.wake_at, self.quiet_until = inner.wake_at, inner.quiet_until

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """As the other."""
        due = self._inner.put(chunks)
        self.wake_at = self._inner.wake_at
        return due

    async def flush(self) -> None:
        """As the other."""
        await self._inner.flush()
        self.quiet_until = self._inner.quiet_until

    async def finish(self, usage: Usage | None) -> None:
        """As the other, with the store in between; ClientGone when nobody takes it."""
        held = self._held
        held.finishing = True
        try:
            await self._inner.finish(usage)
            await self._store(held.kept())
        finally:
            held.finishing = False
        try:
            held.let_go()
            if held.clogged:
                await held.room()
        except ConnectionError as error:
            raise ClientGone from error


class Repeatable(msgspec.Struct, frozen=True):
    """One request with a key. `way`: to its client; `deadline` on the router's clock; `charge`: takes what a replay costs its caller;

    `execute`: answers it, through what `store` is told of, with warnings.
    """

    known: Known
    record: Record
    way: Way
    deadline: float
    charge: Callable[[], Awaitable[None]]
    execute: Callable[[Callable[[Kept | None], Awaitable[None]], tuple[str, ...]], Awaitable[None]]


class _Flight:
    """One key on this worker: how the request that came first ended. None: without an answer that could be replayed."""

    __slots__ = ("ended", "fingerprint")

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self.ended: asyncio.Future[Kept | None] = asyncio.get_running_loop().create_future()

    def over(self, answer: Kept | None) -> None:
        """Tells those that wait, once."""
        if not self.ended.done():
            self.ended.set_result(answer)


class Once:
    """One per worker. `clock`: monotonic seconds; `count` hears executed, replayed, different, alone, too_large."""

    def __init__(
        self, records: Records, clock: Callable[[], float], draw: Callable[[], float], count: Callable[[str], None] = lambda _: None
    ) -> None:
        self.records = records
        self._clock, self._draw, self._count = clock, draw, count
        self._flights: dict[str, _Flight] = {}

    def __repr__(self) -> str:
        return f"<Once {len(self._flights)} keys in flight>"

    async def known(self, tenant: str, key: str, path: str, body: bytes) -> Known:
        """By what all routers know a request."""
        if len(body) <= _AT_ONCE:
            return self.records.known(tenant, key, path, body)
        return await asyncio.to_thread(self.records.known, tenant, key, path, body)

    async def answer(self, asked: Repeatable) -> None:
        """Answers it, by execution or by what another one's gave. IdempotencyMismatch, StillExecuting, and all that execution raises."""
        while True:
            flight = self._flights.get(asked.known.name)
            if flight is None:
                await self._first(asked)
                return
            if flight.fingerprint != asked.known.fingerprint:
                raise self._different()
            if (answer := await self._end_of(flight, asked)) is not None:
                await self._replay(asked, answer)
                return

    async def _first(self, asked: Repeatable) -> None:
        """The one on this worker that asks Redis."""
        flight = self._flights[asked.known.name] = _Flight(asked.known.fingerprint)
        owned = Owned(asked.known, new_attempt_id())
        try:
            answer, warnings = await self._claimed(asked, owned)
            if answer is None:
                await self._execute(asked, owned, flight, warnings)
            else:
                flight.over(answer)
                await self._replay(asked, answer)
        finally:
            del self._flights[asked.known.name]
            flight.over(None)

    async def _claimed(self, asked: Repeatable, owned: Owned) -> tuple[Kept | None, tuple[str, ...]]:
        """The answer of an earlier one; None: execute, with these warnings."""
        for pause in pauses(self._draw):
            try:
                match await self.records.claim(owned):
                    case Mine():
                        return None, ()
                    case Done() as done:
                        return self.records.answer(asked.known, done), ()
                    case Different():
                        raise self._different()
                    case Running():
                        await self._pause(pause, asked)
            except StoreUnavailable:
                self._count("alone")
                return None, (ALONE,)
        raise AssertionError("pauses end")

    async def _execute(self, asked: Repeatable, owned: Owned, flight: _Flight, warnings: tuple[str, ...]) -> None:
        stored = False

        async def store(answer: Kept | None) -> None:
            nonlocal stored
            if answer is not None:
                stored = await self.records.complete(owned, answer)
                flight.over(answer)
            if answer is None or not (stored or warnings):
                self._count("too_large" if answer is None else "alone")

        self.records.hold(owned)
        self._count("executed")
        try:
            await asked.execute(store, warnings)
        finally:
            if not stored:
                self.records.release(owned)

    async def _end_of(self, flight: _Flight, asked: Repeatable) -> Kept | None:
        begun = self._clock()
        try:
            done, _ = await asyncio.wait((flight.ended,), timeout=max(0.0, asked.deadline - begun))
        finally:
            asked.record.waited_s += self._clock() - begun
        if not done:
            raise StillExecuting
        return flight.ended.result()

    async def _pause(self, seconds: float, asked: Repeatable) -> None:
        begun = self._clock()
        if begun >= asked.deadline:
            raise StillExecuting
        await asyncio.sleep(min(seconds, asked.deadline - begun))
        asked.record.waited_s += self._clock() - begun

    async def _replay(self, asked: Repeatable, answer: Kept) -> None:
        await asked.charge()
        record, way = asked.record, asked.way
        record.replayed, record.bytes_out = True, len(answer.body)
        own = b"server: n4n\r\nx-request-id: %b\r\nx-n4n-overhead-ms: %.1f\r\n%b" % (
            record.request_id.encode(),
            record.overhead_s * 1000,
            record.limit_fields,
        )
        fields, last = own + answer.fields + _REPLAY, record.closing()
        try:
            if answer.stream:
                way.piece(way.begin(fields, last=last), answer.body, end=True)
            else:
                way.whole(200, fields, answer.body, last=last)
            if way.clogged:
                await way.room()
        except ConnectionError as error:
            raise ClientGone from error
        record.succeeded()
        self._count("replayed")

    def _different(self) -> IdempotencyMismatch:
        self._count("different")
        return IdempotencyMismatch(param="idempotency-key")
