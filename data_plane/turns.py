"""One connection's requests, one after the other, in the task that aiohttp makes for the connection.

aiohttp makes one more task for every request, a timer for the time after it, and a future or two to wait for it all, which
costs as much as a fifth of all that n4n does for a request. `Turns.start` does the same without these for the requests
that nearly all are, and leaves a connection for good to aiohttp's own `start` as soon as anything is unusual: bytes that are
no request, another protocol asked for, requests piled up. It uses aiohttp's private names, those in PRIVATE and no others;
tests/data_plane/test_turns.py holds them, and what they mean, against the aiohttp that is installed.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.http_writer import StreamWriter
from aiohttp.streams import StreamReader

PRIVATE = frozenset((
    "_buffer_paused", "_close", "_current_request", "_force_close", "_handler_waiter", "_loop", "_messages", "_parser",
    "_request_factory", "_request_handler", "_request_in_progress", "_task_handler", "_upgraded", "_waiter",
))  # fmt: skip
UNREAD_BODY_S = 2.0  # for how long the rest of a body is taken whose answer is already out


class Written:
    """What is told of an answer that has been written already. `keep_alive`: whether the connection may carry another."""

    __slots__ = ("keep_alive",)

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, _: web.BaseRequest) -> None:
        """Nothing is left to do."""

    async def write_eof(self) -> None:
        """Nothing is left to do."""


class Turns(web.RequestHandler):
    """See above. `general`: aiohttp's own way, from here on. `idle_since`: when the newest answer was out, on the loop's clock, and
    None while a request is here, before the first one, and in the general way, which has a timer for it."""

    general = False
    idle_since: float | None = None

    def answered(self) -> None:
        """An answer is out."""

    def flush(self) -> None:
        """What was written goes to the client."""

    async def start(self) -> None:
        """Answers requests until the connection ends."""
        self.keep_alive(True)  # no timer of aiohttp's: whoever looks over the connections sees `idle_since`
        try:
            await self._turns()
        except asyncio.CancelledError:
            raise
        except BaseException:
            self.force_close()
            raise
        if self.general:
            await super().start()
        elif not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.flush()
                self.transport.close()

    async def _turns(self) -> None:
        loop, messages, task = self._loop, self._messages, asyncio.current_task()
        handler, factory = self._request_handler, self._request_factory
        assert handler is not None
        assert factory is not None
        assert task is not None
        while not self._force_close:
            if not messages:
                self._waiter = loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            message, payload = messages[0]
            parser = self._parser
            if type(message) is not RawRequestMessage or message.upgrade or self._upgraded or self._buffer_paused or parser is None:
                self.general, self.idle_since = True, None
                return
            messages.popleft()
            parser.message_consumed()
            self.idle_since, self._request_in_progress = None, True
            self._current_request = request = factory(message, payload, self, StreamWriter(self, loop), task)
            try:
                response = await handler(request)
                self._current_request = None
                if isinstance(response, Written):
                    keep = response.keep_alive
                    self.answered()
                else:
                    response, lost = await self.finish_response(request, response, None)
                    keep = bool(response.keep_alive) and not lost
            except ConnectionError:
                return
            except asyncio.CancelledError:
                self.force_close()
                raise
            finally:
                self._current_request = None
                self._request_in_progress = False
                if self._handler_waiter is not None:
                    self._handler_waiter.set_result(None)
            if not (payload.is_eof() or await self._took_the_rest(payload)) or not keep or self._close:
                return
            self.idle_since = loop.time()

    async def _took_the_rest(self, payload: StreamReader) -> bool:
        """Reads what is left of a body whose answer is out, so that the client gets to read the answer. False: the connection ends."""
        try:
            async with asyncio.timeout(UNREAD_BODY_S):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
        except (TimeoutError, web.RequestPayloadError):
            return False
        return payload.is_eof()
