"""The plan of one request: its candidates in order, and for every endpoint that is not among them the reason.

Made anew for every request from values alone: snapshot, directives, health as this router sees it, an instant, and chance
as numbers. Reasons, in the order they are looked for: what the operator decides (`disabled`, `draining`, `dialect`,
`credential`), the key's models (`model_not_allowed`), the request's constraints (`region=eu`, …), what the request needs
(`tools=file_search`, `supports=vision`, `context_window`), and what passes by itself (`cooldown`, `breaker`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from n4n.core import breaker, ordering
from n4n.core.affinity import Ties, ties_of
from n4n.core.breaker import Breaker
from n4n.core.calm import calm_plan
from n4n.core.candidates import MAX_WAIT_S, Candidate, Cooldown, Eliminated, EndpointView, Plan, World, model_barred
from n4n.core.catalog import Account, Endpoint, Model, ModelId, Snapshot, Target
from n4n.core.chat import ChatRequest
from n4n.core.constraints import Offer
from n4n.core.directives import NONE, Directives, check_names
from n4n.core.errors import AllCooling, FailureClass, InputTooLong, ModelNotAllowed, NoEligibleEndpoint, NoEndpointNow
from n4n.core.fitness import CONTENT, barred_kind, lacking, least_tokens, most_bytes, untaken_tools
from n4n.core.verdicts import most_telling, outcome_of

OPERATOR_REASONS = frozenset(("disabled", "draining", "dialect", "credential"))
_NO_REQUEST_REASONS = OPERATOR_REASONS | {"model_not_allowed"}
_TOO_SMALL = "context_window"
_TOOLS = "tools="
_WITHOUT_TOOLS = "; only endpoints that speak the client's own API have these tools: name a model with one, or say unsupported_params: drop"


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One endpoint in a dry run. `rank` from 1; `reason` of a kept one: None, or `trial`, `panic`, `wait`, `slow`."""

    endpoint: Endpoint
    kept: bool
    reason: str | None
    rank: int | None
    weight: float | None


def plan(
    request: ChatRequest,
    directives: Directives,
    world: World,
    *,
    allowed_models: frozenset[str] = frozenset(),
    now: float,
    draw: Callable[[], float],
    max_wait_s: float = MAX_WAIT_S,
    tenant: str = "",
) -> Plan:
    """The plan of a request; `draw` gives numbers in [0, 1), `allowed_models` are the key's (none: all), `tenant` is whose it is.

    Raises InvalidDirective, ModelNotFound, ModelNotAllowed, NoEligibleEndpoint (400), NoEndpointNow (503), and AllCooling when
    every endpoint that could serve is out for longer than `max_wait_s`.
    """
    if directives is NONE and not request.models:
        made = calm_plan(request, world, allowed_models, now, draw, tenant)
        if made is not None:
            return made
    survey = _survey(request, directives, world, allowed_models, now)
    if all(step.reason is not None for step in survey.steps):
        raise ModelNotAllowed(f"this API key may not use the model {survey.target.name[:200]!r}", param="model")
    chosen = _chosen(survey, directives, world, now, draw, max_wait_s, request, tenant)
    eliminated = tuple(Eliminated(r.endpoint, r.reason) for r in survey.rulings if r.reason is not None and r not in chosen.rulings)
    if not chosen.candidates:
        raise _nobody(survey, eliminated, now)
    model = survey.steps[0].model
    limit = 1 + model.retry.max_retries
    return Plan(
        target=survey.target,
        model=model,
        candidates=chosen.candidates,
        eliminated=eliminated,
        considered=len(survey.rulings),
        catalog_version=world.snapshot.version,
        directives=directives,
        max_attempts=limit if directives.max_attempts is None else min(limit, directives.max_attempts),
        fallback=directives.fallback is not False,
        preferred_overridden=_overridden(directives, chosen.candidates[0], survey.rulings) if directives.prefer else None,
        wait_s=min(c.ready_at for c in chosen.candidates) - now if chosen.mode == "wait" else None,
        cooling=survey.cooling,
    )


