"""POST /v1/route:explain takes the body of every skin, and of a model alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.matrix.stage import account, endpoint, providers
from tests.support.router import RunningRouter, running_router
from tests.support.upstream import ScriptedUpstream

TURNS = [{"role": "user", "content": "ping"}]
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}

SEEN = [{"role": "user", "content": [PICTURE]}]
CHATS = ("blind", "openai", "openai_responses", "anthropic")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house() -> AsyncIterator[RunningRouter]:
    """Model `m` in three dialects and one that sees nothing; `t` takes texts alone, `v` makes embeddings alone."""
    async with ScriptedUpstream() as upstream:
        supports = {"blind": ["tools"], "texts": ["text_completions"], "vectors": ["embeddings"]}
        document = {
            "providers": providers(upstream),
            "accounts": {f"a-{name}": account(name) for name in ("openai", "openai_responses", "anthropic")},
            "models": {name: {"strategy": "cost"} for name in ("m", "t", "v")},
            "endpoints": {name: endpoint("m", name, f"a-{name}") for name in ("openai", "openai_responses", "anthropic")}
            | {
                name: endpoint(model, "openai", "a-openai", supports=supports[name])
                for name, model in (("blind", "m"), ("texts", "t"), ("vectors", "v"))
            },
        }
        async with running_router(document) as running:
            yield running
        assert upstream.calls == []


async def out(house: RunningRouter, body: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, str]:
    """Who is out, and why."""
    ask = house.http.post(f"{house.base_url}/route:explain", json=body, headers={**house.headers(), **(headers or {})})
    async with ask as answer:
        told = await answer.json()
        assert answer.status == 200, told
    return {one["endpoint"]: one["reason"] for one in told["candidates"] if not one["kept"]}


@pytest.mark.parametrize(
    ("body", "headers", "removed"),
    [
        ({"model": "m"}, {}, {}),
        ({"model": "m", "messages": TURNS}, {}, {}),
        ({"model": "m", "messages": SEEN}, {"anthropic-version": "2023-06-01"}, {"blind": "supports=vision"}),
        ({"model": "m", "system": "s", "messages": SEEN}, {}, {"blind": "supports=vision"}),
        (
            {"model": "m", "messages": TURNS, "tools": [{"name": "t", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]},
            {},
            dict.fromkeys(("blind", "openai", "openai_responses"), "tools=bash_20250124"),
        ),
        (
            {"model": "m", "input": "ping", "tools": [{"type": "file_search"}]},
            {},
            dict.fromkeys(("blind", "openai", "anthropic"), "tools=file_search"),
        ),
        ({"model": "m", "prompt": {"id": "pmpt_1"}}, {}, {}),
        ({"model": "m", "prompt": "Once"}, {}, {}),
        ({"model": "t", "prompt": "Once"}, {}, {}),
        ({"model": "t", "messages": TURNS}, {}, {"texts": "supports=chat"}),
        ({"model": "v"}, {}, {}),
        ({"model": "v", "input": ["a"]}, {}, {}),
        ({"model": "v", "messages": TURNS}, {}, {"vectors": "supports=chat"}),
        ({"model": "m", "input": "a", "dimensions": 8}, {}, dict.fromkeys(CHATS, "supports=embeddings")),
    ],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_of_any_skin_is_explained(
    house: RunningRouter, body: dict[str, Any], headers: dict[str, str], removed: dict[str, str]
) -> None:
    assert await out(house, body, headers) == removed


@pytest.mark.parametrize("body", [{"model": 7}, {}, {"model": "m", "messages": "ping"}, {"model": "m", "system": "s", "messages": 7}])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_no_skin_takes_is_refused(house: RunningRouter, body: dict[str, Any]) -> None:
    async with house.http.post(f"{house.base_url}/route:explain", json=body, headers=house.headers()) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(("path", "model", "more"), [
    ("/chat/completions", "v", {"messages": TURNS}), ("/chat/completions", "t", {"messages": TURNS}),
    ("/completions", "v", {"prompt": "Once"}), ("/embeddings", "m", {"input": "a"}), ("/embeddings", "t", {"input": "a"}),
])  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_model_does_not_serve_is_refused_before_anybody_is_asked(
    house: RunningRouter, path: str, model: str, more: dict[str, Any]
) -> None:
    async with house.http.post(f"{house.base_url}{path}", json={"model": model, **more}, headers=house.headers()) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (400, "no_eligible_endpoint")
    assert all(reason.startswith("supports=") for reason in error["n4n"]["eliminated"])
