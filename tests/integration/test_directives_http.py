"""Every directive over HTTP: it filters, binds fallbacks and retries, combines, and is 400 where it cannot be kept or read."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from n4n.core.access import AccessSnapshot, Key
from tests.support.answers import completion, error, partial, sse, usage
from tests.support.call import Call
from tests.support.router import SECRET, RunningRouter, running_router
from tests.support.script import Answer, Sleep
from tests.support.upstream import ScriptedUpstream

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
ENDPOINTS: Mapping[str, Mapping[str, object]] = {
    "e1": {"model": "m", "region": "us", "price": {"input_per_1m": 1, "output_per_1m": 2}, "context_window": 8_000, "quantization": "int4",
           "data": {"training": True, "retention": "30d"}, "supports": ["tools"]},
    "e2": {"model": "m", "region": "eu", "price": {"input_per_1m": 2, "output_per_1m": 4}, "context_window": 128_000, "quantization": "fp8",
           "data": {"training": False, "retention": "30d"}, "supports": ["tools", "vision", "json_schema", "seed"]},
    "e3": {"model": "m", "region": "eu-west-1", "price": {"input_per_1m": 3, "output_per_1m": 6}, "quantization": "FP16",
           "data": {"training": False, "retention": "0d"}, "supports": ["tools", "vision"]},
    "e4": {"model": "m", "region": "europa", "context_window": 500_000},  # tells nothing of itself: no price, no policy, no features
    "n1": {"model": "n", "region": "us", "price": {"input_per_1m": 1, "output_per_1m": 1}},
    "o1": {"model": "o", "region": "us", "price": {"input_per_1m": 1, "output_per_1m": 1}},
}  # fmt: skip
ALL = ("e1", "e2", "e3", "e4")


def document(upstream: ScriptedUpstream) -> dict[str, object]:
    """Model m with four endpoints tried in the order of their cost, a substitute, and another model."""
    shared = {"strategy": "cost", "retry": {"max_retries": 6, "backoff_ms": 1}, "circuit_breaker": {"failure_threshold": 1000}}
    capabilities = {"tools": True, "vision": True, "json_schema": True, "reasoning": 0.7, "coding": 0.5}
    root = f"http://127.0.0.1:{upstream.port}"
    return {
        "providers": {f"p{name}": {"dialect": "openai", "base_url": f"{root}/{name}", "allow_private": True} for name in ENDPOINTS},
        "accounts": {f"a{name}": {"provider": f"p{name}", "credential": "env:CANARY"} for name in ENDPOINTS},
        "models": {
            "m": {**shared, "context_window": 1_000_000, "capabilities": capabilities, "aliases": ["alias/m"], "substitutes": ["n"]},
            "n": shared,
            "o": shared,
        },
        "endpoints": {name: {"account": f"a{name}", "upstream_model": "x", **told} for name, told in ENDPOINTS.items()},
        "tiers": {"both": {"chain": ["o", "m"]}},
    }


@dataclass
class House:
    """A router over the catalog above, and what its endpoints were asked."""

    router: RunningRouter
    upstream: ScriptedUpstream
    failing: set[str]

    @property
    def called(self) -> list[str]:
        """The endpoints in order of the calls."""
        return [call.path.split("/")[1] for call in self.upstream.calls]

    def key(self, **fields: object) -> None:
        """Gives the caller's key these fields."""
        only = Key("testtesttest", "acme", hashlib.sha256(SECRET.encode()).digest(), **fields)  # type: ignore[arg-type]
        self.router.state.access = AccessSnapshot(2, "a2", {"testtesttest": only})

    async def ask(
        self, routing: str = "", query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, **body: object
    ) -> tuple[int, dict]:
        """A chat request: status and body."""
        asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], **body}
        sent = {**self.router.headers(), **({"x-n4n-routing": routing} if routing else {}), **(headers or {})}
        async with self.router.http.post(
            f"{self.router.base_url}/chat/completions", json=asked, headers=sent, params=query or {}
        ) as answer:
            return answer.status, json.loads(await answer.text())

    async def who(self, *args: object, **kwargs: object) -> str:
        """The endpoint that answered."""
        status, body = await self.ask(*args, **kwargs)  # type: ignore[arg-type]
        assert status == 200, body
        return str(body["n4n"]["endpoint"])

    async def explained(self, routing: str = "", **body: object) -> tuple[list[str], dict[str, str]]:
        """The dry run: who is kept, in order, and why each of the others is not."""
        headers = self.router.headers(x_n4n_routing=routing) if routing else self.router.headers()
        async with self.router.http.post(f"{self.router.base_url}/route:explain", json={"model": "m", **body}, headers=headers) as answer:
            rows = (await answer.json())["candidates"]
        return [row["endpoint"] for row in rows if row["kept"]], {row["endpoint"]: row["reason"] for row in rows if not row["kept"]}


