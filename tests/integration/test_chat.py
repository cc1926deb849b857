"""What an application gets from POST /v1/chat/completions: body, headers, stream, log line, and what the provider was sent."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from data_plane.bodies import BodyBounds
from tests.support.answers import completion, sse, tool_call, usage
from tests.support.router import KEY, PROVIDER_SECRET, catalog, running_router
from tests.support.upstream import ScriptedUpstream


def payloads(text: str) -> list[dict]:
    """The JSON of every data event but [DONE]."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


async def test_an_answer_says_who_answered_and_what_it_cost():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(completion("pong", usage=usage(1000, 100)))
        async with house.chat() as answer:
            body = json.loads(await answer.text(), parse_float=Decimal)
        (line,) = await house.logged()
    assert answer.status == 200
    assert body["choices"][0]["message"]["content"] == "pong"
    cost = Decimal(1000) * Decimal("2.5") / 1_000_000 + Decimal(100) * 10 / 1_000_000
    assert Decimal(answer.headers["x-n4n-usage-cost-usd"]) == cost == body["n4n"]["cost_usd"]
    expected = {"provider": "pe1", "endpoint": "e1", "model": "m", "fallback-attempts": "0", "catalog-version": "1", "cache-status": "miss"}
    assert {name: answer.headers[f"x-n4n-{name}"] for name in expected} == expected
    assert line["routing"]["selected"] == "e1"
    assert line["usage"]["total_tokens"] == 1100
    assert [attempt["outcome"] for attempt in line["routing"]["attempts"]] == ["ok"]


async def test_the_provider_gets_its_own_key_its_own_model_name_and_nothing_of_the_client():
    mine = {"cookie": "a=b", "x-api-key": KEY, "x-n4n-routing": "sort=cost", "user-agent": "spy/1", "x-request-id": "label-7"}
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.chat(headers=mine, seed=1, unknown_field={"big": 12345678901234567890123}) as answer:
            assert answer.status == 200
    (call,) = upstream.calls
    told = {name.lower(): value for name, value in call.headers}
    assert told["authorization"] == f"Bearer {PROVIDER_SECRET}"
    assert told["x-request-id"] == "label-7" == answer.headers["x-request-id"]
    assert not {"cookie", "x-api-key", "x-n4n-routing", "user-agent"} & told.keys()
    assert KEY not in str(call.headers) + call.body.decode()
    assert call.json["model"] == "scripted-model"
    assert call.json["unknown_field"] == {"big": 12345678901234567890123}


async def test_a_stream_is_plain_openai_and_its_last_chunk_bears_the_block():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(sse("Hel", "lo", usage=usage(10, 2)))
        async with house.chat(stream=True) as answer:
            text = await answer.text()
    chunks = payloads(text)
    assert text.endswith("data: [DONE]\n\n")
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert chunks[-1]["n4n"]["usage"]["total_tokens"] == 12
    assert not any(chunk.get("usage") for chunk in chunks), "the client asked for no usage"
    assert upstream.calls[0].json["stream_options"] == {"include_usage": True}


