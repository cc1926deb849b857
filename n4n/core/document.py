"""The catalog document: its fields, its cross references and its normal form.

`parse_document` finds every problem at once. The normal form keeps only what was given, with numbers and money in one
spelling, so that equal catalogs are equal values and reading a normal form again changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from n4n.core import schema
from n4n.core.addresses import url_problem
from n4n.core.errors import FailureClass, Problem
from n4n.core.price_fields import PRICE, price_problems
from n4n.core.schema import Field, Problems

KINDS = ("providers", "accounts", "models", "endpoints", "tiers")
DIALECTS = ("openai", "openai_responses", "azure", "anthropic", "gemini", "vertex", "bedrock")
SCORES = ("reasoning", "coding", "multilingual")
FEATURES = (
    "tools", "tool_choice", "forced_tool_choice", "parallel_tools", "vision", "pdf_input", "audio_input", "audio_output",
    "json_schema", "json_object", "reasoning", "prompt_caching", "sampling_params", "assistant_prefill", "seed", "logprobs",
    "logit_bias", "penalties", "stop", "n", "stream_options", "web_search", "text_completions", "embeddings",
)  # fmt: skip
# How providers of one dialect differ: `max_tokens`, `max_completion_tokens`: the only name they know for the limit of output;
# `random_seed`: theirs for `seed`; `top_k`: they take one; `marks`: they know `cache_control` and `reasoning_details`;
# `reasoning_content`: they want it back with the assistant's message.
QUIRKS = ("max_tokens", "max_completion_tokens", "random_seed", "top_k", "marks", "reasoning_content")
STRATEGIES = ("balanced", "health", "latency", "cost", "throughput")
BREAKER_PRESETS = ("quick", "patient")
STATES = ("active", "draining", "disabled")
BALANCE_APIS = ("openrouter", "deepseek", "moonshot")  # whose accounts can be asked what is left on them
RETRY_ON = (*FailureClass, "429", "5xx")
_FORBIDDEN_HEADERS = frozenset(
    ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "host", "content-length", "content-type", "transfer-encoding",
     "connection", "te", "upgrade", "trailer", "proxy-authorization", "proxy-connection", "keep-alive", "x-request-id", "accept-encoding",
     "content-encoding", "expect")
)  # fmt: skip
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_ALIAS = re.compile(r"[A-Za-z0-9._/:@-]+\Z")
_VAR = re.compile(r"[A-Za-z0-9._-]+\Z")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_REGION = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_RETENTION = re.compile(r"[0-9]{1,5}d\Z")
_CREDENTIAL = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:.+|stored)\Z")
_BODY_DEPTH = 64
_BODY_VALUES = 10_000

Table = dict[str, object]
Document = dict[str, dict[str, Table]]


def _matching(pattern: re.Pattern[str], wanted: str) -> schema.Reader:
    def read(value: object, path: str, problems: Problems) -> str | None:
        if isinstance(value, str) and pattern.match(value):
            return value
        problems.append(Problem(path, f"must be {wanted}, not {schema.shown(value)}"))
        return None

    return read


def _checks_interval(value: object, path: str, problems: Problems) -> object:
    """Seconds; 0: never."""
    never = value == 0 and not isinstance(value, bool)
    return 0.0 if never else schema.number(1, 604_800, " of seconds, or 0 for none,")(value, path, problems)


def _credential(value: object, path: str, problems: Problems) -> str | None:
    if isinstance(value, str) and schema.is_plain(value) and _CREDENTIAL.match(value):
        return value
    problems.append(Problem(path, "must be env:NAME, file:PATH or stored; a key itself never stands in the catalog"))
    return None


def _headers(value: object, path: str, problems: Problems) -> dict[str, object] | None:
    found = schema.map_of(schema.text)(value, path, problems)
    if not isinstance(found, dict):
        return None
    bad = [name for name in found if not _HEADER.match(name) or name.lower() in _FORBIDDEN_HEADERS]
    problems.extend(Problem(f"{path}.{name}", "is not a header that a provider entry may set") for name in bad)
    not_latin = [name for name, inner in found.items() if not str(inner).isascii()]
    problems.extend(Problem(f"{path}.{name}", "must be ASCII text") for name in not_latin)
    lower = [name.lower() for name in found]
    twice = [name for index, name in enumerate(found) if name.lower() in lower[:index]]
    problems.extend(Problem(f"{path}.{name}", "stands twice; header names do not tell capitals apart") for name in twice)
    return None if bad or not_latin or twice else found


def _json_object(value: object, path: str, problems: Problems) -> Table | None:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be a map merged into requests, not {schema.kind_of(value)}"))
        return None
    if _larger_than(_BODY_VALUES, value):
        problems.append(Problem(path, f"must not hold more than {_BODY_VALUES} values, aliases written out"))
        return None
    try:
        normal = cast(Table, json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()))
    except (TypeError, ValueError, RecursionError):  # ValueError: NaN, a cycle, half a surrogate pair
        problems.append(Problem(path, "must hold only what JSON can say (no dates, no NaN)"))
        return None
    if _deeper_than(_BODY_DEPTH, normal):
        problems.append(Problem(path, f"must not nest deeper than {_BODY_DEPTH} levels"))
        return None
    return normal


def _larger_than(most: int, value: object) -> bool:
    """Whether a value holds more than so many values, those behind aliases counted each time; looks at no more than that."""
    todo, seen = [value], 0
    while todo:
        inner = todo.pop()
        seen += 1
        if seen > most:
            return True
        if isinstance(inner, Mapping):
            todo.extend(inner.values())
        elif isinstance(inner, list):
            todo.extend(inner)
    return False


def _deeper_than(levels: int, value: object) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deeper_than(levels - 1, item) for item in inner)


def _capabilities(value: object, path: str, problems: Problems) -> Table | None:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be a map of capabilities, not {schema.kind_of(value)}"))
        return None
    before = len(problems)
    fields = {name: Field(schema.flag) for name in FEATURES} | {name: Field(schema.number(0, 1)) for name in SCORES}
    normal = schema.read_table(value, path, problems, fields)
    return normal if len(problems) == before else None


_count = schema.whole(0, 10**12)
_positive = schema.whole(1, 10**12)
_ms = schema.whole(1, 86_400_000, " of milliseconds")
_seconds = schema.number(0.001, 86_400, " of seconds")
_retries = schema.whole(0, 20)
_window = schema.whole(1, 10**9, " of tokens")
_name = _matching(schema.NAME, "a name (letters, digits, dot, underscore, hyphen)")
_BY_CLASS = schema.table({"max_retries": Field(_retries), "backoff_ms": Field(_ms)})


def _by_class(value: object, path: str, problems: Problems) -> object:
    return schema.table({name: Field(_BY_CLASS) for name in RETRY_ON})(value, path, problems)


_LIMITS = schema.table(
    {"scope": Field(schema.choice("per_model", "shared"))}
    | {name: Field(_positive) for name in ("rpm", "tpm", "rpd", "tpd", "concurrency", "streams", "burst")}
)
_part = schema.number(0, 1)
_HEALTH = schema.table(
    {
        "half_life_sec": Field(_seconds),
        "neutral": Field(_part),
        "floor": Field(schema.number(0.001, 1)),
        "live_weight": Field(_part),
        "probe_weight": Field(_part),
        "step_sec": Field(schema.number(0, 86_400, " of seconds")),
        "step_successes": Field(schema.whole(1, 1_000)),
    }
)
FIELDS: dict[str, dict[str, Field]] = {
    "providers": {
        "dialect": Field(schema.choice(*DIALECTS), required=True),
        "base_url": Field(schema.text, required=True),
        "allow_private": Field(schema.flag),
        "headers": Field(_headers),
        "vars": Field(schema.map_of(_matching(_VAR, "letters, digits, dot, underscore or hyphen"))),
        "quirks": Field(schema.listed(schema.choice(*QUIRKS))),
        "probe_budget_usd_per_day": Field(schema.money),
    },
    "accounts": {
        "provider": Field(_name, required=True),
        "credential": Field(_credential),
        "limits": Field(_LIMITS),
        "daily_token_budget": Field(_positive),
        "balance": Field(schema.table({"below_usd": Field(schema.money), "api": Field(schema.choice(*BALANCE_APIS))})),
    },
    "models": {
        "context_window": Field(_window),
        "max_output_tokens": Field(_window),
        "capabilities": Field(_capabilities),
        "aliases": Field(schema.listed(_matching(_ALIAS, "an alias (letters, digits, and . _ - / : @)"))),
        "retry": Field(schema.table({
            "retry_on": Field(schema.listed(schema.choice(*RETRY_ON))),
            "max_retries": Field(_retries),
            "backoff_ms": Field(_ms),
            "by_class": Field(_by_class),
        })),
        "circuit_breaker": Field(schema.table({
            "failure_threshold": Field(schema.whole(1, 10_000)),
            "window_sec": Field(_seconds),
            "recovery_timeout_sec": Field(_seconds),
            "preset": Field(schema.choice(*BREAKER_PRESETS)),
            "consecutive": Field(schema.flag),
        })),
        "health": Field(_HEALTH),
        "stream_guard": Field(schema.table({
            "chunks": Field(schema.whole(0, 64)),
            "max_hold_ms": Field(schema.whole(0, 60_000)),
            "min_tokens_per_s": Field(schema.number(0.01, 100_000)),
        })),
        "timeouts": Field(schema.table({name: Field(_ms) for name in ("connect_ms", "first_token_ms", "idle_ms", "total_ms")})),
        "probe": Field(schema.table({
            "interval_sec": Field(_seconds),
            "max_tokens": Field(schema.whole(1, 100_000)),
            "timeout_ms": Field(_ms),
            "param": Field(schema.text),
            "prompt": Field(schema.text),
            "effort": Field(schema.text),
            "stream": Field(schema.flag),
            "enabled": Field(schema.flag),
            "checks_interval_sec": Field(_checks_interval),
            "checks_max_tokens": Field(schema.whole(1, 100_000)),
        })),
        "substitutes": Field(schema.listed(_name)),
        "unsupported_params": Field(schema.choice("drop", "reject", "route_away")),
        "strategy": Field(schema.choice(*STRATEGIES)),
    },
    "endpoints": {
        "model": Field(_name, required=True),
        "account": Field(_name),
        "accounts": Field(schema.listed(_name, least=1)),
        "upstream_model": Field(schema.text),
        "region": Field(_matching(_REGION, "lower-case letters, digits and hyphens")),
        "weight": Field(schema.number(0, 1_000_000)),
        "price": Field(PRICE),
        "supports": Field(schema.listed(schema.choice(*FEATURES))),
        "body": Field(_json_object),
        "context_window": Field(_window),
        "max_output_tokens": Field(_window),
        "quantization": Field(schema.text),
        "explicit_system_prompt": Field(schema.flag),
        "fault": Field(schema.table({
            "abort_percent": Field(schema.number(0, 100)),
            "abort_status": Field(schema.whole(400, 599)),
            "delay_percent": Field(schema.number(0, 100)),
            "delay_ms": Field(_ms),
        })),
        "data": Field(schema.table({"training": Field(schema.flag), "retention": Field(_matching(_RETENTION, "days such as 30d or 0d"))})),
    },
    "tiers": {"chain": Field(schema.listed(_matching(_ALIAS, "a model's name or tier/NAME"), least=1), required=True)},
}  # fmt: skip


def read_entry(kind: str, name: str, raw: object, problems: Problems) -> Table:
    """The normal form of one entry of a section, by its own fields alone."""
    return schema.read_table(raw, f"{kind}.{name}", problems, FIELDS[kind])


def parse_document(raw: object, read: Callable[[str, str, object, Problems], Table] = read_entry) -> tuple[Document, list[Problem]]:
    """The normal form of a document and everything that is wrong with it; the form is whole only where nothing is wrong.

    `read` makes the normal form of one entry; who has read an entry before may answer what came of it then.
    """
    problems: Problems = []
    document: Document = {kind: {} for kind in KINDS}
    if not isinstance(raw, Mapping):
        return document, [Problem("", f"the catalog must be a map with {', '.join(KINDS)}, not {schema.kind_of(raw)}")]
    for kind in raw:
        if kind not in KINDS:
            problems.append(
                Problem(schema.step(kind), f"unknown section{schema.nearest(schema.step(kind), KINDS)}; known: {', '.join(KINDS)}")
            )
    for kind in KINDS:
        for name, inner in schema.named(raw.get(kind), kind, problems).items():
            document[kind][name] = read(kind, name, inner, problems)
    told = {problem.field for problem in problems}
    problems.extend(problem for problem in _cross_check(document) if not (problem.field in told or _follows_from(told, problem.field)))
    return document, problems


def _follows_from(told: set[str], field: str) -> bool:
    """An endpoint's missing account is no news where its `accounts` could not be read."""
    return field.startswith("endpoints.") and field.endswith(".account") and field + "s" in told


