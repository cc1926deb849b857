"""One HTTP call to one provider: sends exactly one request, retries nothing, follows nothing, and speaks in failures.

Foreign exceptions end here: whatever goes wrong on the way is an `UpstreamFault` that carries a `Failure`. Leaving the
context closes the connection unless the answer was read to its end, so that a cancelled request stops the provider too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import ClientRequest, ClientSession, ClientTimeout, TCPConnector
from aiohttp.client_exceptions import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientError,
    ConnectionTimeoutError,
    InvalidURL,
    ServerDisconnectedError,
)
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from n4n.core.chat import UpstreamRequest
from n4n.core.errors import Failure, FailureClass
from n4n.runtime.resolver import LookUp, Names, NotPublic, Resolver, public_socket

ANSWER_LIMIT = 64 << 20  # bytes of one whole answer; larger is a fault of the provider
ERROR_LIMIT = 256 << 10  # bytes of an error body that are read for its class
READ_BUFFER = 64 << 10  # twice as much of an answer is held at most before the provider is not read from any more
_MOST_SPOILT = 16  # pooled connections of one provider that are given up in a row
KEEP_ALIVE_S = 15.0  # shorter than any provider's own, so that a pooled connection is rarely stale


class UpstreamFault(Exception):
    """The call failed on the way; `failure` says how, without URL or key."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Phases:
    """How long each phase of one call may take, in seconds; `deadline` is on the loop's clock and bounds all of them."""

    connect_s: float
    first_byte_s: float
    idle_s: float
    deadline: float


