"""The skin of POST /v1/messages/count_tokens: how many tokens a Messages request would be, without sending it.

The endpoint that would be asked counts, where its provider has a call for that; else, and where that fails, the count is an estimate
and says so. Counting is free, has limits of its own at every provider, and so leaves no trace in health, cooldowns, limits and ledger: a
provider that counts no more for now is left alone for as long as it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from data_plane.callers import Asked
from data_plane.record import Record
from data_plane.router import Router
from n4n.core import json_bytes, large
from n4n.core.access import Key
from n4n.core.candidates import Candidate, Plan, model_barred
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.dialects.counting import COUNTERS, read_count
from n4n.core.errors import AllCooling, Failure, FailureClass, InputTooLong, ModelNotAllowed, NoEndpointNow, RequestError
from n4n.core.plan import plan
from n4n.core.skins.messages_count import count_body, rough_count
from n4n.core.skins.table import MESSAGES
from n4n.runtime.signing import signed
from n4n.runtime.upstream import Phases, UpstreamFault

ESTIMATED = "the count is an estimate from sizes"
_WHOLE_S, _CONNECT_S = 5.0, 2.0  # who wants a count waits before it asks anything; an estimate is better than a late count
_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 300.0  # after a failure, at least and at most
_MOST_PAUSES = 4096
_NO_COUNT = Failure(FailureClass.SERVER_ERROR, "the provider's answer holds no count")


class Counting:
    """One worker's: which endpoints do not count for now."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._paused_until: dict[str, float] = {}

    async def answer(self, key: Key, asked: Asked, body: bytes, record: Record) -> bytes:
        """The answer as JSON. RequestError: the request could not be sent as it is, by anybody."""
        router = self._router
        if len(body) < large.LARGE:
            chat, estimate = MESSAGES.read(body, asked.get), rough_count(body)
        else:
            chat = await router.aside.do(partial(large.read, MESSAGES, body, asked.get))
            estimate = await router.aside.do(partial(rough_count, body))
        record.model, record.body_bytes = chat.model, len(body)
        record.directives = (directives := asked.directives(key, chat)).applied
        self._check_model(key, chat)
        try:
            world, now = router.world(), router.clock()
            record.catalog_version = world.snapshot.version
            record.plan = made = plan(chat, directives, world, allowed_models=key.models, now=now, draw=router.draw)
        except (InputTooLong, AllCooling, NoEndpointNow):  # it could not be answered now, but counted
            return _estimated(estimate)
        deadline = record.started + (_WHOLE_S if asked.timeout_s is None else min(_WHOLE_S, asked.timeout_s))
        failed: Failure | None = None
        for candidate in self._counters(made):
            counted = await self._counted(chat, candidate, record, deadline)
            if isinstance(counted, int):
                endpoint = candidate.endpoint
                told = {"counted_by": "provider", "provider": endpoint.provider.name, "endpoint": endpoint.id, "warnings": []}
                return count_body(counted, json_bytes.encode(told))
            failed = counted or failed
        return _estimated(estimate, failed)

    def _check_model(self, key: Key, chat: ChatRequest) -> None:
        """Before anything else is found out about it."""
        snapshot = self._router.snapshot
        target = snapshot.resolve(chat.model)
        if any(model_barred(key.models, snapshot.models[model], target.name) for model in target.models):
            raise ModelNotAllowed(f"this API key may not use the model {target.name[:200]!r}", param="model")

    def _counters(self, made: Plan) -> Sequence[Candidate]:
        """Those that can count for the model that would be asked first, as many as one request may try."""
        model, now = made.candidates[0].endpoint.model, self._router.clock()
        able = [
            one
            for one in made.candidates
            if one.endpoint.model == model
            and one.endpoint.provider.dialect in COUNTERS
            and not one.trial
            and one.ready_at <= now
            and self._paused_until.get(one.endpoint.id, 0.0) <= now
        ]
        return able[: made.max_attempts if made.fallback else 1]

    async def _counted(self, chat: ChatRequest, candidate: Candidate, record: Record, deadline: float) -> int | Failure | None:
        """The provider's count, or why there is none; None: it cannot be asked."""
        router, endpoint = self._router, candidate.endpoint
        secret = router.secret(candidate.account)
        try:
            call = await self._encoded(chat, candidate, secret)
            if call is None:
                return None
            if call.signing is not None:
                call = await signed(call, secret, router.wall())
            phases = Phases(_CONNECT_S, _WHOLE_S, _WHOLE_S, deadline)
            async with router.upstream.send(call, record.request_id, phases) as reply:
                record.reply = reply
                try:
                    if reply.status == 200:
                        count = read_count(await reply.read(limit=1 << 20))
                        if count is not None:
                            return count
                        failure = _NO_COUNT
                    else:
                        dialect = router.dialects[endpoint.provider.dialect]
                        failure = dialect.failure(reply.status, reply.headers, await reply.read_error(), router.wall())
                finally:
                    record.reply_over()
        except RequestError:  # what this endpoint cannot be told
            return None
        except UpstreamFault as fault:
            failure = fault.failure
        if failure.failure_class is not FailureClass.BAD_REQUEST:  # which speaks of this request alone
            self._pause(endpoint.id, failure)
        return failure

    async def _encoded(self, chat: ChatRequest, candidate: Candidate, secret: str | None) -> UpstreamRequest | None:
        dialect = candidate.endpoint.provider.dialect
        make = partial(COUNTERS[dialect].encode, self._router.dialects[dialect], chat, candidate.endpoint, secret)
        return make() if chat.body_bytes < large.LARGE else await self._router.aside.do(make)

    def _pause(self, endpoint: str, failure: Failure) -> None:
        if len(self._paused_until) >= _MOST_PAUSES:
            self._paused_until.clear()
        pause_s = max(_PAUSE_S, min(failure.retry_after_s or 0.0, _LONGEST_PAUSE_S))
        self._paused_until[endpoint] = self._router.clock() + pause_s


def _estimated(estimate: int, failed: Failure | None = None) -> bytes:
    why = "" if failed is None else f": counting at the provider failed ({failed.failure_class.value})"
    return count_body(estimate, msgspec.json.encode({"counted_by": "estimate", "warnings": [ESTIMATED + why]}))