def _cross_check(document: Document) -> Iterator[Problem]:
    yield from _check_providers(document)
    yield from _check_references(document)
    yield from _check_names(document)
    yield from _check_tiers(document)


def _check_providers(document: Document) -> Iterator[Problem]:
    for name, provider in document["providers"].items():
        if not isinstance(provider.get("base_url"), str):
            continue
        known = cast(dict[str, str], provider.get("vars", {}))
        missing = [key for key in _PLACEHOLDER.findall(str(provider["base_url"])) if key not in known]
        for key in missing:
            yield Problem(f"providers.{name}.base_url", f"holds {{{key}}} but vars has no {key}")
        fault = None if missing else url_problem(base_url(provider), allow_private=provider.get("allow_private") is True)
        if fault is not None:
            yield Problem(f"providers.{name}.base_url", fault)


def base_url(provider: Mapping[str, object]) -> str:
    """The provider's URL with its vars filled in, without a trailing slash."""
    known = cast(Mapping[str, str], provider.get("vars", {}))
    return _PLACEHOLDER.sub(lambda match: str(known.get(match[1], match[0])), str(provider["base_url"])).rstrip("/")


def _unknown(path: str, kind: str, name: object, document: Document) -> Iterator[Problem]:
    if isinstance(name, str) and name not in document[kind]:
        yield Problem(path, f"there is no {kind[:-1]} named {name[:100]}{schema.nearest(name, document[kind])}")