@asynccontextmanager
async def house(answer: Mapping[str, Answer] | None = None) -> AsyncIterator[House]:
    """The router above; endpoints in `failing` answer 500, the others as `answer` says, or well."""
    failing: set[str] = set()

    def reply(call: Call) -> Answer:
        name = call.path.split("/")[1]
        if name in failing:
            return error(500)
        if answer and name in answer:
            return answer[name]
        return sse("pong") if call.json.get("stream") else completion("pong")

    async with ScriptedUpstream() as upstream:
        upstream.script(then=reply)
        async with running_router(document(upstream)) as running:
            yield House(running, upstream, failing)


# Each hard directive, and the endpoints of m that satisfy it, in the order they are tried.
HARD: Mapping[str, Sequence[str]] = {
    "region=eu": ("e2", "e3"),
    "region=EU-West-1": ("e3",),
    "region=us|europa": ("e1", "e4"),
    "only=provider:pe2": ("e2",),
    "only=endpoint:e3|endpoint:e1": ("e1", "e3"),
    "only=account:ae4": ("e4",),
    "only=region:eu": ("e2", "e3"),
    "only=model:m": ALL,
    "only=model:alias/m": ALL,
    "exclude=provider:pe1": ("e2", "e3", "e4"),
    "exclude=endpoint:e1|account:ae2": ("e3", "e4"),
    "exclude=region:eu": ("e1", "e4"),
    "require=e2": ("e2",),
    "require=pe3": ("e3",),
    "max_cost_per_1k=0.004": ("e1", "e2"),
    "max_input_cost_per_1k=0.001": ("e1",),
    "max_output_cost_per_1k=0.00599999": ("e1", "e2"),
    "min_context=128k": ("e2", "e3", "e4"),
    "min_context=200000": ("e3", "e4"),
    "capability=vision": ("e2", "e3", "e4"),
    "capability=json_schema|tools": ALL,
    "capability=json_schema": ("e2", "e4"),
    "min_reasoning=0.7": ALL,
    "min_coding=0.5": ALL,
    "data=no_training": ("e2", "e3"),
    "data=zero_retention": ("e3",),
    "data=no_training|zero_retention": ("e2", "e3"),
}
ORDER: Mapping[str, Sequence[str]] = {  # and the soft ones
    "prefer=e3": ("e3", "e1", "e2", "e4"),
    "prefer=pe4,prefer=e2": ("e4", "e2", "e1", "e3"),
    "sort=cost": ALL,
    "max_ttft_ms=1": ALL,
    "min_tokens_per_s=1000": ALL,
    "prefer=e3,region=eu": ("e3", "e2"),
}


def canonical(text: str) -> str:
    """How a directive is told."""
    return {"region=EU-West-1": "region=eu-west-1", "min_context=128k": "min_context=128000"}.get(text, text)


@pytest.mark.parametrize(("text", "allowed"), [*HARD.items(), *ORDER.items()])
async def test_a_directive_filters_and_binds_every_fallback_and_retry(text: str, allowed: Sequence[str]) -> None:
    async with house() as here:
        kept, out = await here.explained(text)
        assert kept == list(allowed)
        assert set(out) == set(ALL) - set(allowed) and set(out.values()) <= {canonical(part) for part in text.split(",")}
        assert await here.who(text) == allowed[0]

        here.failing |= set(ALL)
        before = len(here.called)
        status, body = await here.ask(text)

        assert status == 502 and set(here.called[before:]) == set(allowed), "every one allowed is tried, and nobody else"
        assert len(here.called) - before == 7, "and again, up to the cap"
        assert here.called[before:][: len(allowed)] == list(allowed)
        assert {one["endpoint"] for one in body["error"]["n4n"]["attempts"]} == set(allowed)


@pytest.mark.parametrize("text", ["region=eu", "require=e2", "max_cost_per_1k=0.004", "data=zero_retention", "prefer=e3"])
async def test_a_directive_means_the_same_in_header_query_and_key(text: str) -> None:
    first = {**HARD, **ORDER}[text][0]
    async with house() as here:
        assert await here.who(text) == first
        assert await here.who(query={"x-n4n-routing": text}) == first
        assert await here.who("sort=cost", query={"x-n4n-routing": text}) == "e1", "the header wins"
        here.key(directives=(text,))
        assert await here.who() == first


