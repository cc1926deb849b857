"""The engine behind an idempotency key: what `Once` needs to know of a request, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from data_plane.answers import Answer
from data_plane.exchange import Exchange
from data_plane.idempotency import Held, KeptAnswer, Repeatable
from data_plane.request import serve
from data_plane.router import Router
from n4n.core.candidates import model_barred
from n4n.core.errors import ModelNotAllowed, ModelNotFound
from n4n.core.idempotency import Kept, Known

_TOTAL_S = 600.0  # for a model that is no longer in the catalog


async def serve_once(router: Router, exchange: Exchange, held: Held, known: Known) -> None:
    """Answers one request whose answer is made over `held`, or replays the answer of an earlier one. Errors as `serve` and `Once`."""
    deadline = exchange.record.started + _total_s(router, exchange)
    asked = Repeatable(
        known=known,
        record=exchange.record,
        way=held.way,
        deadline=deadline if exchange.deadline is None else min(deadline, exchange.deadline),
        charge=partial(_charge, router, exchange),
        execute=partial(_execute, router, exchange, held),
    )
    await router.once.answer(asked)


async def _execute(
    router: Router, exchange: Exchange, held: Held, store: Callable[[Kept | None], Awaitable[None]], warnings: tuple[str, ...]
) -> None:
    answer: Answer = KeptAnswer(exchange.answer, held, store)
    await serve(router, replace(exchange, answer=answer, warnings=warnings))


async def _charge(router: Router, exchange: Exchange) -> None:
    """A replay is one request of its caller, and nothing else."""
    if router.quotas is not None:
        await router.quotas.one_request(exchange.key, exchange.record)


def _total_s(router: Router, exchange: Exchange) -> float:
    """How long the model gives a request. ModelNotAllowed: the key may use none of those asked, so it gets no answer of theirs either."""
    snapshot, allowed, chat = router.snapshot, exchange.key.models, exchange.chat
    try:
        targets = [snapshot.resolve(name) for name in (chat.model, *chat.models)]
    except ModelNotFound:
        if allowed:
            raise
        return _TOTAL_S
    if all(model_barred(allowed, snapshot.models[model], target.name) for target in targets for model in target.models):
        raise ModelNotAllowed(f"this API key may not use the model {chat.model[:200]!r}", param="model")
    exchange.record.target = targets[0]
    return snapshot.models[targets[0].models[0]].timeouts.total_ms / 1000