def explain(
    request: ChatRequest,
    directives: Directives,
    world: World,
    *,
    allowed_models: frozenset[str] = frozenset(),
    now: float,
    draw: Callable[[], float],
    max_wait_s: float = MAX_WAIT_S,
) -> list[ExplainRow]:
    """Every endpoint of the models asked, kept ones first in their order. Raises only InvalidDirective and ModelNotFound."""
    survey = _survey(request, directives, world, allowed_models, now)
    chosen = _chosen(survey, directives, world, now, draw, max_wait_s, request)
    slow = {ruling.endpoint.id: "slow" for ruling in chosen.rulings if _slow(ruling.view, directives)}
    rows = [
        ExplainRow(one.endpoint, True, "trial" if one.trial else chosen.mode or slow.get(one.endpoint.id), rank, one.weight)
        for rank, one in enumerate(chosen.candidates, start=1)
    ]
    out = (r for r in survey.rulings if r.reason is not None and r not in chosen.rulings)
    return rows + [ExplainRow(r.endpoint, False, r.reason, None, None) for r in out]


# Who is in: one ruling per endpoint.


class _Step(msgspec.Struct, frozen=True):
    """One model in order of preference; `reason` None: it may serve."""

    rank: int
    model: Model
    provider: str | None
    reason: str | None = None
    substitute: bool = False


class _Ruling(msgspec.Struct, frozen=True, eq=False):
    """One endpoint judged. `accounts`: those of its pool that may be used; `reason` None: in; `cooldown` only with that reason."""

    step: _Step
    endpoint: Endpoint
    view: EndpointView
    accounts: tuple[Account, ...] = ()
    reason: str | None = None
    cooldown: Cooldown | None = None


class _Survey(msgspec.Struct, frozen=True):
    target: Target
    steps: tuple[_Step, ...]
    rulings: tuple[_Ruling, ...]

    @property
    def cooling(self) -> tuple[Cooldown, ...]:
        return tuple(ruling.cooldown for ruling in self.rulings if ruling.cooldown is not None)


_FRESH = EndpointView()


def _survey(request: ChatRequest, directives: Directives, world: World, allowed: frozenset[str], now: float) -> _Survey:
    if directives is not NONE:
        check_names(directives, world.snapshot)
    target = world.snapshot.resolve(request.model)
    steps = tuple(_steps(request, directives, world.snapshot, target, allowed))
    rulings: dict[str, _Ruling] = {}
    for step in steps:
        for endpoint in world.snapshot.by_model[step.model.id]:
            if step.provider in (None, endpoint.provider.name) and endpoint.id not in rulings:
                rulings[endpoint.id] = _ruling(step, endpoint, request, directives, world, now)
    return _Survey(target, steps, tuple(rulings.values()))


def _steps(request: ChatRequest, directives: Directives, snapshot: Snapshot, target: Target, allowed: frozenset[str]) -> Iterator[_Step]:
    """Models in order: the one asked (or its tier's chain), the body's others, then substitutes if those may serve."""
    targets = (target, *(snapshot.resolve(name) for name in request.models))
    asked = [(model, one.provider, one.name) for one in targets for model in one.models]
    for rank, (model, provider, name) in enumerate(asked):
        reason = model_barred(allowed, snapshot.models[model], name)
        if reason is None and directives.consistency == "strict" and model not in target.models:
            reason = "consistency=strict"
        yield _Step(rank, snapshot.models[model], provider, reason)
    if directives.consistency == "available":
        named = {model for model, _, _ in asked}
        stand_ins = [(ModelId(name), provider) for model, provider, _ in asked for name in snapshot.models[model].substitutes]
        for rank, (model, provider) in enumerate(stand_ins, start=len(asked)):
            if model not in named:
                yield _Step(rank, snapshot.models[model], provider, model_barred(allowed, snapshot.models[model], model), substitute=True)


