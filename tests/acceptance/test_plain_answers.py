"""Every real client gets a plain answer from every provider, whole and as a stream, and its provider has nothing to complain about."""

from __future__ import annotations

import pytest

from tests.support.clients import CLIENTS, PROMPT, Client
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route

ANSWER = 'Größe: 漢字 👩‍👩‍👧‍👦 “so” \\ "so"\n\tand\u2028so on, 終わり'


@pytest.mark.parametrize("client", CLIENTS, ids=str)
@pytest.mark.parametrize("at", PLACES)
async def test_the_text_comes_as_it_was_said(company: Simulated, at: str, client: Client) -> None:
    company.reply(ANSWER)

    async with running_router(route((company, at))) as router:
        seen: list[str] = []
        await client.ask(router.base_url, seen)
        (line,) = await router.logged()

    assert "".join(seen) == ANSWER
    assert len(seen) > 1 or not client.stream
    assert (line["status"], line["stream"], line["usage"]["estimated"]) == (200, client.stream, False)
    assert line["usage"]["completion_tokens"] > 0
    (asked,) = company.requests
    assert PROMPT in str(asked.body)
    assert company.findings() == []
