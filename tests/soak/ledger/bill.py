"""A provider that keeps its own bill, in a process of its own: `python -m tests.soak.ledger.bill PORT`.

What becomes of a call is decided by its label and by which call of that label it is, so that a run can be repeated. It speaks OpenAI's
dialect below /p1, /p2 and /p3, Anthropic's below /p4. `GET /bill` tells every call that arrived: whose it was, whether its answer left
whole, and what it costs, reckoned here with the prices of PRICES and nothing of n4n.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal

from aiohttp import web

from tests.support.house import eventually, free_port, listens
from tests.support.script import compact, event

PRICES = {  # USD per million tokens: input, cached input, output
    "p1": ("2.5", "1.25", "10"),
    "p2": ("0.15", "0.075", "0.6"),
    "p3": ("1.1", "0.275", "4.4"),
    "p4": ("3", "0.3", "15"),
}
WORDS = 12  # of a stream
FATES = (
    ("ok", 84),
    ("overloaded", 3),
    ("error", 3),
    ("reset", 2),
    ("slow", 2),
    ("cut early", 2),
    ("cut late", 2),
    ("fails", 1),
    ("ends", 1),
)
SLOW_S = 3.0  # beyond the time that the catalog gives for a first token


@dataclass(slots=True)
class Call:
    """One line of the bill."""

    request_id: str
    provider: str
    fate: str
    cost_usd: Decimal
    completed: bool = False


def fate_of(request_id: str, number: int) -> tuple[str, int]:
    """What becomes of the n-th call of a label, and a number that the rest is drawn from."""
    drawn = int.from_bytes(hashlib.sha256(f"{request_id} {number}".encode()).digest()[:8])
    rest, at = drawn % sum(share for _, share in FATES), 0
    for fate, share in FATES:
        at += share
        if rest < at:
            return fate, drawn >> 8
    raise AssertionError(rest)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the call is charged for."""

    prompt: int
    cached: int
    output: int

    def cost(self, provider: str) -> Decimal:
        """In USD."""
        fresh, again, out = (Decimal(price) for price in PRICES[provider])
        return ((self.prompt - self.cached) * fresh + self.cached * again + self.output * out) / 1_000_000


def usage_of(drawn: int, *, embeds: bool) -> Usage:
    """Other numbers for every call."""
    prompt = 20 + drawn % 5003
    if embeds:
        return Usage(prompt, 0, 0)
    return Usage(prompt, (drawn >> 16) % prompt if drawn % 3 == 0 else 0, 1 + (drawn >> 32) % 797)


class Provider:
    """Answers, and notes what is owed."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._numbers: Counter[str] = Counter()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One call, or the bill."""
        if request.path == "/bill":
            return web.json_response([[one.request_id, one.provider, one.fate, str(one.cost_usd), one.completed] for one in self.calls])
        asked = json.loads(await request.read())
        label, provider = request.headers["x-request-id"], request.path.split("/")[1]
        fate, drawn = fate_of(label, self._numbers[label])
        self._numbers[label] += 1
        embeds = request.path.endswith("/embeddings")
        stream = bool(asked.get("stream"))
        if not stream and fate in ("cut early", "cut late", "fails", "ends"):
            fate = "ok"
        used = usage_of(drawn, embeds=embeds)
        call = Call(label, provider, fate, used.cost(provider) if fate == "ok" else Decimal())
        self.calls.append(call)
        await asyncio.sleep(0.002 + drawn % 7 / 1000)
        try:
            if fate in ("overloaded", "error"):
                status = 503 if fate == "overloaded" else 500
                return web.json_response({"error": {"message": "not now", "type": "server_error"}, "type": "error"}, status=status)
            if fate == "reset":
                return _dropped(request)
            if fate == "slow":
                await asyncio.sleep(SLOW_S)
                return _dropped(request)
            if stream:
                return await self._stream(request, provider, fate, used, call)
            return await self._whole(request, provider, used, call, embeds=embeds)
        except ConnectionError:  # nobody is there any more
            return web.Response()

    async def _whole(self, request: web.BaseRequest, provider: str, used: Usage, call: Call, *, embeds: bool) -> web.StreamResponse:
        content = compact(_embedding(used) if embeds else _message(used) if provider == "p4" else _completion(used))
        reply = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(len(content))})
        await reply.prepare(request)
        await reply.write(content)
        await reply.write_eof()
        call.completed = _is_there(request)
        return reply

    async def _stream(self, request: web.BaseRequest, provider: str, fate: str, used: Usage, call: Call) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        pieces = _messages_stream(used) if provider == "p4" else _chat_stream(used)
        number = 0
        async for piece, is_word in pieces:
            if (fate == "cut early" and number == 1) or (fate == "cut late" and number == 8):
                return _dropped(request)
            if fate == "fails" and number == 8:
                await reply.write(event({"type": "error", "error": {"type": "api_error", "message": "it broke", "code": "server_error"}}))
                await reply.write_eof()
                return reply
            if not is_word and number and fate == "ends":
                await reply.write_eof()
                return reply
            await reply.write(piece)
            number += is_word
            if is_word:
                await asyncio.sleep(0.002)
        await reply.write_eof()
        call.completed = _is_there(request)
        return reply