def _ruling(step: _Step, endpoint: Endpoint, request: ChatRequest, directives: Directives, world: World, now: float) -> _Ruling:
    view = world.views.get(endpoint.id, _FRESH)
    if endpoint.state != "active":
        return _Ruling(step, endpoint, view, reason=endpoint.state)
    if endpoint.provider.dialect not in world.dialects:
        return _Ruling(step, endpoint, view, reason="dialect")
    usable = world.usable_accounts
    accounts = tuple([account for account in endpoint.accounts if account.name in usable])  # a list is the quicker way there
    if not accounts:
        return _Ruling(step, endpoint, view, reason="credential")
    if step.reason is not None:
        return _Ruling(step, endpoint, view, reason=step.reason)
    if directives.constraints:
        offers = [Offer(endpoint, account, step.model, request.body_bytes) for account in accounts]
        for constraint in directives.constraints:
            offers = [offer for offer in offers if constraint.admits(offer)]
            if not offers:
                return _Ruling(step, endpoint, view, reason=constraint.text)
        accounts = tuple([offer.account for offer in offers])
    kind = barred_kind(request, endpoint)
    if kind is not None:
        return _Ruling(step, endpoint, view, reason=f"supports={kind}")
    if request.native_tools and request.unsupported_params != "drop":
        untaken = untaken_tools(request, endpoint, world.speech(endpoint))
        if untaken:
            return _Ruling(step, endpoint, view, reason=f"{_TOOLS}{'|'.join(untaken)}")
    missing = _unsupported(step.model, endpoint, request, directives, world)
    if missing:
        return _Ruling(step, endpoint, view, reason=f"supports={'|'.join(missing)}")
    most = most_bytes(endpoint)
    if most is not None and request.body_bytes > most and least_tokens(request) > (endpoint.context_window or 0):
        return _Ruling(step, endpoint, view, reason=_TOO_SMALL)
    cooldown = _cooldown(view, accounts, world.cooling_accounts, now)
    if world.cooling_accounts:
        back_at = now if cooldown is None or cooldown.soft else cooldown.until
        accounts = tuple(account for account in accounts if world.cooling_accounts.get(account.name, _NO_COOLDOWN).until <= back_at)
    if cooldown is not None:
        return _Ruling(step, endpoint, view, accounts, "cooldown", cooldown)
    return _Ruling(step, endpoint, view, accounts, None if breaker.allows(view.breaker, now) else "breaker")


def _unsupported(model: Model, endpoint: Endpoint, request: ChatRequest, directives: Directives, world: World) -> list[str]:
    """Features that the request uses and the endpoint lacks, where they may not simply be dropped."""
    policy = "route_away" if directives.require_parameters else request.unsupported_params or model.unsupported_params
    if not request.features or (policy == "drop" and CONTENT.isdisjoint(request.features)):
        return []
    missing = lacking(request, endpoint, world.speech(endpoint))
    return sorted(missing & CONTENT if policy == "drop" else missing)


def _cooldown(view: EndpointView, accounts: Sequence[Account], cooling: Mapping[str, Cooldown], now: float) -> Cooldown | None:
    """The longer of the endpoint's own cooldown and that of the first of its accounts to be back; a soft one only where neither binds."""
    longest = Cooldown(view.cooldown_until, view.cooldown_class) if view.cooldown_until > now else None
    if cooling:
        pool = min((cooling.get(account.name, _NO_COOLDOWN) for account in accounts), key=lambda one: one.until)
        if pool.until > max(now, view.cooldown_until):
            longest = pool
    if longest is None and view.overloaded_until > now:
        return Cooldown(view.overloaded_until, FailureClass.OVERLOADED, soft=True)
    return longest


_NO_COOLDOWN = Cooldown(0.0)


