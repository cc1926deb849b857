"""How this router is, gathered for the control plane when it is told: nothing of it is kept up to date for that."""

from __future__ import annotations

from collections.abc import Mapping

from data_plane.counts import Totals
from data_plane.limiting import Limiting
from data_plane.router import Router
from n4n.core.alerts.rules import LEAST_SCORE
from n4n.core.breaker import allows
from n4n.core.candidates import EndpointView, World
from n4n.core.errors import FailureClass
from n4n.runtime.segments import Segments
from n4n.runtime.vitals import Vitals

_FRESH = EndpointView()
_OUT = (FailureClass.AUTH, FailureClass.QUOTA_EXHAUSTED)


def vitals_of(router: Router, totals: Totals, segments: Segments, limiting: Limiting | None) -> Vitals:
    """The router at this moment."""
    world = router.world() if router.ready else None
    quotas = None if limiting is None else limiting.quotas
    return Vitals(
        store_up=limiting is None or not limiting.is_away,
        usage_waiting_bytes=segments.waiting_bytes,
        waiting={} if quotas is None else {priority.value: count for priority, count in quotas.waiting.items() if count},
        ended=totals.ended,
        failed=totals.failed,
        fell_back=totals.fell_back,
        changes=totals.changes,
        inversions=0 if quotas is None else quotas.inversions,
        quotas=() if quotas is None else tuple((*limit, used) for limit, used in quotas.utilization().items()),
        accounts_out=() if world is None else _accounts_out(world, router.clock()),
        candidates={} if world is None else usable_of_models(world, router.clock()),
    )


def _accounts_out(world: World, now: float) -> tuple[tuple[str, str, str], ...]:
    providers = {account.name: account.provider for endpoint in world.snapshot.endpoints.values() for account in endpoint.accounts}
    return tuple(
        (providers[name], name, cooldown.failure_class.value)
        for name, cooldown in world.cooling_accounts.items()
        if cooldown.until > now and cooldown.failure_class in _OUT and name in providers
    )


def usable_of_models(world: World, now: float) -> Mapping[str, int]:
    """Endpoints that can be relied on, of the models that have fewer than the catalog gives them. One that mostly fails is none: where few
    ask, it takes long until its breaker opens.
    """
    of_model: dict[str, list[bool]] = {}
    for endpoint in world.snapshot.endpoints.values():
        view = world.views.get(endpoint.id, _FRESH)
        accounts = [one.name for one in endpoint.accounts if one.name in world.usable_accounts]
        calling = any(name not in world.cooling_accounts or world.cooling_accounts[name].until <= now for name in accounts)
        well = view.score >= LEAST_SCORE * world.snapshot.models[endpoint.model].health.neutral
        usable = endpoint.state == "active" and calling and well and view.cooldown_until <= now and allows(view.breaker, now)
        of_model.setdefault(endpoint.model, []).append(usable)
    return {model: sum(usable) for model, usable in of_model.items() if not all(usable)}