async def test_the_simple_header_prefers_and_requires() -> None:
    async with house() as here:
        assert await here.who(headers={"x-routing-directive": "prefer:e3"}) == "e3"
        assert await here.who(headers={"x-routing-directive": "require:pe2"}) == "e2"
        assert await here.who(query={"x-routing-directive": "require:pe2"}) == "e2"
        here.failing.add("e3")
        assert await here.who(headers={"x-routing-directive": "prefer:e3"}) == "e1"
        status, _ = await here.ask(headers={"x-routing-directive": "require:e3"})
        assert status == 502 and here.called[-7:] == ["e3"] * 7


async def test_two_directives_both_bind_and_where_nobody_is_left_both_are_counted() -> None:
    async with house() as here:
        for (one, first), (two, second) in itertools.combinations(HARD.items(), 2):
            allowed = [name for name in first if name in second]
            before = len(here.called)
            status, body = await here.ask(f"{one},{two}")
            if allowed:
                assert (status, here.called[before:]) == (200, allowed[:1]), (one, two)
                continue
            told = body["error"]
            assert (status, told["code"], len(here.called)) == (400, "no_eligible_endpoint", before), (one, two)
            counts = {one: 4 - len(first), two: len(first)}
            said = {canonical(text): count for text, count in counts.items() if count}
            assert (told["n4n"]["candidates"], told["n4n"]["eliminated"]) == (4, said)
            assert all(f"{text} removed {count}" in told["message"] for text, count in said.items())


async def test_a_request_narrows_what_its_key_says_and_never_widens_it() -> None:
    async with house() as here:
        here.key(directives=("region=eu", "fallback=off", "max_attempts=2", "consistency=strict"))
        assert await here.who("region=eu-west-1") == "e3"
        for wider in ("region=us", "require=e1", "only=region:us"):
            status, body = await here.ask(wider)
            assert (status, body["error"]["code"]) == (400, "no_eligible_endpoint")
            assert body["error"]["n4n"]["eliminated"] == {"region=eu": 2, wider: 2}
        assert await here.who("prefer=e1,sort=health") in ("e2", "e3")
        here.failing |= set(ALL)
        before = len(here.called)
        status, _ = await here.ask("fallback=on,max_attempts=9,consistency=available", models=["n"])
        assert status == 502 and here.called[before:] == ["e2", "e2"]


MALFORMED = (
    "regoin=eu", "region", "region=", "region=e u", "Region=eu", "region==eu", "only=pe1", "only=provider", "exclude=planet:earth",
    "require=", "prefer=a b", "max_cost_per_1k=cheap", "max_cost_per_1k=1e-3", "max_cost_per_1k=-1", "min_context=big", "min_context=0",
    "capability=telepathy", "min_reasoning=2", "min_coding=high", "data=none", "max_ttft_ms=fast", "max_ttft_ms=0", "min_tokens_per_s=0",
    "min_tokens_per_s=x", "sort=best", "fallback=maybe", "max_attempts=0", "max_attempts=1.5", "consistency=loose", "region=eu;sort=cost",
    "sort=cost,sort=health", "require=nobody", "prefer=nobody", "only=provider:nobody", "exclude=account:nobody", "region=eu,,nope=1",
)  # fmt: skip


async def test_what_cannot_be_read_is_refused_wherever_it_stands_and_nobody_is_called() -> None:
    async with house() as here:
        for text in MALFORMED:
            for asked in (here.ask(text), here.ask(query={"x-n4n-routing": text}), here.ask(f"region=eu,{text}")):
                status, body = await asked
                assert (status, body["error"]["code"], body["error"]["type"]) == (400, "invalid_directive", "invalid_request_error"), text
                assert body["error"]["param"] == "x-n4n-routing"
        for text in ("e3", "prefer", "prefer:", "avoid:e1", "require:nobody", "prefer=e3"):
            status, body = await here.ask(headers={"x-routing-directive": text})
            assert (status, body["error"]["code"]) == (400, "invalid_directive"), text
        assert here.called == []
        assert await here.who(headers={"x-n4n-routing": ""}) == "e1", "an empty header means none"


UNSATISFIABLE: Mapping[str, Mapping[str, int]] = {
    "region=ap": {"region=ap": 4},
    "max_cost_per_1k=0.0000001": {"max_cost_per_1k=0.0000001": 4},
    "min_context=2m": {},
    "min_context=2000k": {"min_context=2000000": 4},
    "min_multilingual=0.1": {"min_multilingual=0.1": 4},
    "min_reasoning=0.71": {"min_reasoning=0.71": 4},
    "region=eu,data=zero_retention,max_cost_per_1k=0.003": {"region=eu": 2, "data=zero_retention": 1, "max_cost_per_1k=0.003": 1},
    "only=model:n": {"only=model:n": 4},
}