class Reply:
    """The head of an answer, and its body piece by piece."""

    __slots__ = ("_clock", "_last", "_phases", "_response", "headers", "status", "waited_s")

    def __init__(self, response: aiohttp.ClientResponse, phases: Phases, clock: Callable[[], float], sent: float) -> None:
        self._response, self._phases, self._clock = response, phases, clock
        self._last = clock()
        self.waited_s = self._last - sent  # time spent waiting for the provider so far
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items() if not _CONTROL.search(value)}

    @property
    def content_type(self) -> str:
        """The media type in lower case without parameters, '' where none was sent."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self, limit: int = ANSWER_LIMIT) -> bytes:
        """The whole body; UpstreamFault when it is longer than `limit`, breaks off or stalls."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > limit:
                raise _fault(FailureClass.SERVER_ERROR, f"the provider's answer is larger than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def read_error(self) -> bytes:
        """The head of an error's body, as far as it comes in time: what is missing does not hide the status."""
        pieces: list[bytes] = []
        try:
            async for piece in self.pieces():
                pieces.append(piece)
                if sum(map(len, pieces)) >= ERROR_LIMIT:
                    break
        except UpstreamFault:
            pass
        return b"".join(pieces)[:ERROR_LIMIT]

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives; UpstreamFault when it stalls for longer than the idle bound or breaks off."""
        while piece := await self.next():
            yield piece

    async def next(self, until: float | None = None) -> bytes | None:
        """The next piece, b'' at the end, or None when `until` (the loop's clock) passed first; nothing is lost by that."""
        started = self._clock()
        bounds = [(self._phases.deadline, "total"), (self._last + self._phases.idle_s, "idle")]
        if until is not None:
            bounds.append((until, "until"))
        when, phase = min(bounds)
        try:
            async with asyncio.timeout_at(when):
                piece = await self._response.content.readany()
        except TimeoutError as error:
            if phase == "until":
                return None
            raise _fault(FailureClass.TIMEOUT, _LATE[phase]) from error
        except (ClientError, OSError) as error:
            raise _fault(FailureClass.SERVER_ERROR, "the provider's answer broke off") from error
        finally:
            self.waited_s += self._clock() - started
        self._last = self._clock()
        return piece


_LATE = {
    "connect": "no connection to the provider was made in time",
    "first_token": "the provider did not begin to answer in time",
    "idle": "the provider fell silent in the middle of its answer",
    "total": "the request's deadline passed",
}

_INSIDE = "the provider's address is inside this network; set allow_private: true on the provider to allow it"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _fault(failure_class: FailureClass, message: str, *, may_have_run: bool = True) -> UpstreamFault:
    return UpstreamFault(Failure(failure_class, message, may_have_run=may_have_run))


class _Connector(TCPConnector):
    """Never lends a connection on which something has come that nobody asked for: it would be taken for the next answer."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109  # aiohttp's signature
        """A connection for one request, pooled or new."""
        for _ in range(_MOST_SPOILT):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise ServerDisconnectedError


class Upstream:
    """The pool of connections to providers. One per worker, made inside its loop."""

    def __init__(self, clock: Callable[[], float], look_up: LookUp | None = None) -> None:
        self._clock = clock
        self._names = Names(clock, look_up)
        self._outside = self._session(public_only=True)
        self._anywhere = self._session(public_only=False)

    def _session(self, *, public_only: bool) -> ClientSession:
        """Connections of one kind are never lent to the other: what may go anywhere is not what was checked."""
        return ClientSession(
            connector=_Connector(
                limit=0,
                limit_per_host=0,
                keepalive_timeout=KEEP_ALIVE_S,
                use_dns_cache=False,
                resolver=Resolver(self._names, public_only=public_only),
                socket_factory=public_socket if public_only else None,
            ),
            timeout=ClientTimeout(total=None),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            max_line_size=16 << 10,
            max_field_size=64 << 10,
            read_bufsize=READ_BUFFER,
        )

    async def close(self) -> None:
        """Closes every connection."""
        await self._outside.close()
        await self._anywhere.close()
        await self._names.close()

    @asynccontextmanager
    async def send(self, request: UpstreamRequest, request_id: str, phases: Phases) -> AsyncIterator[Reply]:
        """Sends one POST, labelled with the request's id, and yields the head of the answer; UpstreamFault when none comes."""
        sent = self._clock()
        response = await self._head(request, request_id, phases)
        try:
            yield Reply(response, phases, self._clock, sent)
        finally:
            response.close() if not response.content.at_eof() else response.release()

    async def _head(self, request: UpstreamRequest, request_id: str, phases: Phases) -> aiohttp.ClientResponse:
        left = phases.deadline - self._clock()
        if left <= 0:
            raise _fault(FailureClass.TIMEOUT, _LATE["total"], may_have_run=False)
        timeout = ClientTimeout(total=None, sock_connect=min(phases.connect_s, left), connect=min(phases.connect_s, left))
        try:
            async with asyncio.timeout(min(phases.first_byte_s, left)):
                headers = (*request.headers, ("x-request-id", request_id), ("accept-encoding", "identity"))
                session = self._anywhere if request.allow_private else self._outside
                return await session.post(request.url, data=request.body, headers=headers, allow_redirects=False, timeout=timeout)
        except ConnectionTimeoutError as error:
            raise _fault(FailureClass.TIMEOUT, _LATE["connect"], may_have_run=False) from error
        except TimeoutError as error:
            phase = "total" if left <= phases.first_byte_s else "first_token"
            raise _fault(FailureClass.TIMEOUT, _LATE[phase]) from error
        except (ClientConnectorCertificateError, ClientConnectorSSLError) as error:
            raise _fault(FailureClass.SERVER_ERROR, "no secure connection to the provider could be made", may_have_run=False) from error
        except ClientConnectorDNSError as error:
            message = _INSIDE if isinstance(error.os_error, NotPublic) else "the provider's name could not be resolved"
            raise _fault(FailureClass.SERVER_ERROR, message, may_have_run=False) from error
        except ClientConnectorError as error:
            message = _INSIDE if isinstance(error.os_error, NotPublic) else "the provider refused the connection"
            raise _fault(FailureClass.SERVER_ERROR, message, may_have_run=False) from error
        except InvalidURL as error:
            raise _fault(FailureClass.SERVER_ERROR, "the provider's address is not valid", may_have_run=False) from error
        except (ClientError, OSError, ValueError) as error:
            raise _fault(FailureClass.SERVER_ERROR, "the provider closed the connection without an answer") from error
