"""Of a client's headers a provider gets what the gateway means to send, and nothing else."""

from __future__ import annotations

import json

import pytest

from tests.support.answers import echo_headers, error
from tests.support.router import KEY, PROVIDER_SECRET, catalog, running_router
from tests.support.upstream import ScriptedUpstream

MINE = {
    "authorization": f"Bearer {KEY}", "x-api-key": KEY, "api-key": "canary", "x-goog-api-key": "canary", "cookie": "canary=1",
    "proxy-authorization": "Basic canary", "x-n4n-routing": "sort=cost", "x-n4n-priority": "interactive", "x-n4n-timeout-ms": "5000",
    "x-routing-directive": "prefer:e1", "x-forwarded-for": "203.0.113.9", "x-forwarded-host": "canary.example", "forwarded": "for=canary",
    "x-real-ip": "203.0.113.9", "referer": "http://canary.example", "origin": "http://canary.example", "user-agent": "canary/1",
    "openai-organization": "canary", "openai-project": "canary", "anthropic-version": "canary", "te": "trailers", "x-custom": "canary",
    "idempotency-key": "canary", "x-request-id": "label-1", "content-language": "canary",
}  # fmt: skip
ALLOWED = {"host", "content-type", "content-length", "accept", "accept-encoding", "authorization", "x-request-id"}


@pytest.mark.parametrize("fails_first", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_header_of_the_client_goes_upstream_but_its_label(stream: bool, fails_first: bool) -> None:
    """LiteLLM #32202 (case 25): a route passed the client's Authorization, the gateway's own key, to the provider."""
    async with ScriptedUpstream() as upstream:
        upstream.script(*([error(500)] if fails_first else []), then=echo_headers())
        async with running_router(catalog(upstream.base_url, upstream.base_url)) as house:
            body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x"}]}
            async with house.http.post(f"{house.base_url}/chat/completions", json=body, headers=MINE) as answer:
                assert answer.status == 200, await answer.text()
    assert len(upstream.calls) == 1 + fails_first
    for call in upstream.calls:
        told = {name.lower(): value for name, value in call.headers}
        assert told.keys() <= ALLOWED and len(told) == len(call.headers)
        assert (told["authorization"], told["x-request-id"]) == (f"Bearer {PROVIDER_SECRET}", "label-1")
        assert KEY not in json.dumps(call.headers) + call.body.decode() and "canary=1" not in json.dumps(call.headers)


async def test_the_other_routes_call_no_provider_at_all() -> None:
    """LiteLLM #32202 (case 25): every route is held to the same table."""
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        routes = ("GET models", "GET models/m", "POST route:explain", "POST proxy", "GET chat/completions")
        for method, path in map(str.split, routes):
            async with house.http.request(method, f"{house.base_url}/{path}", json={"model": "m"}, headers=MINE) as answer:
                assert KEY not in await answer.text()
    assert upstream.calls == []
