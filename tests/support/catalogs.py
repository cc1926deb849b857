"""Catalog documents for tests: a small one, one that uses every field, and a strategy that draws any."""

from __future__ import annotations

import copy

from hypothesis import strategies as st

from n4n.core.document import BALANCE_APIS, BREAKER_PRESETS, DIALECTS, FEATURES, QUIRKS, RETRY_ON, SCORES, STRATEGIES

Raw = dict[str, dict[str, dict[str, object]]]

SMALL: Raw = {
    "providers": {"acme": {"dialect": "openai", "base_url": "https://api.acme.example/v1"}},
    "accounts": {"acme-main": {"provider": "acme", "credential": "env:ACME_API_KEY"}},
    "models": {"small": {}},
    "endpoints": {"acme-small": {"model": "small", "account": "acme-main"}},
    "tiers": {},
}

FULL: Raw = {
    "providers": {
        "acme": {
            "dialect": "openai",
            "base_url": "https://{location}.acme.example/v1/",
            "vars": {"location": "eu"},
            "headers": {"x-team": "n4n"},
            "quirks": ["max_tokens", "top_k"],
            "probe_budget_usd_per_day": 0.25,
        },
        "house": {"dialect": "anthropic", "base_url": "http://127.0.0.1:9000", "allow_private": True},
    },
    "accounts": {
        "acme-main": {
            "provider": "acme",
            "credential": "env:ACME_API_KEY",
            "limits": {"scope": "per_model", "rpm": 500, "tpm": "200k", "concurrency": 200, "streams": 100, "burst": 20},
            "daily_token_budget": 50_000_000,
            "balance": {"below_usd": 5, "api": "openrouter"},
        },
        "acme-second": {"provider": "acme", "credential": "file:/run/secrets/acme"},
        "house": {"provider": "house"},
    },
    "models": {
        "large": {
            "context_window": "128k",
            "max_output_tokens": 16384,
            "capabilities": {"reasoning": 0.7, "coding": 1, "multilingual": 0, "tools": True, "vision": False},
            "aliases": ["acme/large", "large-latest"],
            "retry": {
                "retry_on": ["timeout", "5xx", 429],
                "max_retries": 3,
                "backoff_ms": 100,
                "by_class": {"timeout": {"max_retries": 1}, "429": {"backoff_ms": 900}, "rate_limited": {"max_retries": 0}},
            },
            "circuit_breaker": {
                "preset": "patient",
                "failure_threshold": 4,
                "window_sec": 10,
                "recovery_timeout_sec": 15.5,
                "consecutive": False,
            },
            "health": {
                "half_life_sec": 300,
                "neutral": 0.9,
                "floor": 0.1,
                "live_weight": 0.1,
                "probe_weight": 0.5,
                "step_sec": 5,
                "step_successes": 4,
            },
            "stream_guard": {"chunks": 2, "max_hold_ms": 50, "min_tokens_per_s": 12.5},
            "timeouts": {"connect_ms": 1000, "first_token_ms": 4000, "idle_ms": 20000, "total_ms": 300000},
            "probe": {
                "interval_sec": 20,
                "max_tokens": 16,
                "timeout_ms": 2000,
                "param": "max_tokens",
                "prompt": "hi",
                "effort": "low",
                "stream": True,
                "enabled": True,
                "checks_interval_sec": 3600,
                "checks_max_tokens": 256,
            },
            "substitutes": ["small"],
            "unsupported_params": "reject",
            "strategy": "cost",
        },
        "small": {"retry": {"retry_on": []}},
    },
    "endpoints": {
        "acme-large": {
            "model": "large",
            "accounts": ["acme-main", "acme-second"],
            "upstream_model": "large-2026",
            "region": "eu-west-1",
            "weight": 5,
            "price": {
                "input_per_1m": 2.50,
                "output_per_1m": "10.00",
                "cached_input_per_1m": 1.25,
                "cache_write_per_1m": 3.75,
                "cache_write_1h_per_1m": 6,
                "tiers": [{"above_input_tokens": "400k", "input_per_1m": 9}, {"above_input_tokens": "200k", "input_per_1m": 5}],
            },
            "supports": ["tools", "seed"],
            "body": {"service_tier": "default", "nested": {"a": [1, 1.5, None, True]}},
            "context_window": 64000,
            "max_output_tokens": 32000,
            "quantization": "fp8",
            "explicit_system_prompt": True,
            "fault": {"abort_percent": 1.5, "abort_status": 503, "delay_percent": 10, "delay_ms": 250},
            "data": {"training": False, "retention": "30d"},
        },
        "house-small": {"model": "small", "account": "house", "supports": [], "weight": 0},
    },
    "tiers": {"best": {"chain": ["large-latest", "tier/spare", "large"]}, "spare": {"chain": ["small"]}},
}


def changed(document: Raw, *path: str, to: object) -> Raw:
    """A copy of a document with one value set, or taken away where `to` is Ellipsis."""
    copied = copy.deepcopy(document)
    inner: dict[str, object] = copied  # type: ignore[assignment]
    for key in path[:-1]:
        step = inner.setdefault(key, {})
        assert isinstance(step, dict)
        inner = step
    if to is ...:
        inner.pop(path[-1])
    else:
        inner[path[-1]] = to
    return copied


