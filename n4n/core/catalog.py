"""The snapshot: the catalog a router serves from, compiled once when a version arrives, immutable, looked up by dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NewType, cast

from n4n.core import schema
from n4n.core.checksum import collection_checksum as collection_checksum
from n4n.core.document import Document, base_url
from n4n.core.errors import ModelNotFound
from n4n.core.faults import Fault, fault_of
from n4n.core.health.policy import HealthPolicy
from n4n.core.policies import PRESETS as PRESETS
from n4n.core.policies import TRANSIENT as TRANSIENT
from n4n.core.policies import BreakerPolicy as BreakerPolicy
from n4n.core.policies import ProbePolicy as ProbePolicy
from n4n.core.policies import RetryPolicy as RetryPolicy
from n4n.core.policies import RetryRule as RetryRule
from n4n.core.policies import StreamGuardPolicy as StreamGuardPolicy
from n4n.core.policies import Timeouts as Timeouts
from n4n.core.policies import breaker_policy, retry_policy

ModelId = NewType("ModelId", str)
EndpointId = NewType("EndpointId", str)
_HEALTH, _RETRY, _BREAKER, _GUARD, _TIMES, _PROBE = (
    HealthPolicy(),
    RetryPolicy(),
    BreakerPolicy(),
    StreamGuardPolicy(),
    Timeouts(),
    ProbePolicy(),
)
PICO = 10**12  # pico-USD per USD: prices have at most 6 decimals per 1,000,000 tokens, so a token's price is whole in pico-USD


@dataclass(frozen=True, slots=True)
class Price:
    """Pico-USD per token; None: this kind of token has no price of its own here."""

    input: int | None = None
    output: int | None = None
    cached_input: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    image_input: int | None = None
    image_output: int | None = None

    def over(self, base: Price) -> Price:
        """These, and where there is none the other's."""
        return Price(*(getattr(base if getattr(self, one.name) is None else self, one.name) for one in fields(Price)))


@dataclass(frozen=True, slots=True)
class PriceTier:
    """The whole request is billed at `price` once its input passes `above_input_tokens`."""

    above_input_tokens: int
    price: Price


@dataclass(frozen=True, slots=True)
class PriceList:
    """An endpoint's prices; `tiers` are in rising order of input. `services`: whole lists of their own, by tier of service."""

    base: Price
    tiers: tuple[PriceTier, ...] = ()
    services: Mapping[str, PriceList] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Balance:
    """What is left on a prepaid account: an alert when it falls below `below_pico` pico-USD. `api` None: the provider's host says."""

    below_pico: int = 0
    api: str | None = None  # one of document.BALANCE_APIS


@dataclass(frozen=True, slots=True)
class Provider:
    """A company or API we hold accounts with."""

    name: str
    dialect: str
    base_url: str  # vars filled in, no trailing slash
    allow_private: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    vars: Mapping[str, str] = field(default_factory=dict)  # those that stand in the URL, and what else its dialect asks for
    quirks: frozenset[str] = frozenset()  # words of document.QUIRKS: how it differs from others of its dialect
    probe_budget_pico: int | None = None  # pico-USD that probes may cost in a day; None: nothing was said


