"""A provider on this loop that counts what reaches it: when, through which account, and how many are under way at once.

The body's `user` says how it is treated, as JSON: `{"ms": 50, "prompt": 150, "output": 250, "do": "ok"}`; `do` may be ok, 500, hang, reset.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

GRACE_S = 0.02  # one that left is seen to have left within this; a call that is really under way lasts longer
_HEAD = {"id": "chatcmpl-soak", "object": "chat.completion", "created": 1_750_000_000, "model": "soak"}


@dataclass(eq=False, slots=True)
class Call:
    """One that arrived, at `time.monotonic()`."""

    at: float
    account: str
    status: int = 0  # 0: no answer, or not yet
    tokens: int = 0


@dataclass
class Provider:
    """`refuses` decides from an account's name whether a call there is told 429."""

    refuses: Callable[[str], bool] = lambda _: False
    calls: list[Call] = field(default_factory=list)
    most: int = 0  # were under way at once
    port: int = 0
    _open: set[Call] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        """For a catalog."""
        return f"http://127.0.0.1:{self.port}/v1"

    def forget(self) -> None:
        """What was counted so far."""
        self.calls, self.most = [], 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One chat completion."""
        asked = json.loads(await request.read())
        how = json.loads(asked.get("user") or "{}")
        call = Call(time.monotonic(), request.headers.get("authorization", "").removeprefix("Bearer "))
        self.calls.append(call)
        self._open.add(call)
        self._count()
        try:
            return await self._answered(request, call, how)
        finally:
            self._open.discard(call)

    async def _answered(self, request: web.BaseRequest, call: Call, how: dict[str, object]) -> web.StreamResponse:
        if self.refuses(call.account):
            call.status = 429
            return web.json_response({"error": {"message": "slow down", "code": "rate_limit_exceeded", "type": "requests"}}, status=429)
        await asyncio.sleep(float(str(how.get("ms", 10))) / 1000)
        match how.get("do", "ok"):
            case "hang":
                await asyncio.sleep(3600)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
                return web.StreamResponse()  # nobody is there to read it
            case "500":
                call.status = 500
                return web.json_response({"error": {"message": "broken", "code": "server_error"}}, status=500)
        prompt, output = int(str(how.get("prompt", 11))), int(str(how.get("output", 7)))
        call.status, call.tokens = 200, prompt + output
        choice = {"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        return web.json_response({**_HEAD, "choices": [choice], "usage": usage})

    def _count(self) -> None:
        """A connection that was closed may be seen to be closed after the next call on another: what counts is what stays."""
        seen = frozenset(self._open)
        if len(seen) > self.most:
            asyncio.get_running_loop().call_later(GRACE_S, self._count_again, seen)

    def _count_again(self, seen: frozenset[Call]) -> None:
        self.most = max(self.most, len(seen & self._open))


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """One that serves."""
    made = Provider()
    runner = web.ServerRunner(web.Server(made.answer, access_log=None, handler_cancellation=True))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()
