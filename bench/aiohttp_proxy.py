"""The bare proxy that n4n is compared with: aiohttp's Application in front, its ClientSession behind, nothing in between.

`python -m bench.aiohttp_proxy PORT UPSTREAM [PORT UPSTREAM]`, an upstream being http://HOST:PORT or https://…. It knows no key,
model, limit, retry or log: what it costs is what the two halves of aiohttp cost. Certificates are verified; $SSL_CERT_FILE.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer upstream"}


async def serve(upstreams: dict[int, str]) -> None:
    """Serves on each port until killed."""
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=600), auto_decompress=False) as client:
        for port, upstream in upstreams.items():
            app = web.Application(client_max_size=32 << 20)
            app.router.add_post("/v1/chat/completions", _forwards(client, upstream))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        await asyncio.Event().wait()


def _forwards(client: ClientSession, upstream: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def forward(request: web.Request) -> web.StreamResponse:
        async with client.post(upstream + request.path, data=await request.read(), headers=HEADERS) as answer:
            if answer.content_type != "text/event-stream":
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
            reply = web.StreamResponse(status=answer.status, headers={"Content-Type": "text/event-stream"})
            with suppress(ConnectionResetError):  # the load's end
                await reply.prepare(request)
                async for content in answer.content.iter_any():
                    await reply.write(content)
                await reply.write_eof()
            return reply

    return forward


if __name__ == "__main__":
    words = sys.argv[1:]
    uvloop.run(serve({int(port): upstream for port, upstream in zip(words[::2], words[1::2], strict=True)}))
