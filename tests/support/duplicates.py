"""Requests with an idempotency key, on every skin: what is asked, and all that came back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from n4n.core.idempotency import LEASE_MS
from tests.support.answers import JSON
from tests.support.call import Reply
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Whole
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream, reply

PROMPT = "a prompt like no other"
TURNS = [{"role": "user", "content": PROMPT}]
BODIES: Mapping[str, Mapping[str, object]] = {
    "/v1/chat/completions": {"model": "m", "messages": TURNS},
    "/v1/completions": {"model": "m", "prompt": PROMPT},
    "/v1/embeddings": {"model": "m", "input": PROMPT},
    "/v1/messages": {"model": "m", "max_tokens": 50, "messages": TURNS},
    "/v1/responses": {"model": "m", "input": PROMPT},
}
CHAT = "/v1/chat/completions"
WAYS = [(path, stream) for path in BODIES for stream in (False, True) if not (stream and path == "/v1/embeddings")]
VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": "AAAAPwAAAMA="}],
    "model": "x",
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}


@dataclass(frozen=True)
class Got:
    """One answer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_replay(self) -> bool:
        """Whether it says so."""
        return self.headers.get("x-n4n-idempotent-replay") == "true"

    @property
    def error(self) -> Mapping[str, object]:
        """What stands under `error`."""
        return json.loads(self.body)["error"]  # type: ignore[no-any-return]


async def ask(
    router: RunningRouter, key: str | None = "k", *, path: str = CHAT, stream: bool = False, prompt: str = PROMPT, **headers: str
) -> Got:
    """One request; `headers` with _ for -."""
    text = json.dumps({**BODIES[path], **({"stream": True} if stream else {})}).replace(PROMPT, prompt)
    named = {"content-type": "application/json", **({} if key is None else {"idempotency-key": key})}
    url = router.base_url.removesuffix("/v1") + path
    async with router.http.post(url, data=text.encode(), headers={**router.headers(**headers), **named}) as answer:
        return Got(answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read())


def good(path: str, text: str = "pong") -> Reply:
    """What the upstream answers a skin's question with."""
    return (JSON, Whole(json.dumps(VECTORS).encode())) if path == "/v1/embeddings" else reply(text)


def document(*urls: str, path: str = CHAT, **more: object) -> dict[str, object]:
    """Model `m`, without retries, for this skin."""
    endpoint = {"supports": ["embeddings"]} if path == "/v1/embeddings" else None
    return catalog(*urls, **{"endpoint": endpoint, "model": {"retry": {"max_retries": 0}}, **more})  # type: ignore[arg-type]


@asynccontextmanager
async def routers(
    upstream: ScriptedUpstream, *redis_urls: str, path: str = CHAT, lease_ms: float = LEASE_MS, deadline_s: float = 1.0, **key: object
) -> AsyncIterator[tuple[RunningRouter, ...]]:
    """One router for each URL of Redis, all with the same key, whose fields are `key`, and the same secret."""
    async with AsyncExitStack() as stack:
        running = []
        for number, url in enumerate(redis_urls):
            store = await stack.enter_async_context(open_store(url, deadline_s=deadline_s))
            made = document(upstream.base_url, path=path)
            running.append(
                await stack.enter_async_context(running_router(made, key=key, store=store, name=f"r{number}", lease_ms=lease_ms))
            )
        yield tuple(running)