def _some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional=fields)


_names = st.text("abz09._-", min_size=1, max_size=4)
_text = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
_count = st.integers(1, 10**12) | st.integers(1, 999).map(lambda n: f"{n}k")
_ms = st.integers(1, 86_400_000)
_money = st.integers(0, 10**9).map(lambda micro: f"{micro / 10**6:.6f}") | st.integers(0, 1000) | st.sampled_from([2.5, 0.000001])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_prices = {f"{kind}_per_1m": _money for kind in ("input", "output", "cached_input", "cache_write", "cache_write_1h")}
_tiers = st.lists(st.integers(1, 10**9), unique=True, max_size=3).flatmap(
    lambda bounds: st.tuples(*(_some(**_prices).map(lambda price, bound=bound: {"above_input_tokens": bound, **price}) for bound in bounds))  # type: ignore[misc]
)
_words = st.lists(st.sampled_from(FEATURES), unique=True, max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> Raw:
    """Any valid document of a few names, with any fields."""
    providers = draw(st.lists(_names.map("p{}".format), unique=True, min_size=1, max_size=2))
    accounts = draw(st.lists(_names, unique=True, min_size=1, max_size=3))
    models = draw(st.lists(_names.map("m{}".format), unique=True, min_size=1, max_size=3))
    endpoints = draw(st.lists(_names.map("e{}".format), unique=True, max_size=4))
    model = _some(
        context_window=st.integers(1, 10**9),
        max_output_tokens=st.integers(1, 10**9),
        capabilities=_some(**dict.fromkeys(SCORES, st.floats(0, 1)), **dict.fromkeys(FEATURES[:4], st.booleans())),
        retry=_some(
            retry_on=st.lists(st.sampled_from(RETRY_ON), unique=True),
            max_retries=st.integers(0, 20),
            backoff_ms=_ms,
            by_class=st.dictionaries(st.sampled_from(RETRY_ON), _some(max_retries=st.integers(0, 20), backoff_ms=_ms), max_size=3),
        ),
        circuit_breaker=_some(
            failure_threshold=st.integers(1, 9),
            window_sec=st.floats(1, 99),
            recovery_timeout_sec=st.integers(1, 99),
            preset=st.sampled_from(BREAKER_PRESETS),
            consecutive=st.booleans(),
        ),
        health=_some(half_life_sec=st.floats(1, 99), neutral=st.floats(0, 1), floor=st.floats(0.1, 1), step_successes=st.integers(1, 9)),
        stream_guard=_some(chunks=st.integers(0, 64), max_hold_ms=st.integers(0, 60_000)),
        timeouts=_some(connect_ms=_ms, first_token_ms=_ms, idle_ms=_ms, total_ms=_ms),
        probe=_some(interval_sec=st.floats(1, 99), param=_text, prompt=_text, stream=st.booleans(), checks_max_tokens=st.integers(1, 99)),
        unsupported_params=st.sampled_from(["drop", "reject", "route_away"]),
        strategy=st.sampled_from(STRATEGIES),
    )
    endpoint = _some(
        upstream_model=_text,
        region=st.sampled_from(["eu", "us-east-1"]),
        weight=st.floats(0, 10**6),
        price=_some(**_prices, tiers=_tiers.map(list)),
        supports=_words,
        body=st.dictionaries(_text, _json, max_size=3),
        context_window=st.integers(1, 10**9),
        max_output_tokens=st.integers(1, 10**9),
        quantization=_text,
        explicit_system_prompt=st.booleans(),
        fault=_some(abort_percent=st.floats(0, 100), delay_ms=_ms),
        data=_some(training=st.booleans(), retention=st.integers(0, 999).map("{}d".format)),
    )
    account = _some(
        credential=st.sampled_from(["env:A_KEY", "file:/run/k", "stored"]),
        limits=_some(rpm=_count, tpm=_count),
        daily_token_budget=_count,
        balance=_some(below_usd=_money, api=st.sampled_from(BALANCE_APIS)),
    )
    provider = _some(
        allow_private=st.booleans(),
        headers=st.dictionaries(st.sampled_from(["x-a", "x-b"]), st.text("ab ", min_size=1)),
        quirks=st.lists(st.sampled_from(QUIRKS), unique=True),
        probe_budget_usd_per_day=_money,
    )
    return {
        "providers": {
            name: {"dialect": draw(st.sampled_from(DIALECTS)), "base_url": "https://api.acme.example/v1", **draw(provider)}
            for name in providers
        },
        "accounts": {name: {"provider": draw(st.sampled_from(providers)), **draw(account)} for name in accounts},
        "models": {name: {"aliases": [f"vendor/{name}"] * draw(st.integers(0, 1)), **draw(model)} for name in models},
        "endpoints": {
            name: {"model": draw(st.sampled_from(models)), "account": draw(st.sampled_from(accounts)), **draw(endpoint)}
            for name in endpoints
        },
        "tiers": {"t": {"chain": draw(st.lists(st.sampled_from(models), unique=True, min_size=1))}} if draw(st.booleans()) else {},
    }