@pytest.mark.parametrize(("text", "counts"), UNSATISFIABLE.items())
async def test_what_nobody_satisfies_says_what_removed_whom(text: str, counts: Mapping[str, int]) -> None:
    async with house() as here:
        status, body = await here.ask(text)
        assert status == 400 and here.called == []
        if counts:
            assert (body["error"]["code"], body["error"]["n4n"]["eliminated"]) == ("no_eligible_endpoint", counts)
            kept, out = await here.explained(text)
            assert kept == [] and {reason: list(out.values()).count(reason) for reason in out.values()} == counts


# How far to go.


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("fallback=off", ["e1"] * 7),
        ("fallback=off,max_attempts=1", ["e1"]),
        ("max_attempts=1", ["e1"]),
        ("max_attempts=3", ["e1", "e2", "e3"]),
        ("max_attempts=99", ["e1", "e2", "e3", "e4"]),
    ],
)
async def test_how_far_to_go_is_kept_to(text: str, called: Sequence[str]) -> None:
    async with house() as here:
        here.failing |= set(ALL)
        status, _ = await here.ask(text)
        assert status == 502 and here.called[: len(called)] == list(called) and len(here.called) <= 7
        assert len(here.called) == len(called) or text == "max_attempts=99"


# The body: OpenRouter's `provider` object, and a list of models.

BODY: Sequence[tuple[Mapping[str, object], Sequence[str]]] = (
    ({"order": ["pe3", "pe2"]}, ("e3", "e2", "e1", "e4")),
    ({"order": ["pe3", "pe2"], "allow_fallbacks": False}, ("e3", "e2")),
    ({"only": ["pe2", "pe4"]}, ("e2", "e4")),
    ({"ignore": ["pe1"]}, ("e2", "e3", "e4")),
    ({"only": ["pe1", "pe2"], "ignore": ["pe1"]}, ("e2",)),
    ({"data_collection": "deny"}, ("e2", "e3")),
    ({"data_collection": "allow"}, ALL),
    ({"sort": "price"}, ALL),
    ({"max_price": {"prompt": 2}}, ("e1", "e2")),
    ({"max_price": {"prompt": 3, "completion": 4}}, ("e1", "e2")),
    ({"quantizations": ["fp8", "fp16"]}, ("e2", "e3")),
    ({"quantizations": ["unknown"]}, ("e4",)),
    ({}, ALL),
)


@pytest.mark.parametrize(("preferences", "allowed"), BODY)
async def test_the_provider_object_of_a_body_binds_as_directives_do(preferences: Mapping[str, object], allowed: Sequence[str]) -> None:
    async with house() as here:
        kept, _ = await here.explained(provider=preferences)
        assert kept == list(allowed)
        here.failing |= set(ALL)
        status, _ = await here.ask(provider=preferences)
        assert status == 502 and set(here.called) == set(allowed)
        assert all("provider" not in call.json for call in here.upstream.calls)


async def test_a_provider_object_without_fallbacks_stays_with_the_first() -> None:
    async with house() as here:
        here.failing.add("e1")
        status, _ = await here.ask(provider={"allow_fallbacks": False})
        assert status == 502 and set(here.called) == {"e1"}


async def test_a_provider_object_that_cannot_be_read_is_refused() -> None:
    wrong: Sequence[object] = (
        [],
        "pe1",
        {"olny": ["pe1"]},
        {"only": "pe1"},
        {"only": ["nobody"]},
        {"sort": "best"},
        {"max_price": {"prompt": -1}},
        {"data_collection": "maybe"},
        {"quantizations": []},
        {"allow_fallbacks": "no"},
        {"require_parameters": 1},
    )
    async with house() as here:
        for preferences in wrong:
            status, body = await here.ask(provider=preferences)
            assert status == 400 and body["error"]["param"] == "provider", preferences
        assert here.called == []


async def test_models_of_the_body_follow_in_their_order_and_strict_keeps_to_the_one_asked() -> None:
    async with house() as here:
        here.failing |= set(ALL)
        assert await here.who(models=["o", "n"]) == "o1"
        status, body = await here.ask("consistency=strict", models=["o", "n"])
        assert status == 502 and {one["endpoint"] for one in body["error"]["n4n"]["attempts"]} == set(ALL)
        status, body = await here.ask(models=["nope"])
        assert (status, body["error"]["code"]) == (404, "model_not_found")
        assert all("models" not in call.json for call in here.upstream.calls)


