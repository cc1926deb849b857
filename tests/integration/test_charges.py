"""A provider that takes more tokens from its limit than a request uses, through a router over a real Redis."""

from __future__ import annotations

import asyncio
import time

from tests.support.answers import completion, rate_limited, usage
from tests.support.duplicates import ask
from tests.support.router import catalog, running_router
from tests.support.script import Answer, Headers
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

TPM = 60_000


def left(answer: Answer, tokens: int) -> Answer:
    """The answer, from a provider that tells what it has left."""
    return (Headers((("x-ratelimit-remaining-tokens", str(tokens)), ("x-ratelimit-limit-tokens", str(TPM)))), *answer)


async def test_who_refuses_what_it_has_enough_of_is_believed_to_charge_more(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        made = catalog(upstream.base_url, model={"retry": {"max_retries": 0}})
        made["accounts"]["ae1"]["limits"] = {"tpm": TPM}  # type: ignore[index]
        async with running_router(made, store=store) as router:
            upstream.script(left(rate_limited(retry_after=0.05), 700), then=completion(usage=usage(15, 5)))
            assert (await ask(router, None)).status == 429
            quotas = router.router.quotas
            assert quotas is not None and quotas.charges["pe1", "scripted-model"].factor > 1.2
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            assert [(await ask(router, None)).status for _ in range(2)] == [200, 200]
            assert time.monotonic() - begun > 0.7  # what was reserved for the first stays taken, although 20 tokens were used


async def test_who_refuses_for_want_of_tokens_is_believed(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        made = catalog(upstream.base_url, model={"retry": {"max_retries": 0}})
        made["accounts"]["ae1"]["limits"] = {"tpm": TPM}  # type: ignore[index]
        async with running_router(made, store=store) as router:
            upstream.script(left(rate_limited(retry_after=0.05), 3))
            assert (await ask(router, None)).status == 429
            quotas = router.router.quotas
            assert quotas is not None and quotas.charges["pe1", "scripted-model"].factor == 1.0
