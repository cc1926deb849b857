"""A simulated world: endpoints that answer by a script of bytes and pauses, a client that reads or leaves, the real path between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

from data_plane.exchange import Exchange
from data_plane.health import Health
from data_plane.record import Record
from data_plane.request import serve
from data_plane.router import Router
from n4n.core.access import Key
from n4n.core.breaker import Breaker
from n4n.core.catalog import Endpoint, Model
from n4n.core.chat import ChatRequest, Chunk, UpstreamRequest, Usage
from n4n.core.dialects.table import DIALECTS
from n4n.core.directives import NONE, Directives
from n4n.core.errors import Failure, FailureClass, GatewayError
from n4n.core.skins.chat import Chat
from n4n.runtime.upstream import Phases, UpstreamFault
from tests.support.endpoints import snapshot

_KEY = Key("testtesttest", "tests", bytes(32))

Piece = tuple[float, bytes | None]  # seconds before it, and the bytes; None: the connection breaks there
LATE = Failure(FailureClass.TIMEOUT, "late")
BROKEN = Failure(FailureClass.SERVER_ERROR, "broken")


@dataclass(frozen=True)
class Script:
    """One answer: seconds until its head (None: never, the connection is refused), status, headers, body."""

    head_s: float | None = 0.01
    status: int = 200
    body: Sequence[Piece] = ()
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Dispatch:
    """One call as an endpoint saw it."""

    endpoint: str
    request_id: str
    at: float
    deadline: float
    barred: bool  # a binding cooldown of the endpoint was in force
    doubted: bool  # its breaker was not closed
    ended: float | None = None


class World:
    """Endpoints, and a router over them. `answer` decides what a call gets: of which endpoint, the how manieth, and whether a stream."""

    def __init__(
        self, endpoints: Sequence[Endpoint], models: Sequence[Model], answer: Callable[[str, int, bool], Script], draw: Callable[[], float]
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.clock, self.snapshot, self._answer = clock, snapshot(endpoints, models), answer
        self.calls: list[Dispatch] = []
        self.health = Health(clock, draw)
        self.router = Router(
            follower=SimpleNamespace(state=SimpleNamespace(catalog=self.snapshot)),  # type: ignore[arg-type]
            credentials=SimpleNamespace(usable={one.name for e in endpoints for one in e.accounts}, reveal=lambda _: "key"),  # type: ignore[arg-type]
            health=self.health,
            upstream=self,  # type: ignore[arg-type]
            dialects=DIALECTS,
            clock=clock,
        )
        self.router.draw = draw

    @asynccontextmanager
    async def send(self, request: UpstreamRequest, request_id: str, phases: Phases, _: bytes = b"") -> AsyncIterator[SimulatedReply]:
        """One call, as `n4n.runtime.upstream` makes it."""
        body = json.loads(request.body)
        name = body["model"]
        now = self.clock()
        view = self.health.views.get(name)
        barred, doubted = (False, False) if view is None else (view.cooldown_until > now, view.breaker.kept is not Breaker.CLOSED)
        call = Dispatch(name, request_id, now, phases.deadline, barred, doubted)
        self.calls.append(call)
        script = self._answer(name, len(self.calls), body.get("stream") is True)
        try:
            bound = min(now + phases.first_byte_s, phases.deadline)
            if script.head_s is None:
                raise UpstreamFault(Failure(FailureClass.SERVER_ERROR, "refused", may_have_run=False))
            await asyncio.sleep(max(0.0, min(now + script.head_s, bound) - now))
            if now + script.head_s > bound:
                raise UpstreamFault(LATE)
            yield SimulatedReply(script, phases, self.clock)
        finally:
            call.ended = self.clock()


class SimulatedReply:
    """The head of an answer, and its body in virtual time; as `n4n.runtime.upstream.Reply`."""

    def __init__(self, script: Script, phases: Phases, clock: Callable[[], float]) -> None:
        self.get = lambda name: script.headers.get(name.decode())
        self.status, self.headers, self.content_type, self.waited_s = script.status, script.headers, "", 0.0
        self._clock, self._phases, self._body = clock, phases, list(script.body)
        self._last = clock()
        self._due = self._last + (self._body[0][0] if self._body else 0.0)

    async def next(self, until: float | None = None) -> bytes | None:
        """The next piece, b'' at the end, None when `until` passed first."""
        late = min(self._phases.deadline, self._last + self._phases.idle_s)
        bound = late if until is None else min(late, until)
        due = self._due if self._body else self._last
        await asyncio.sleep(max(0.0, min(due, bound) - self._clock()))
        if due > bound:
            if bound == until:
                return None
            raise UpstreamFault(LATE)
        self._last = self._clock()
        if not self._body:
            return b""
        piece = self._body.pop(0)[1]
        self._due = self._last + (self._body[0][0] if self._body else 0.0)
        if piece is None:
            raise UpstreamFault(BROKEN)
        return piece

    async def read(self) -> bytes:
        """The whole body."""
        pieces = []
        while piece := await self.next():
            pieces.append(piece)
        return b"".join(pieces)

    async def read_error(self) -> bytes:
        """The whole body of an error, as far as it comes."""
        try:
            return await self.read()
        except UpstreamFault:
            return b""


class Client:
    """The far end: what it was shown, and how it ended. An `Answer` that writes nowhere."""

    def __init__(self, world: World, name: str, chat: ChatRequest, directives: Directives = NONE, timeout_s: float | None = None) -> None:
        self.world, self.name, self.chat, self.directives = world, name, chat, directives
        self.started = world.clock()
        self.deadline = None if timeout_s is None else self.started + timeout_s
        self.record = Record(request_id=name, started=self.started, clock=world.clock, stream=chat.stream)
        self.wake_at: float | None = None
        self.quiet_until: float | None = None
        self.shown: list[bytes] = []
        self._unsent: list[bytes] = []
        self.endings: list[str] = []
        self.error: GatewayError | None = None
        self.ended = 0.0

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Takes output."""
        assert not self.endings, "output after the end"
        self._unsent += [chunk.payload for chunk in chunks]
        if any(chunk.finishes and not chunk.unfinished for chunk in chunks):
            self.wake_at = self.world.clock() + 2.0
        return True

    async def flush(self) -> None:
        """It was shown."""
        self.shown += self._unsent
        self._unsent.clear()

    async def finish(self, usage: Usage | None) -> None:
        """The answer is whole."""
        await self.flush()
        self.endings.append("finished")

    async def run(self) -> None:
        """The whole request; ends in one of `finished`, `failed`, `left`."""
        try:
            asked = Exchange(self.chat, Chat(), self.directives, _KEY, "interactive", self.deadline, self, self.record)
            await serve(self.world.router, asked)  # type: ignore[arg-type]
        except GatewayError as error:
            self.shown += self._unsent
            self.error = error
            self.endings.append("failed")
        except asyncio.CancelledError:
            self.endings += [] if self.endings else ["left"]  # it may leave once it has its answer
        self.ended = self.world.clock()

    @property
    def calls(self) -> list[Dispatch]:
        """The calls that were made for this request."""
        return [call for call in self.world.calls if call.request_id == self.name]


# What endpoints say.


def spoken(source: str, at: int) -> bytes:
    """A chunk that says where it comes from and which one it is."""
    return b'data: {"choices":[{"index":0,"delta":{"content":"%b/%d "}}]}\n\n' % (source.encode(), at)


FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'


def whole(source: str) -> bytes:
    """A completion that says where it comes from."""
    return b'{"choices":[{"index":0,"message":{"role":"assistant","content":"%b/0 "},"finish_reason":"stop"}]}' % source.encode()


def refusal(status: int, retry_after: int | None = None) -> Script:
    """An error status."""
    hint = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Script(0.01, status, ((0.0, b'{"error":{"message":"x"}}'),), hint)