def _check_references(document: Document) -> Iterator[Problem]:
    for name, account in document["accounts"].items():
        yield from _unknown(f"accounts.{name}.provider", "providers", account.get("provider"), document)
    for name, model in document["models"].items():
        for index, other in enumerate(cast(list[str], model.get("substitutes", []))):
            yield from _unknown(f"models.{name}.substitutes[{index}]", "models", other, document)
            if other == name:
                yield Problem(f"models.{name}.substitutes[{index}]", "a model cannot stand in for itself")
    for name, endpoint in document["endpoints"].items():
        yield from _unknown(f"endpoints.{name}.model", "models", endpoint.get("model"), document)
        yield from _check_accounts(name, endpoint, document)
        yield from price_problems(f"endpoints.{name}.price", cast(Table, endpoint.get("price", {})))


def _check_accounts(name: str, endpoint: Table, document: Document) -> Iterator[Problem]:
    path = f"endpoints.{name}"
    if "account" in endpoint and "accounts" in endpoint:
        yield Problem(f"{path}.accounts", "give account or accounts, not both")
    if "account" not in endpoint and "accounts" not in endpoint:
        yield Problem(f"{path}.account", "is missing; name an account, or several in accounts")
    yield from _unknown(f"{path}.account", "accounts", endpoint.get("account"), document)
    pool = cast(list[str], endpoint.get("accounts", []))
    for index, account in enumerate(pool):
        yield from _unknown(f"{path}.accounts[{index}]", "accounts", account, document)
    providers = {document["accounts"].get(account, {}).get("provider") for account in pool} - {None}
    if len(providers) > 1:
        yield Problem(f"{path}.accounts", "must all be of one provider")


