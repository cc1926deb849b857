"""A provider for steady load, in a process of its own so that it disturbs no measurement: `python -m tests.soak.upstream PORT`.

A whole answer after 20 ms; a stream of WORDS, one every 40 ms. Nothing is recorded, so that it can run for hours.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.support.house import eventually, free_port, listens

WORDS = tuple(f"word{number} " for number in range(10))
TEXT = "".join(WORDS)
USAGE = {"prompt_tokens": 11, "completion_tokens": 10, "total_tokens": 21}
_HEAD = {"id": "chatcmpl-soak", "created": 1_750_000_000, "model": "soak"}


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """One chat completion."""
    asked = json.loads(await request.read())
    await asyncio.sleep(0.02)
    if not asked.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
        return web.json_response({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE})
    reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
    try:
        await reply.prepare(request)
        for word in WORDS:
            await reply.write(_event([{"index": 0, "delta": {"content": word}, "finish_reason": None}]))
            await asyncio.sleep(0.04)
        await reply.write(_event([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        await reply.write(_event([], usage=USAGE) + b"data: [DONE]\n\n")
        await reply.write_eof()
    except ConnectionError:
        pass  # a router that was killed
    return reply


def _event(choices: list[object], **more: object) -> bytes:
    return b"data: " + json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}).encode() + b"\n\n"


async def serve(port: int) -> None:
    """Serves until killed."""
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


@contextmanager
def steady_upstream() -> Iterator[str]:
    """Its base URL, for as long as the block lasts."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "tests.soak.upstream", str(port)]) as process:
        try:
            eventually(lambda: listens(port), "the upstream")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