async def test_a_substitute_serves_only_where_the_client_allows_it() -> None:
    async with house() as here:
        here.failing |= set(ALL)
        status, _ = await here.ask()
        assert status == 502 and "n1" not in here.called
        assert await here.who("consistency=available") == "n1"


@pytest.mark.parametrize(
    ("name", "tried"),
    [("m", ALL), ("alias/m", ALL), ("tier/both", ("o1", *ALL)), ("pe2/m", ("e2",)), ("pe2/alias/m", ("e2",))],
)
async def test_every_name_of_a_model_leads_to_its_endpoints(name: str, tried: Sequence[str]) -> None:
    async with house() as here:
        here.failing |= set(ENDPOINTS)
        status, _ = await here.ask(model=name)
        assert status == 502 and here.called[: len(tried)] == list(tried) and set(here.called) == set(tried)


@pytest.mark.parametrize("name", ["M", "tier/none", "pe1/n", "nobody/m", "m/", "alias", "tier/"])
async def test_any_other_name_is_404_and_names_the_nearest(name: str) -> None:
    async with house() as here:
        status, body = await here.ask(model=name)
        assert (status, body["error"]["code"], body["error"]["param"]) == (404, "model_not_found", "model")
        assert here.called == []


# Parameters that an endpoint does not have.


@pytest.mark.parametrize(
    ("body", "who", "kept"),
    [
        ({"seed": 1}, "e1", False),
        ({"seed": 1, "unsupported_params": "drop"}, "e1", False),
        ({"seed": 1, "unsupported_params": "route_away"}, "e2", True),
        ({"seed": 1, "unsupported_params": "reject"}, "e2", True),
        ({"seed": 1, "provider": {"require_parameters": True}}, "e2", True),
        ({"response_format": SCHEMA, "unsupported_params": "route_away"}, "e2", True),
    ],
)
async def test_a_parameter_is_dropped_and_named_or_leads_elsewhere(body: Mapping[str, object], who: str, kept: bool) -> None:
    name = next(iter(body))
    async with house() as here:
        status, answer = await here.ask(**body)
        assert (status, answer["n4n"]["endpoint"]) == (200, who)
        (call,) = here.upstream.calls
        assert (name in call.json) is kept and "unsupported_params" not in call.json
        assert [warning.startswith(f"{name} was left out") for warning in answer["n4n"]["warnings"]] == [True] * (not kept)


async def test_a_parameter_that_nobody_has_is_refused_where_it_may_not_be_dropped() -> None:
    async with house() as here:
        for policy in ("reject", "route_away"):
            status, body = await here.ask("exclude=endpoint:e2|endpoint:e4", seed=1, unsupported_params=policy)
            assert (status, body["error"]["n4n"]["eliminated"]) == (400, {"exclude=endpoint:e2|endpoint:e4": 2, "supports=seed": 2})
        status, body = await here.ask(seed=1, unsupported_params="ignore")
        assert (status, body["error"]["param"]) == (400, "unsupported_params") and here.called == []


# What was measured.


async def test_an_endpoint_measured_slow_to_begin_goes_last_and_the_log_says_what_was_asked() -> None:
    slow = (*partial()[:2], Sleep(0.15), *sse("a", "b")[2:])
    async with house({"e1": slow}) as here:
        assert await here.who("max_ttft_ms=60") == "e1", "nothing was measured yet"
        async with here.router.chat(stream=True) as answer:
            await answer.text()
        assert answer.headers["x-n4n-endpoint"] == "e1"
        assert await here.who("max_ttft_ms=60") == "e2"
        assert await here.who("max_ttft_ms=5000") == "e1"
        assert await here.who("max_ttft_ms=60,only=endpoint:e1") == "e1", "soft: nobody is removed"
        lines = await here.router.logged(5)
        assert lines[2]["routing"]["directives_applied"] == ["max_ttft_ms=60"]  # type: ignore[index]
        assert (await here.explained("max_ttft_ms=60"))[0] == ["e2", "e3", "e4", "e1"]


async def test_an_endpoint_measured_slow_to_speak_goes_last() -> None:
    slow = sse(*"abcde", gap=0.04, usage=usage(10, 20))  # 20 tokens in 0.16 s
    async with house({"e1": slow}) as here:
        async with here.router.chat(stream=True) as answer:
            await answer.text()
        assert await here.who("min_tokens_per_s=1000") == "e2"
        assert await here.who("min_tokens_per_s=5") == "e1"
