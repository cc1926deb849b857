"""The plan of a calm day: no directive, no cooldown, no doubt about any endpoint of the model asked. Nearly every request.

What such a plan is made of stands with the snapshot; a request draws lots and sorts. `calm_plan` gives up, and says so by
None, as soon as anything is unusual: then `n4n.core.plan` looks closely. Where it does answer, its answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log

from n4n.core import ordering
from n4n.core.affinity import Ties, saves, ties_of
from n4n.core.breaker import Breaker
from n4n.core.candidates import Candidate, Eliminated, Plan, World, model_barred
from n4n.core.catalog import Endpoint, Model, Snapshot, Target
from n4n.core.chat import ChatRequest
from n4n.core.directives import NONE
from n4n.core.fitness import CONTENT, EMBEDDINGS, barred_kind, most_bytes

_ANY_CHAT = ChatRequest({}, "")
MOST_NAMES = 4096  # models by the names and keys they were asked with; those that exist, so this is seldom reached


@dataclass(frozen=True, slots=True)
class _Place:
    """One endpoint that may serve; `candidate`: as it is while its score is whole."""

    endpoint: Endpoint
    rank: int
    strategy: str
    candidate: Candidate
    cost: float


@dataclass(frozen=True, slots=True)
class _Calm:
    """What does not change between two requests for one name."""

    target: Target
    model: Model
    places: tuple[_Place, ...]
    eliminated: tuple[Eliminated, ...]
    considered: int
    max_attempts: int
    lenient: bool  # a feature that an endpoint lacks is left out of the request, by every model's policy
    lacking: frozenset[str]  # features that some place lacks and nobody may leave out
    most_bytes: float  # a body up to this size may fit into every window
    chats: bool  # no place makes something else alone
    saves: bool  # there is a choice between accounts, at one of which cached input is cheaper
    alone: Plan | None  # of the one place, with one account, while its score is whole; None: there is more to decide


def calm_plan(
    request: ChatRequest, world: World, allowed: frozenset[str], now: float, draw: Callable[[], float], tenant: str = ""
) -> Plan | None:
    """The plan of a request without directives and models of its own; None: look closely."""
    known = _known(request.model, world, allowed)
    if known is None or request.body_bytes > known.most_bytes or request.native_tools or request.made_by:
        return None
    if not known.chats or EMBEDDINGS in request.features:
        return None
    if request.features and not (
        known.lenient and request.unsupported_params in (None, "drop") and known.lacking.isdisjoint(request.features)
    ):
        return None
    views, usable, cooling, weighs = world.views, world.usable_accounts, world.cooling_accounts, world.weighs_accounts
    ties = ties_of(request, tenant, [place.endpoint for place in known.places], world) if known.saves else None
    placed: list[tuple[int, float, float, float, str, float, Candidate]] = []
    for place in known.places:
        endpoint = place.endpoint
        for account in endpoint.accounts:
            if account.name not in usable or (cooling and account.name in cooling):
                return None
        view = views.get(endpoint.id)
        score, latency_ms, tokens_per_s = 1.0, None, None
        if view is not None:
            if view.breaker.kept is not Breaker.CLOSED or view.cooldown_until > now or view.overloaded_until > now:
                return None
            score, latency_ms, tokens_per_s = view.score, view.latency_ms, view.tokens_per_s
        if known.alone is not None and score == 1.0:
            return known.alone  # whatever is left of its account: nobody is weighed against it
        factor = world.factor_of_pool(endpoint, endpoint.accounts) if weighs else 1.0
        share = score * factor
        if place.strategy == "balanced":  # `ordering.balanced`, for it is nearly always this
            weight = endpoint.weight * share
            lot = draw if ties is None else ties.draw(endpoint, draw)
            first = -log(1.0 - lot()) / weight if weight > 0 else inf
        else:
            first = ordering.key(place.strategy, endpoint, score, latency_ms, tokens_per_s, draw, factor)
        placed.append((place.rank, first, inf if latency_ms is None else latency_ms, place.cost, endpoint.id, share, place.candidate))
    if len(placed) > 1:
        placed.sort()
    return _plan(known, tuple([_drawn(one[-1], one[-2], world, draw, ties) for one in placed]), world.snapshot)


def _plan(known: _Calm, candidates: tuple[Candidate, ...], snapshot: Snapshot) -> Plan:
    return Plan(
        target=known.target,
        model=known.model,
        candidates=candidates,
        eliminated=known.eliminated,
        considered=known.considered,
        catalog_version=snapshot.version,
        directives=NONE,
        max_attempts=known.max_attempts,
        fallback=True,
    )


def _drawn(candidate: Candidate, share: float, world: World, draw: Callable[[], float], ties: Ties | None) -> Candidate:
    """The candidate through one account of its pool, at the weight it has now."""
    pool = candidate.endpoint.accounts
    if len(pool) == 1 and share == 1.0 and ties is None:
        return candidate
    account, others = (world if ties is None else ties).drawn(candidate.endpoint, pool, draw)
    return Candidate(candidate.endpoint, account, candidate.endpoint.weight * share, spare_accounts=others, kept=ties is not None)


def _known(name: str, world: World, allowed: frozenset[str]) -> _Calm | None:
    memory, key = world.snapshot.memory, (name, allowed, world.dialects)
    known = memory.get(key)
    if known is None:
        if len(memory) >= MOST_NAMES:
            memory.clear()
        known = memory[key] = _made(world, world.snapshot.resolve(name), allowed)
    return known if isinstance(known, _Calm) and known.places else None


def _made(world: World, target: Target, allowed: frozenset[str]) -> _Calm:
    """Without places where the key may not use every model: then there is more to say about the others."""
    snapshot = world.snapshot
    places: list[_Place] = []
    eliminated: list[Eliminated] = []
    models = [snapshot.models[name] for name in target.models]
    for rank, model in enumerate(models):
        for endpoint in snapshot.by_model[model.id]:
            if target.provider not in (None, endpoint.provider.name):
                continue
            if endpoint.state != "active":
                eliminated.append(Eliminated(endpoint, endpoint.state))
            elif endpoint.provider.dialect not in world.dialects:
                eliminated.append(Eliminated(endpoint, "dialect"))
            else:
                candidate = Candidate(endpoint, endpoint.accounts[0], endpoint.weight)
                places.append(_Place(endpoint, rank, model.strategy, candidate, ordering.cost(endpoint)))
    served = [place.endpoint for place in places]
    if any(model_barred(allowed, model, target.name) for model in models):
        places.clear()
    calm = _Calm(
        target,
        models[0],
        tuple(places),
        tuple(eliminated),
        len(places) + len(eliminated),
        1 + models[0].retry.max_retries,
        all(model.unsupported_params == "drop" for model in models),
        frozenset().union(*(_lacking(endpoint, world) for endpoint in served)),
        min((most for endpoint in served if (most := most_bytes(endpoint)) is not None), default=inf),
        all(barred_kind(_ANY_CHAT, endpoint) is None for endpoint in served),
        len({account.name for endpoint in served for account in endpoint.accounts}) > 1 and any(map(saves, served)),
        None,
    )
    if len(places) != 1 or len(places[0].endpoint.accounts) != 1:
        return calm
    return replace(calm, alone=_plan(calm, (places[0].candidate,), snapshot))


def _lacking(endpoint: Endpoint, world: World) -> frozenset[str]:
    denied = frozenset() if endpoint.supports is None else CONTENT - endpoint.supports
    return denied | (CONTENT & world.speech(endpoint).cannot)