@dataclass(frozen=True, slots=True)
class Account:
    """A credential at a provider. `credential` is where to find it (env:, file:, stored), never the secret."""

    name: str
    provider: str
    credential: str | None = None
    limits: Mapping[str, object] = field(default_factory=dict)
    daily_token_budget: int | None = None
    balance: Balance | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """What a client asks for by name."""

    id: ModelId
    context_window: int | None = None
    max_output_tokens: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # reasoning, coding, multilingual in [0, 1]
    capabilities: frozenset[str] = frozenset()  # flags that are true
    aliases: tuple[str, ...] = ()
    retry: RetryPolicy = _RETRY
    breaker: BreakerPolicy = _BREAKER
    health: HealthPolicy = _HEALTH
    stream_guard: StreamGuardPolicy = _GUARD
    timeouts: Timeouts = _TIMES
    probe: ProbePolicy = _PROBE
    substitutes: tuple[str, ...] = ()
    unsupported_params: str = "drop"
    strategy: str = "balanced"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The routable unit: one model, through one account (or a pool of one provider's accounts), in one region."""

    id: EndpointId
    model: ModelId
    provider: Provider
    accounts: tuple[Account, ...]
    upstream_model: str
    region: str = ""
    weight: float = 1.0
    price: PriceList | None = None
    supports: frozenset[str] | None = None  # None: nothing was said, all optional features are assumed
    body: Mapping[str, object] = field(default_factory=dict)
    context_window: int | None = None  # the smaller of what the endpoint and its model say
    max_output_tokens: int | None = None
    quantization: str | None = None
    trains_on_data: bool | None = None
    retention_days: int | None = None
    state: str = "active"
    explicit_system_prompt: bool = False  # it overlooks system messages: what they say is put before the first user message
    fault: Fault | None = None  # injected, for a rehearsal


@dataclass(frozen=True, slots=True)
class Target:
    """What a caller's model name resolved to: models in order, perhaps pinned to one provider, perhaps by way of a tier."""

    name: str
    models: tuple[ModelId, ...]
    provider: str | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the catalog, compiled."""

    version: int
    checksum: str
    models: Mapping[str, Model]
    endpoints: Mapping[str, Endpoint]
    by_model: Mapping[str, tuple[Endpoint, ...]]
    aliases: Mapping[str, ModelId]
    tiers: Mapping[str, tuple[ModelId, ...]]
    providers: Mapping[str, Provider]
    memory: dict[object, object] = field(default_factory=dict, compare=False, repr=False)  # what was made of it for later requests

    def resolve(self, name: str) -> Target:
        """Model id, alias, `tier/NAME`, `provider/model`, in this order; else ModelNotFound with the nearest names."""
        if name in self.models:
            return Target(name, (ModelId(name),))
        if name in self.aliases:
            return Target(name, (self.aliases[name],))
        head, slash, rest = name.partition("/")
        if slash and head == "tier" and rest in self.tiers:
            return Target(name, self.tiers[rest], tier=rest)
        if slash and head in self.providers:
            model = rest if rest in self.models else self.aliases.get(rest)
            if model is not None and any(e.provider.name == head for e in self.by_model.get(model, ())):
                return Target(name, (ModelId(model),), provider=head)
        known = (*self.models, *self.aliases, *(f"tier/{tier}" for tier in self.tiers))
        raise ModelNotFound(
            f"there is no model named {name[:200]!r}{schema.nearest(name[:200], known)}; GET /v1/models lists them", param="model"
        )


def compile_snapshot(
    document: Document,
    *,
    version: int,
    checksum: str,
    states: Mapping[str, str] | None = None,
    before: tuple[Document, Snapshot] | None = None,
) -> Snapshot:
    """A valid document (no problems from `parse_document`) as a snapshot. `states`: endpoint overrides that are not active.

    In order of name, so that a version is the same value on every router, however its parts came. `before`: a document and what it was
    compiled to; entries that are the same objects in both documents are taken over instead of being made again.
    """
    kept = _Kept(*before) if before else None
    providers = {name: (kept and kept.provider(name, raw)) or _provider(name, raw) for name, raw in document["providers"].items()}
    accounts = {name: (kept and kept.account(name, raw)) or _account(name, raw) for name, raw in document["accounts"].items()}
    models = {name: (kept and kept.model(name, raw)) or _model(name, raw) for name, raw in sorted(document["models"].items())}
    endpoints: dict[str, Endpoint] = {}
    by_model: dict[str, list[Endpoint]] = {name: [] for name in models}
    for name, raw in sorted(document["endpoints"].items()):
        model = models[str(raw["model"])]
        pool = tuple(accounts[str(account)] for account in cast(list[str], raw.get("accounts") or [raw["account"]]))
        provider, state = providers[pool[0].provider], (states or {}).get(name, "active")
        endpoint = kept and kept.endpoint(name, raw, model, provider, pool, state)
        endpoints[name] = endpoint or _endpoint(name, raw, model, provider, pool, state)
        by_model[model.id].append(endpoints[name])
    aliases = {alias: model.id for model in models.values() for alias in model.aliases}
    tiers = _unfolded(document["tiers"], aliases)
    return Snapshot(version, checksum, models, endpoints, {k: tuple(v) for k, v in by_model.items()}, aliases, tiers, providers)


class _Kept:
    """What an earlier version was compiled to, by the entries it was compiled from."""

    def __init__(self, document: Document, snapshot: Snapshot) -> None:
        self._document, self._snapshot = document, snapshot
        self._accounts = {account.name: account for endpoint in snapshot.endpoints.values() for account in endpoint.accounts}

    def _is_same(self, kind: str, name: str, raw: object) -> bool:
        return self._document[kind].get(name) is raw

    def provider(self, name: str, raw: object) -> Provider | None:
        return self._snapshot.providers[name] if self._is_same("providers", name, raw) else None

    def account(self, name: str, raw: object) -> Account | None:
        return self._accounts.get(name) if self._is_same("accounts", name, raw) else None

    def model(self, name: str, raw: object) -> Model | None:
        return self._snapshot.models[name] if self._is_same("models", name, raw) else None

    def endpoint(self, name: str, raw: object, model: Model, provider: Provider, pool: tuple[Account, ...], state: str) -> Endpoint | None:
        """Also its model, provider and accounts went into it."""
        if not self._is_same("endpoints", name, raw) or self._snapshot.models.get(model.id) is not model:
            return None
        found = self._snapshot.endpoints[name]
        return found if (found.provider, found.accounts, found.state) == (provider, pool, state) else None


def _unfolded(tiers: Mapping[str, Mapping[str, object]], aliases: Mapping[str, ModelId]) -> dict[str, tuple[ModelId, ...]]:
    """Every tier as models, each once, in order. Tiers may share tiers and nest deeply: each is unfolded once, inner ones first."""
    chains = {name: cast(list[str], tier["chain"]) for name, tier in tiers.items()}
    done: dict[str, tuple[ModelId, ...]] = {}
    ahead = list(chains)
    while ahead:
        tier = ahead[-1]
        waiting = [link[5:] for link in chains[tier] if link.startswith("tier/") and link[5:] not in done]
        ahead.extend(waiting)
        if not waiting:
            ahead.pop()
            links = (done[link[5:]] if link.startswith("tier/") else (aliases.get(link, ModelId(link)),) for link in chains[tier])
            done[tier] = tuple(dict.fromkeys(model for link in links for model in link))
    return {name: done[name] for name in chains}


def _provider(name: str, raw: Mapping[str, object]) -> Provider:
    headers, known = cast(Mapping[str, str], raw.get("headers", {})), cast(Mapping[str, str], raw.get("vars", {}))
    quirks = frozenset(cast(list[str], raw.get("quirks", [])))
    budget = _pico(raw.get("probe_budget_usd_per_day"))
    return Provider(name, str(raw["dialect"]), base_url(raw), raw.get("allow_private") is True, headers, known, quirks, budget)


def _account(name: str, raw: Mapping[str, object]) -> Account:
    credential, budget = cast(str | None, raw.get("credential")), cast(int | None, raw.get("daily_token_budget"))
    limits = cast(Mapping[str, object], raw.get("limits", {}))
    balance = _balance(cast(Mapping[str, object], raw["balance"])) if "balance" in raw else None
    return Account(name, str(raw["provider"]), credential, limits, budget, balance)


def _balance(raw: Mapping[str, object]) -> Balance:
    return Balance(_pico(raw.get("below_usd")) or 0, cast(str | None, raw.get("api")))


def _pico(usd: object) -> int | None:
    """USD as the catalog has them, in pico-USD."""
    amount = schema.decimal_of(usd)
    return None if amount is None else int(amount * PICO)


def _model(name: str, raw: Mapping[str, object]) -> Model:
    capabilities = cast(Mapping[str, object], raw.get("capabilities", {}))
    return Model(
        id=ModelId(name),
        context_window=cast(int | None, raw.get("context_window")),
        max_output_tokens=cast(int | None, raw.get("max_output_tokens")),
        scores={key: value for key, value in capabilities.items() if isinstance(value, float)},
        capabilities=frozenset(key for key, value in capabilities.items() if value is True),
        aliases=tuple(cast(list[str], raw.get("aliases", []))),
        retry=retry_policy(cast(Mapping[str, object], raw.get("retry", {}))),
        breaker=breaker_policy(cast(Mapping[str, object], raw.get("circuit_breaker", {}))),
        health=HealthPolicy(**cast(dict[str, int], raw.get("health", {}))),
        stream_guard=StreamGuardPolicy(**cast(dict[str, int], raw.get("stream_guard", {}))),
        timeouts=Timeouts(**cast(dict[str, int], raw.get("timeouts", {}))),
        probe=ProbePolicy(**cast(dict[str, int], raw.get("probe", {}))),  # type: ignore[arg-type]  # each in its field's type
        substitutes=tuple(cast(list[str], raw.get("substitutes", []))),
        unsupported_params=str(raw.get("unsupported_params", "drop")),
        strategy=str(raw.get("strategy", "balanced")),
    )


def _endpoint(name: str, raw: Mapping[str, object], model: Model, provider: Provider, pool: tuple[Account, ...], state: str) -> Endpoint:
    data = cast(Mapping[str, object], raw.get("data", {}))
    retention = cast(str | None, data.get("retention"))
    return Endpoint(
        id=EndpointId(name),
        model=model.id,
        provider=provider,
        accounts=pool,
        upstream_model=str(raw.get("upstream_model", model.id)),
        region=str(raw.get("region", "")),
        weight=cast(float, raw.get("weight", 1.0)),
        price=price_list(cast(Mapping[str, object] | None, raw.get("price"))),
        supports=frozenset(cast(list[str], raw["supports"])) if "supports" in raw else None,
        body=cast(Mapping[str, object], raw.get("body", {})),
        context_window=_smaller(raw.get("context_window"), model.context_window),
        max_output_tokens=_smaller(raw.get("max_output_tokens"), model.max_output_tokens),
        quantization=cast(str | None, raw.get("quantization")),
        trains_on_data=cast(bool | None, data.get("training")),
        retention_days=int(retention[:-1]) if retention else None,
        state=state,
        explicit_system_prompt=raw.get("explicit_system_prompt") is True,
        fault=fault_of(cast(Mapping[str, object] | None, raw.get("fault"))),
    )


def _smaller(own: object, other: int | None) -> int | None:
    known = [value for value in (own, other) if isinstance(value, int)]
    return min(known, default=None)


def price_list(raw: Mapping[str, object] | None) -> PriceList | None:
    """An endpoint's `price` in its normal form; None: unpriced."""
    if not raw:
        return None
    tiers = (
        PriceTier(cast(int, tier["above_input_tokens"]), _price(tier)) for tier in cast(list[Mapping[str, object]], raw.get("tiers", []))
    )
    named = cast(Mapping[str, Mapping[str, object]], raw.get("service_tiers", {}))
    services = {name: prices for name, inner in named.items() if (prices := price_list(inner)) is not None}
    prices = PriceList(_price(raw), tuple(sorted(tiers, key=lambda tier: tier.above_input_tokens)), services)
    return prices if prices.tiers or prices.services or prices.base != Price() else None  # nothing said is unpriced, not free


def _price(raw: Mapping[str, object]) -> Price:
    def pico(name: str) -> int | None:
        amount = schema.decimal_of(raw.get(f"{name}_per_1m"))
        return None if amount is None else int(amount * 1_000_000)

    return Price(*(pico(one.name) for one in fields(Price)))