async def test_a_client_that_asked_for_usage_gets_exactly_one_usage_chunk():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(sse("a", usage=usage(10, 2)))
        async with house.chat(stream=True, stream_options={"include_usage": True}) as answer:
            chunks = payloads(await answer.text())
    told = [chunk for chunk in chunks if chunk.get("usage")]
    assert told == [chunks[-1]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == chunks[-1]["n4n"]["usage"]["total_tokens"] == 12


async def test_missing_usage_is_counted_here_and_says_so():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(completion("forty bytes of an answer, more or less!!", usage=None), sse("forty bytes of text", usage=None))
        async with house.chat() as answer:
            block = json.loads(await answer.text())["n4n"]
        async with house.chat(stream=True) as answer:
            streamed = payloads(await answer.text())[-1]["n4n"]
    for told in (block, streamed):
        assert told["usage"]["estimated"] is True
        assert told["usage"]["completion_tokens"] > 0
        assert told["cost_usd"] > 0


async def test_an_unpriced_endpoint_has_no_cost_and_never_zero():
    async with ScriptedUpstream() as upstream:
        document = catalog(upstream.base_url)
        del document["endpoints"]["e1"]["price"]
        async with running_router(document) as house, house.chat() as answer:
            body = json.loads(await answer.text())
    assert "x-n4n-usage-cost-usd" not in answer.headers
    assert body["n4n"]["cost_usd"] is None
    assert body["n4n"]["usage"]["total_tokens"] == 18


async def test_tool_calls_pass_unchanged():
    calls = [tool_call("weather", '{"city":"Zürich 🏔"}'), tool_call("time", "{}", id="call_2")]
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(completion(None, tool_calls=calls))
        async with house.chat(tools=[{"type": "function", "function": {"name": "weather"}}]) as answer:
            message = json.loads(await answer.text())["choices"][0]["message"]
    assert message["tool_calls"] == calls


@pytest.mark.parametrize(
    ("headers", "query", "code", "names"),
    [
        ({"x-n4n-routing": "regoin=eu"}, "", "invalid_directive", "region"),
        ({"x-n4n-routing": "region"}, "", "invalid_directive", "region"),
        ({"x-n4n-routing": "max_cost_per_1k=cheap"}, "", "invalid_directive", "max_cost_per_1k"),
        ({"x-routing-directive": "demand:pe1"}, "", "invalid_directive", "require"),
        ({}, "?x-n4n-routing=nope%3D1", "invalid_directive", "nope"),
        ({"x-n4n-routing": "require=nobody"}, "", "invalid_directive", "nobody"),
        ({"x-n4n-routing": "region=eu"}, "", "no_eligible_endpoint", "region=eu"),
        ({"x-n4n-routing": "max_cost_per_1k=0.0000001"}, "", "no_eligible_endpoint", "max_cost_per_1k"),
        ({"x-n4n-timeout-ms": "soon"}, "", "invalid_request", "x-n4n-timeout-ms"),
        ({"x-n4n-priority": "now"}, "", "invalid_request", "x-n4n-priority"),
    ],
)
async def test_what_a_request_may_not_ask_is_400_before_anybody_is_called(headers, query, code, names):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with house.http.post(
            f"{house.base_url}/chat/completions{query}", json=body, headers={**house.headers(), **headers}
        ) as answer:
            error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (400, code)
    assert names in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert upstream.calls == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"model":"m"}', "messages"),
        (b'{"messages":[{"role":"user","content":"x"}]}', "model"),
        (b'{"model":7,"messages":[{"role":"user","content":"x"}]}', "model"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"api_base":"http://169.254.169.254"}', "api_base"),
        (b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', None),
    ],
)
async def test_a_malformed_body_is_400_and_names_the_field(body, param):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.http.post(f"{house.base_url}/chat/completions", data=body, headers=house.headers()) as answer:
            error = (await answer.json())["error"]
    assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert upstream.calls == []


@pytest.mark.parametrize("presented", [None, "", "Bearer", "Bearer x", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}t", f"Basic {KEY}"])
async def test_every_wrong_key_gets_the_same_401(presented):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        headers = {"x-request-id": "same"} | ({} if presented is None else {"authorization": presented})
        async with house.http.post(f"{house.base_url}/chat/completions", json={}, headers=headers) as answer:
            first = await answer.text()
        async with house.http.get(f"{house.base_url}/models", headers=headers) as other:
            second = await other.text()
    assert answer.status == other.status == 401
    assert first == second
    assert json.loads(first)["error"]["code"] == "invalid_api_key"


async def test_a_body_over_the_bound_is_413():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        house.web._body_bounds = BodyBounds(most=1000, grace_s=5)
        async with house.chat(padding="x" * 2000) as answer:
            error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (413, "request_too_large")
    assert upstream.calls == []


async def test_a_key_may_be_held_to_models_and_directives():
    only = {"models": frozenset({"other"})}
    async with ScriptedUpstream() as upstream:
        async with running_router(catalog(upstream.base_url), key=only) as house, house.chat() as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (403, "model_not_allowed")
        async with running_router(catalog(upstream.base_url), key={"directives": ("region=eu",)}) as house, house.chat() as answer:
            assert (await answer.json())["error"]["n4n"]["eliminated"] == {"region=eu": 1}
        async with running_router(catalog(upstream.base_url), key={"require_directives": ("region",)}) as house:
            async with house.chat() as answer:
                assert answer.status == 400
                assert "region" in (await answer.json())["error"]["message"]
    assert upstream.calls == []


async def test_an_unknown_model_is_404_with_the_nearest_names():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house, house.chat(model="mm") as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "did you mean m?" in error["message"]


async def test_an_endpoint_without_its_credential_is_not_used():
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        async with running_router(catalog(e1.base_url, e2.base_url), unresolved=frozenset({"ae1"})) as house, house.chat() as answer:
            assert answer.headers["x-n4n-endpoint"] == "e2"
        async with running_router(catalog(e1.base_url), unresolved=frozenset({"ae1"})) as house, house.chat() as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["code"], error["n4n"]["eliminated"]) == (503, "no_eligible_endpoint", {"credential": 1})
            assert int(answer.headers["retry-after"]) > 0
    assert e1.calls == []