def _check_names(document: Document) -> Iterator[Problem]:
    for name in document["endpoints"]:
        if name in document["providers"]:
            yield Problem(f"endpoints.{name}", "a provider has this name; providers and endpoints share one namespace")
    owners: dict[str, str] = {name: f"models.{name}" for name in document["models"]}
    for name, model in document["models"].items():
        for index, alias in enumerate(cast(list[str], model.get("aliases", []))):
            path = f"models.{name}.aliases[{index}]"
            if alias.startswith("tier/"):
                yield Problem(path, "must not begin with tier/, which names tiers")
            if alias in owners:
                yield Problem(path, f"{alias} is already taken by {owners[alias]}")
            owners.setdefault(alias, path)


def _check_tiers(document: Document) -> Iterator[Problem]:
    aliases = {alias for model in document["models"].values() for alias in cast(list[str], model.get("aliases", []))}
    for name, tier in document["tiers"].items():
        for index, link in enumerate(cast(list[str], tier.get("chain", []))):
            path = f"tiers.{name}.chain[{index}]"
            if link.startswith("tier/"):
                yield from _unknown(path, "tiers", link[5:], document)
            elif link not in aliases:
                yield from _unknown(path, "models", link, document)
        if name in _reached(name, document["tiers"]):
            yield Problem(f"tiers.{name}.chain", f"is a cycle: it leads back to tier/{name}")


