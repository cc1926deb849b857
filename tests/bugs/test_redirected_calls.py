"""Where a request goes is the catalog's word, never the request's."""

from __future__ import annotations

import json

import pytest

from tests.support.answers import completion
from tests.support.router import PROVIDER_SECRET, catalog, running_router
from tests.support.script import Headers, Status, Whole
from tests.support.upstream import ScriptedUpstream

NAMES = ("api_base", "base_url", "api_key", "api_version", "custom_llm_provider", "extra_body", "extra_headers", "organization")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_that_names_another_host_is_refused(name: str, stream: bool) -> None:
    """LiteLLM #24952 (case 26): `api_base` in a body took the call, and the pool's key, to a host of the caller's choice."""
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as elsewhere, running_router(catalog(upstream.base_url)) as house:
        value = {"api_base": elsewhere.base_url} if name.startswith("extra") else elsewhere.base_url
        async with house.chat(stream=stream, **{name: value}) as answer:
            told = (await answer.json())["error"]
    assert (answer.status, told["param"]) == (400, name)
    assert upstream.calls == [] and elsewhere.connections == 0


@pytest.mark.parametrize(
    "place",
    [
        {"metadata": {"api_base": "URL"}}, {"litellm_params": {"api_base": "URL"}}, {"model_info": {"base_url": "URL"}},
        {"messages": [{"role": "user", "content": "x", "api_base": "URL"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "url": "URL"}}]},
        {"baseUrl": "URL"}, {"endpoint": "URL"}, {"provider": {"order": ["pe1"]}, "url": "URL"}, {"x": {"extra_body": {"api_base": "URL"}}},
    ],
    ids=str,
)  # fmt: skip
async def test_a_name_hidden_deeper_is_data_and_opens_no_connection(place: dict[str, object]) -> None:
    """LiteLLM #24952 (case 26)."""
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as elsewhere, running_router(catalog(upstream.base_url)) as house:
        body = json.loads(json.dumps(place).replace("URL", elsewhere.base_url))
        async with house.chat(body) as answer:
            assert answer.status == 200, await answer.text()
    assert len(upstream.calls) == 1 and elsewhere.connections == 0


@pytest.mark.parametrize("where", ["headers", "query"])
async def test_headers_and_query_name_no_host_either(where: str) -> None:
    """LiteLLM #24952 (case 26)."""
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as elsewhere, running_router(catalog(upstream.base_url)) as house:
        named = dict.fromkeys(("api_base", "base_url", "x-api-base", "x-base-url", "x-forwarded-host"), elsewhere.base_url)
        url = f"{house.base_url}/chat/completions"
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        sent = {**house.headers(), **(named if where == "headers" else {})}
        async with house.http.post(url, json=body, headers=sent, params=named if where == "query" else {}) as answer:
            assert answer.status in (200, 400)
    assert elsewhere.connections == 0 and len(upstream.calls) == (answer.status == 200)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_provider_that_redirects_is_not_followed_with_the_key(status: int) -> None:
    """LiteLLM #24952 (case 26): nor does an answer say where the key goes."""
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as elsewhere, ScriptedUpstream() as other:
        upstream.script(then=(Status(status), Headers((("location", elsewhere.base_url + "/chat/completions"),)), Whole(b"")))
        other.script(then=completion("pong"))
        async with running_router(catalog(upstream.base_url, other.base_url)) as house, house.chat() as answer:
            text = await answer.text()
    assert (answer.status, answer.headers["x-n4n-endpoint"]) == (200, "e2")
    assert elsewhere.connections == 0 and PROVIDER_SECRET not in text
