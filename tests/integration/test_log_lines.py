"""Lines of the request log, whatever clients send."""

from __future__ import annotations

import pytest

from tests.support.router import catalog, running_router
from tests.support.upstream import ScriptedUpstream


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "m" * 500_000},
        {"models": ["m" * 500_000, "m"]},
        {"user": "u" * 500_000},
        *({"provider": {member: ["p" * 500_000]}} for member in ("only", "ignore", "order", "quantizations")),
        {"provider": {"only": ["p" * 8_000] * 60}},
        {"provider": {"p" * 500_000: True}},
        {"provider": {"sort": "p" * 500_000}},
    ],
    ids=lambda asked: str(asked)[:32],
)
async def test_a_body_full_of_one_name_makes_a_line_like_any_other(asked: dict[str, object]) -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as router:
        async with router.chat(asked) as answer:
            told = await answer.read()
        [line] = await router.logged()
    assert len(str(line)) < 6_000
    assert len(told) < 10_000