def _reached(start: str, tiers: Mapping[str, Table]) -> set[str]:
    """Every tier that a tier's chain leads to, by way of others too."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for link in cast(list[str], tiers.get(ahead.pop(), {}).get("chain", [])):
            if link.startswith("tier/") and link[5:] not in seen:
                seen.add(link[5:])
                ahead.append(link[5:])
    return seen


def removed_too_much(before: Document, after: Document) -> list[Problem]:
    """The shrink guard: what a version would remove that needs a deliberate yes (`--allow-shrink`)."""
    problems: list[Problem] = []
    old, new = before["endpoints"], after["endpoints"]
    gone = [name for name in old if name not in new]
    if len(gone) * 2 > len(old):
        problems.append(Problem("endpoints", f"would remove {len(gone)} of {len(old)} endpoints; if that is meant, pass --allow-shrink"))
    had = {endpoint.get("model") for endpoint in old.values()}
    has = {endpoint.get("model") for endpoint in new.values()}
    problems.extend(
        Problem(f"models.{model}", "would lose its last endpoint; if that is meant, pass --allow-shrink")
        for model in sorted(map(str, had - has))
    )
    return problems


def canonical_json(document: object) -> str:
    """One spelling of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def differences(before: object, after: object, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, before, after) of every changed leaf, values as JSON text, '' where absent; in sorted order of path.

    1, 1.0 and true are three values here, as they are to a provider.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else str(key)
            if key not in before:
                yield inner, "", canonical_json(after[key])
            elif key not in after:
                yield inner, canonical_json(before[key]), ""
            else:
                yield from differences(before[key], after[key], inner)
    elif canonical_json(before) != canonical_json(after):
        yield path, canonical_json(before), canonical_json(after)
