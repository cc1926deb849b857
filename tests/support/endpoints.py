"""Small snapshots built from values, for the tests of the deciders: endpoints, models, worlds, plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from n4n.core.candidates import Cooldown, EndpointView, Plan, World
from n4n.core.catalog import Account, Endpoint, EndpointId, Model, ModelId, Price, PriceList, Provider, Snapshot
from n4n.core.chat import ChatRequest
from n4n.core.directives import NONE, Directives
from n4n.core.plan import plan

NOW = 1000.0


def model(name: str = "m", **fields: object) -> Model:
    """A model with defaults."""
    return Model(id=ModelId(name), **fields)  # type: ignore[arg-type]


def endpoint(name: str, of: str = "m", provider: str = "acme", accounts: Sequence[str] = (), **fields: object) -> Endpoint:
    """An endpoint of a model at a provider, through an account named after it unless said."""
    pool = tuple(Account(account, provider) for account in accounts or (f"{name}-account",))
    dialect = str(fields.pop("dialect", "openai"))
    fields = {"upstream_model": of} | fields
    return Endpoint(EndpointId(name), ModelId(of), Provider(provider, dialect, "https://a.example"), pool, **fields)  # type: ignore[arg-type]


def priced(input_per_1m: float, output_per_1m: float) -> PriceList:
    """Prices from USD per 1,000,000 tokens."""
    return PriceList(Price(int(input_per_1m * 1_000_000), int(output_per_1m * 1_000_000)))


def snapshot(
    endpoints: Iterable[Endpoint],
    models: Iterable[Model] = (),
    tiers: Mapping[str, Sequence[str]] | None = None,
) -> Snapshot:
    """A snapshot of version 7; a model that is not given has its defaults."""
    served = list(endpoints)
    known: dict[str, Model] = {one.id: one for one in models}
    known |= {one.model: model(one.model) for one in served if one.model not in known}
    return Snapshot(
        version=7,
        checksum="",
        models=known,
        endpoints={one.id: one for one in served},
        by_model={name: tuple(one for one in served if one.model == name) for name in known},
        aliases={alias: one.id for one in known.values() for alias in one.aliases},
        tiers={name: tuple(map(ModelId, chain)) for name, chain in (tiers or {}).items()},
        providers={one.provider.name: one.provider for one in served},
    )


def world(
    held: Snapshot,
    views: Mapping[str, EndpointView] | None = None,
    unusable: Iterable[str] = (),
    cooling_accounts: Mapping[str, Cooldown] | None = None,
) -> World:
    """A router that speaks OpenAI's dialect and has every credential but the unusable ones."""
    accounts = {account.name for one in held.endpoints.values() for account in one.accounts}
    return World(held, frozenset({"openai"}), accounts - set(unusable), views or {}, cooling_accounts or {})


def chat(name: str = "m", **fields: object) -> ChatRequest:
    """A request for a model."""
    return ChatRequest(fields={}, model=name, **fields)  # type: ignore[arg-type]


def scripted(*numbers: float) -> Callable[[], float]:
    """A draw that gives these numbers in turn, then halves."""
    left = list(numbers)
    return lambda: left.pop(0) if left else 0.5


def planned(
    *endpoints: Endpoint, directives: Directives = NONE, of: Model | None = None, views: Mapping[str, EndpointView] | None = None
) -> Plan:
    """A plan for model m whose candidates stand in the order given."""
    held = snapshot(endpoints, [of or model()])
    draws = scripted(*(0.01 * (at + 1) for at in range(len(endpoints))))
    return plan(chat(), directives, world(held, views), now=NOW, draw=draws)