# Who goes first.


class _Chosen(msgspec.Struct, frozen=True):
    """The candidates in order, the rulings they came from, and what it took to have any."""

    candidates: tuple[Candidate, ...]
    rulings: Collection[_Ruling]
    mode: str | None  # None, 'panic' or 'wait'


def _chosen(
    survey: _Survey,
    directives: Directives,
    world: World,
    now: float,
    draw: Callable[[], float],
    max_wait_s: float,
    request: ChatRequest,
    tenant: str = "",
) -> _Chosen:
    mode, rulings = _in_the_running(survey.rulings, now, max_wait_s)
    ties = ties_of(request, tenant, [ruling.endpoint for ruling in rulings], world)
    placed = sorted(((_place(ruling, directives, world, now, draw, mode, ties), ruling) for ruling in rulings), key=lambda pair: pair[0])
    return _Chosen(tuple(_candidate(ruling, world, now, draw, mode, ties) for _, ruling in placed), frozenset(rulings), mode)


def _in_the_running(rulings: Sequence[_Ruling], now: float, max_wait_s: float) -> tuple[str | None, list[_Ruling]]:
    kept = [ruling for ruling in rulings if ruling.reason is None]
    if kept:
        return None, kept
    doubted = [ruling for ruling in rulings if ruling.reason == "breaker" or (ruling.cooldown is not None and ruling.cooldown.soft)]
    if doubted:
        return "panic", doubted
    return "wait", [r for r in rulings if r.cooldown is not None and r.cooldown.until - now <= max_wait_s]


def _place(
    ruling: _Ruling, directives: Directives, world: World, now: float, draw: Callable[[], float], mode: str | None, ties: Ties | None
) -> ordering.Place:
    step, view, endpoint = ruling.step, ruling.view, ruling.endpoint
    strategy = "balanced" if mode == "panic" else directives.sort or step.model.strategy  # doubt is spread by weight
    score = view.score if mode != "panic" and view.breaker.kept is Breaker.CLOSED else 1.0  # a trial is one call
    factor = world.factor_of_pool(endpoint, ruling.accounts)
    across = directives.sort is not None and directives.sort != "balanced"  # the client's own order reaches across models
    lot = draw if ties is None or strategy != "balanced" else ties.draw(endpoint, draw)
    return ordering.Place(
        step.substitute,
        _slow(view, directives),
        _liked(ruling, directives, now) if directives.prefer and mode is None else 0,
        0 if across else step.rank,
        ties is not None and ties.is_strange(endpoint, ruling.accounts, well=_is_well(view, now)),
        ordering.key(strategy, endpoint, score, view.latency_ms, view.tokens_per_s, lot, factor),
        ordering.latency(view.latency_ms),
        ordering.cost(endpoint),
        endpoint.id,
    )


def _slow(view: EndpointView, directives: Directives) -> bool:
    """Whether it was measured worse than the client would like; what was not measured is not."""
    ttft_ms, tokens_per_s = directives.max_ttft_ms, directives.min_tokens_per_s
    if ttft_ms is not None and view.ttft_ms is not None and view.ttft_ms > ttft_ms:
        return True
    return tokens_per_s is not None and view.tokens_per_s is not None and view.tokens_per_s < tokens_per_s


def _liked(ruling: _Ruling, directives: Directives, now: float) -> int:
    """The rank of the first preference that names it; behind all of them when none does, or when it is not healthy."""
    likings = directives.prefer if _is_well(ruling.view, now) else ()
    return next((rank for rank, preference in enumerate(likings) if preference.matches(ruling.endpoint)), len(directives.prefer))


def _is_well(view: EndpointView, now: float) -> bool:
    return breaker.phase(view.breaker, now) is Breaker.CLOSED and view.score >= ordering.SICK