async def test_a_new_catalog_version_prices_the_next_answer():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.chat() as answer:
            before = Decimal(answer.headers["x-n4n-usage-cost-usd"])
        document = catalog(upstream.base_url)
        document["endpoints"]["e1"]["price"] = {"input_per_1m": 5, "output_per_1m": 20}
        house.use(document, version=2)
        async with house.chat() as answer:
            assert answer.headers["x-n4n-catalog-version"] == "2"
            assert Decimal(answer.headers["x-n4n-usage-cost-usd"]) == 2 * before


async def test_explain_answers_without_calling_anybody():
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2, running_router(catalog(e1.base_url, e2.base_url)) as house:
        headers = house.headers(x_n4n_routing="exclude=endpoint:e1")
        async with house.http.post(f"{house.base_url}/route:explain", json={"model": "m"}, headers=headers) as answer:
            told = await answer.json()
    assert [(row["endpoint"], row["kept"], row["reason"]) for row in told["candidates"]] == [
        ("e2", True, None),
        ("e1", False, "exclude=endpoint:e1"),
    ]
    assert e1.calls == e2.calls == []


async def test_live_ready_and_metrics_need_no_key():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.chat() as answer:
            assert answer.status == 200
        found = {}
        for path in ("live", "ready", "metrics"):
            async with house.http.get(f"http://127.0.0.1:{house.port}/{path}") as answer:
                found[path] = (answer.status, await answer.text())
        assert {status for status, _ in found.values()} == {200}
        assert 'llm_requests_total{model="m",provider="pe1",status="success",tier=""}' in found["metrics"][1]
        house.state.catalog = None
        async with house.http.get(f"http://127.0.0.1:{house.port}/ready") as answer:
            assert answer.status == 503
        async with house.chat() as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "no_catalog")
            assert "retry-after" in answer.headers


@pytest.mark.parametrize("held_to", ["m", "acme/m", "tier/t", "pe1/m"])
async def test_what_a_key_may_call_is_what_it_is_shown(held_to):
    async with ScriptedUpstream() as upstream:
        document = catalog(upstream.base_url)
        document["models"]["m"]["aliases"] = ["acme/m"]
        document["tiers"] = {"t": {"chain": ["m"]}}
        names = ["m", "acme/m", "tier/t", "pe1/m"]
        async with running_router(document, key={"models": frozenset({held_to})}) as house:
            async with house.http.get(f"{house.base_url}/models", headers=house.headers()) as answer:
                listed = {model["id"] for model in (await answer.json())["data"]}
            called, shown = set(), set()
            for name in names:
                async with house.chat(model=name) as answer:
                    called |= {name} if answer.status == 200 else set()
                async with house.http.get(f"{house.base_url}/models/{name}", headers=house.headers()) as answer:
                    shown |= {name} if answer.status == 200 else set()
    assert held_to in called
    assert shown == called
    assert listed == called - ({"pe1/m"} if held_to != "pe1/m" else set())


async def test_no_store_may_stand_in_the_query():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with house.http.post(
            f"{house.base_url}/chat/completions?cache-control=no-store", json=body, headers=house.headers()
        ) as answer:
            assert answer.headers["x-n4n-cache-status"] == "bypass"
