"""A scripted upstream: a provider on a real loopback socket that does, byte for byte, what the test tells it to.

    async with ScriptedUpstream() as upstream:
        upstream.script(rate_limited(retry_after=1), completion("pong"))
        ...                                     # point the thing under test at upstream.base_url
        assert len(upstream.calls) == 2

No HTTP library stands in between. A request is recorded in `calls` exactly once, at the moment its last byte arrived,
whatever becomes of its connection. A peer that leaves while its answer is due ends the answer and is noted
in `Call.peer_closed_at`. `running_upstream()` is the same thing on a thread of its own, for tests without a loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

from tests.support.answers import USAGE, completion, sse
from tests.support.call import Call, Reply
from tests.support.connection import Connection
from tests.support.script import Json

T = TypeVar("T")
PATIENCE_S = 5.0  # how long a wait for something that ought to happen lasts before it fails


def reply(text: str = "pong", *, usage: Mapping[str, Json] | None = USAGE) -> Reply:
    """A good answer in the form the call asks for: a stream if its body says `"stream": true`, else one completion."""
    return lambda call: sse(text, usage=usage) if call.json.get("stream") is True else completion(text, usage=usage)


class ScriptedUpstream:
    """Answers one request after the other, across all connections, with the next answer of its script."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.connections = 0  # accepted so far, whether or not a request came on them
        self.port = 0  # known once started, kept over a stop
        self._script: deque[Reply] = deque()
        self._then = reply()
        self._server: asyncio.Server | None = None
        self._open: set[Connection] = set()
        self._playing: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._arrival = asyncio.Event()

    @property
    def base_url(self) -> str:
        """What a catalog's provider calls `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *answers: Reply, then: Reply | None = None) -> None:
        """One answer per request from now on, in order of arrival; then `then` (default: a good `reply()`)."""
        self._then = reply() if then is None else then
        self._script = deque(answers)

    async def arrived(self, count: int = 1, *, within: float = PATIENCE_S) -> Call:
        """Waits until `count` calls have arrived in all; the last of these. TimeoutError if they do not."""
        async with asyncio.timeout(within):
            while len(self.calls) < count:
                await self._arrival.wait()
        return self.calls[count - 1]

    async def closed(self, call: Call, *, within: float = PATIENCE_S) -> float:
        """Waits until the peer has left this call unfinished; when that was (`time.monotonic()`)."""
        await self._over(call, within)
        assert call.peer_closed_at is not None, "its peer did not leave before the call's answer was over"
        return call.peer_closed_at

    async def finished(self, call: Call, *, within: float = PATIENCE_S) -> float:
        """Waits until the call's answer has been played to its end; when that was (`time.monotonic()`)."""
        await self._over(call, within)
        assert call.finished_at is not None, "the peer left, or the upstream stopped, before the answer was over"
        return call.finished_at

    async def start(self) -> None:
        """Listens; after a `stop`, on the same port again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drops every connection and refuses new ones, as a provider that is down does. Script and calls stay."""
        if self._server is not None:
            self._server.close()
            connections = tuple(self._open)
            for connection in connections:
                connection.drop()
            await asyncio.gather(*(connection.gone.wait() for connection in connections))
            await asyncio.gather(*self._playing, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> "ScriptedUpstream":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
        if error is None:
            self.raise_failures()

    def raise_failures(self) -> None:
        """Raises what went wrong in the script itself: that must not look like a broken provider."""
        if self._failures:
            raise self._failures[0]

    async def _over(self, call: Call, within: float) -> None:
        async with asyncio.timeout(within):
            await call.over.wait()

    # --- what connections ask (tests.support.connection.Owner) ---

    def joined(self, connection: Connection) -> int:
        """A connection is there; its number."""
        self._open.add(connection)
        self.connections += 1
        return self.connections

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)

    def due(self, call: Call) -> Reply:
        """Records the call and takes its answer off the script."""
        self.calls.append(call)
        self._arrival.set()
        self._arrival = asyncio.Event()
        return self._script.popleft() if self._script else self._then

    def own(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Runs a connection's playing until it ends or the upstream stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._playing.add(task)
        task.add_done_callback(self._played)
        return task

    def _played(self, task: "asyncio.Task[None]") -> None:
        self._playing.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failures.append(failure)


class HostedUpstream:
    """A scripted upstream whose loop runs on another thread; every wait blocks the calling thread."""

    def __init__(self, upstream: ScriptedUpstream, loop: asyncio.AbstractEventLoop) -> None:
        self._upstream = upstream
        self._loop = loop

    @property
    def base_url(self) -> str:
        """What a catalog's provider calls `base_url`."""
        return self._upstream.base_url

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls so far."""
        return tuple(self._upstream.calls)

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return self._upstream.connections

    def script(self, *answers: Reply, then: Reply | None = None) -> None:
        """See `ScriptedUpstream.script`."""
        self._upstream.script(*answers, then=then)

    def arrived(self, count: int = 1, *, within: float = PATIENCE_S) -> Call:
        """See `ScriptedUpstream.arrived`."""
        return self._ask(self._upstream.arrived(count, within=within))

    def closed(self, call: Call, *, within: float = PATIENCE_S) -> float:
        """See `ScriptedUpstream.closed`."""
        return self._ask(self._upstream.closed(call, within=within))

    def finished(self, call: Call, *, within: float = PATIENCE_S) -> float:
        """See `ScriptedUpstream.finished`."""
        return self._ask(self._upstream.finished(call, within=within))

    def start(self) -> None:
        """See `ScriptedUpstream.start`."""
        self._ask(self._upstream.start())

    def stop(self) -> None:
        """See `ScriptedUpstream.stop`."""
        self._ask(self._upstream.stop())

    def _ask(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def running_upstream() -> Iterator[HostedUpstream]:
    """A scripted upstream on a thread of its own for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-upstream")
    thread.start()
    scripted = ScriptedUpstream()
    upstream = HostedUpstream(scripted, loop)
    try:
        upstream.start()
        yield upstream
    finally:
        upstream.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    scripted.raise_failures()