def _candidate(ruling: _Ruling, world: World, now: float, draw: Callable[[], float], mode: str | None, ties: Ties | None) -> Candidate:
    account, others = (world if ties is None else ties).drawn(ruling.endpoint, ruling.accounts, draw)
    return Candidate(
        endpoint=ruling.endpoint,
        account=account,
        weight=ruling.endpoint.weight * ruling.view.score * world.factor_of_pool(ruling.endpoint, ruling.accounts),
        trial=mode is None and breaker.phase(ruling.view.breaker, now) is Breaker.HALF_OPEN,
        ready_at=ruling.cooldown.until if mode == "wait" and ruling.cooldown is not None else 0.0,
        spare_accounts=others,
        kept=ties is not None,
    )


def _overridden(directives: Directives, first: Candidate, rulings: Sequence[_Ruling]) -> str | None:
    """Why the client's first liking does not go first, for the log; None: it does."""
    if directives.prefer[0].matches(first.endpoint):
        return None
    wanted = directives.prefer[0]
    for ruling in rulings:
        if wanted.matches(ruling.endpoint):
            ill = "score" if ruling.view.breaker.kept is Breaker.CLOSED else "breaker"
            why = ruling.reason or (",".join(directives.measured) if _slow(ruling.view, directives) else ill)
            return f"{wanted.text}: {ruling.endpoint.id}: {why}"
    return f"{wanted.text}: serves none of the models asked"


# Nobody is left: say so in a way that tells whose turn it is.


def _nobody(survey: _Survey, eliminated: Sequence[Eliminated], now: float) -> NoEligibleEndpoint | NoEndpointNow | AllCooling:
    name, total = survey.target.name[:200], len(eliminated)
    counts = Counter(one.reason for one in eliminated)
    if survey.cooling:
        return cooling_error(survey.cooling, now, name=name, candidates=total, eliminated=counts)
    told = ", ".join(f"{reason} removed {count}" for reason, count in counts.items()) or "it has none"
    if counts.keys() <= _NO_REQUEST_REASONS:
        return NoEndpointNow(f"no endpoint of {name!r} can be used now: of {total}, {told}", candidates=total, eliminated=counts)
    if _TOO_SMALL in counts and counts.keys() <= _NO_REQUEST_REASONS | {_TOO_SMALL}:
        largest = max(one.endpoint.context_window or 0 for one in eliminated if one.reason == _TOO_SMALL)
        message = f"prompt is too long: more than {largest} tokens, the largest context window of {name!r}"
        return InputTooLong(message, candidates=total, eliminated=counts)
    message = f"no endpoint of {name!r} is eligible: of {total}, {told}; loosen a constraint"
    if any(reason.startswith(_TOOLS) for reason in counts):
        message += _WITHOUT_TOOLS
    return NoEligibleEndpoint(message, candidates=total, eliminated=counts)


def cooling_error(
    cooling: Sequence[Cooldown], now: float, *, name: str, candidates: int, eliminated: Mapping[str, int] = MappingProxyType({})
) -> AllCooling:
    """The honest answer when all that could serve is cooling: whose fault it is, and when the first is back."""
    classes = {one.failure_class or FailureClass.RATE_LIMITED for one in cooling}
    known = classes - {FailureClass.MODEL_NOT_FOUND} or classes  # 404 only where every one has retired it
    outcome = outcome_of(most_telling(known))
    back = max(1.0, min(one.until for one in cooling) - now)
    ours = min(sum(one.ours for one in cooling), candidates)
    phrase = "what the catalog allows its accounts is used up" if all(one.ours for one in cooling) else outcome.phrase
    return AllCooling(
        f"every endpoint of {name!r} that could serve is out for now ({phrase})",
        status=outcome.status,
        code=outcome.code,
        kind=outcome.kind,
        attempts=(),
        candidates=candidates,
        retry_after_s=back if outcome.status in (429, 503) else None,
        eliminated=eliminated or ({"quota": ours} if ours else {}),
    )