def _is_there(request: web.BaseRequest) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _dropped(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _usage(used: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.output,
        "total_tokens": used.prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    }


_HEAD = {"id": "chatcmpl-1", "created": 1_750_000_000, "model": "billed"}  # one id for all: it is nobody's key


def _completion(used: Usage) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "word " * WORDS}, "finish_reason": "stop"}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _usage(used)}


def _embedding(used: Usage) -> dict[str, object]:
    vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
    return {"object": "list", "data": [vector], "model": "billed", "usage": {"prompt_tokens": used.prompt, "total_tokens": used.prompt}}


def _message(used: Usage) -> dict[str, object]:
    told = {"input_tokens": used.prompt - used.cached, "cache_read_input_tokens": used.cached, "output_tokens": used.output}
    content = [{"type": "text", "text": "word " * WORDS}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "billed", "content": content, "stop_reason": "end_turn",
            "stop_sequence": None, "usage": told}  # fmt: skip


async def _chat_stream(used: Usage) -> AsyncIterator[tuple[bytes, bool]]:
    """Pieces, and whether each is a word."""

    def chunk(choices: list[object], **more: object) -> bytes:
        return event({**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more})  # type: ignore[dict-item]

    yield chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]), False
    for number in range(WORDS):
        yield chunk([{"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}]), True
    yield chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]) + chunk([], usage=_usage(used)) + b"data: [DONE]\n\n", False


async def _messages_stream(used: Usage) -> AsyncIterator[tuple[bytes, bool]]:
    def of(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\n".encode() + event({"type": kind, **fields})  # type: ignore[dict-item]

    told = {"input_tokens": used.prompt - used.cached, "cache_read_input_tokens": used.cached, "output_tokens": 1}
    yield of("message_start", message={**_message(used), "content": [], "stop_reason": None, "usage": told}), False
    yield of("content_block_start", index=0, content_block={"type": "text", "text": ""}), False
    for number in range(WORDS):
        yield of("content_block_delta", index=0, delta={"type": "text_delta", "text": f"word{number} "}), True
    yield (
        (
            of("content_block_stop", index=0)
            + of("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": used.output})
            + of("message_stop")
        ),
        False,
    )


async def serve(port: int) -> None:
    """Serves until killed."""
    runner = web.ServerRunner(web.Server(Provider().answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


@contextmanager
def billing_provider() -> Iterator[str]:
    """Its URL, without a path, for as long as the block lasts."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "tests.soak.ledger.bill", str(port)]) as process:
        try:
            eventually(lambda: listens(port), "the provider")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
