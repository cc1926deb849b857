"""The request path, top to bottom: plan ▸ reserve ▸ attempt ▸ (wait ▸ attempt)* ▸ settle.

Every skin runs this and nothing else. Deciders say what to do (plan, attempts, guard); this loop asks, performs, reports
back. Up to the guard's release a failed attempt is invisible to the client; after it there is no other attempt.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace as replace_part
from functools import partial
from typing import assert_never

import msgspec
from msgspec.structs import replace

from data_plane.exchange import Exchange
from data_plane.health import Measured
from data_plane.parts import TimedDialect
from data_plane.reading import Reading, read, take_whole
from data_plane.record import AttemptRecord, Record
from data_plane.rehearsing import rehearse
from data_plane.router import Router
from data_plane.spending import Spending, begin, billed
from n4n.core.attempts import Attempts, GiveUp, Send, Wait
from n4n.core.candidates import Candidate, Cooldown, Plan
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.dialects import Dialect
from n4n.core.dialects.origins import origin_of, unread
from n4n.core.dialects.system_prompt import spelled_out
from n4n.core.dialects.wording import without_secret
from n4n.core.directives import NONE
from n4n.core.errors import Failure, FailureClass, RequestError, StreamInterrupted, Untellable
from n4n.core.large import LARGE
from n4n.core.member_kinds import whose_fault
from n4n.core.plan import plan
from n4n.runtime.labels import new_attempt_id
from n4n.runtime.signing import signed
from n4n.runtime.upstream import Phases, UpstreamFault

_FIRST_TOKEN_S = {True: 8.0, False: 120.0}  # where the model sets none: by whether the answer is a stream


async def serve(router: Router, exchange: Exchange) -> None:
    """Answers one request; GatewayError when that fails before the client saw anything."""
    world, record, health, directives = router.world_of(exchange.key), exchange.record, router.health, exchange.directives
    record.catalog_version = world.snapshot.version
    record.directives = directives.applied if directives is not NONE else ()
    key = exchange.key
    now = router.clock()
    made = plan(exchange.chat, directives, world, allowed_models=key.models, now=now, draw=router.draw, tenant=key.tenant)
    record.plan = made
    if record.parts is not None:
        record.parts.plan_s = router.clock() - now
    deadline = record.started + made.model.timeouts.total_ms / 1000
    deadline = deadline if exchange.deadline is None else min(deadline, exchange.deadline)
    attempts = Attempts(made, started=record.started, deadline=deadline, budget=health.budget(made.model.id))
    spending = None if router.quotas is None else begin(router.quotas, exchange.key, exchange.chat, exchange.priority, made, record)
    try:
        await _tried(router, exchange, made, attempts, deadline, spending)
    finally:
        if spending is not None:
            spending.close()
        if router.caps is not None and record.attempts and router.caps.counts(exchange.key, record.attempts[-1].account):
            router.caps.spent(exchange.key, record, billed(record))


async def _tried(router: Router, exchange: Exchange, made: Plan, attempts: Attempts, deadline: float, spending: Spending | None) -> None:
    """Performs what the attempt machine says until the client has its answer; GatewayError when it gives up."""
    record, health = exchange.record, router.health
    planned = True  # in this very moment: nothing can have changed since
    untold: Untellable | None = None
    while True:
        step = attempts.next_step(router.clock(), router.draw())
        record.fallback_attempts = attempts.fallback_attempts
        still, planned = planned, False
        match step:
            case Send(candidate=candidate) if not still and (cooldown := health.cooling(candidate)):
                attempts.postponed(cooldown, router.clock())
            case Send(candidate=candidate) if not still and router.withdrawn(candidate):
                attempts.withdrawn()
            case Send(candidate=candidate):
                if spending is not None:
                    begun = record.reserved_at = router.clock()
                    reserved = await _reserved(router, attempts, candidate, spending)
                    record.reserved_s += router.clock() - begun
                    if reserved is None:
                        continue
                    candidate = reserved
                if candidate.trial and not await health.start_trial(candidate, router.snapshot):
                    if attempts.has_others:
                        attempts.withdrawn()
                        continue
                    candidate = replace(candidate, trial=False)  # nobody else is left: doubt yields, as in the plan
                    attempts.through(candidate)
                try:
                    failure = await _attempt(router, exchange, made, candidate, deadline, spending)
                except Untellable as error:
                    untold = untold or error
                    attempts.withdrawn()
                    continue
                if failure is None:
                    attempts.succeeded(router.clock())
                    return
                attempts.failed(failure, router.clock())
            case Wait(seconds=seconds):
                begun = router.clock()
                try:
                    if spending is not None and spending.waits_for_quota:
                        record.queued_at = begun if record.queued_at is None else record.queued_at
                        await spending.wait(seconds, deadline)
                    else:
                        await asyncio.sleep(seconds)
                finally:  # whoever leaves meanwhile has waited, too
                    record.waited_s += router.clock() - begun
            case GiveUp(error=error):
                raise error if untold is None or record.attempts else untold
            case _:
                assert_never(step)


async def _reserved(router: Router, attempts: Attempts, candidate: Candidate, spending: Spending) -> Candidate | None:
    """The candidate with quota for one attempt, perhaps through another account. None: it has none, and the machine was told."""

    def usable(other: Candidate) -> bool:
        return router.health.cooling(other) is None and not router.withdrawn(other)

    match await spending.reserve(candidate, usable):
        case Cooldown() as short:
            attempts.postponed(short, router.clock())
            return None
        case None:
            attempts.withdrawn()
            return None
        case reserved:
            attempts.through(reserved)
            return reserved


async def _attempt(
    router: Router, exchange: Exchange, made: Plan, candidate: Candidate, deadline: float, spending: Spending | None
) -> Failure | None:
    """One call to one candidate. None: the client has its answer. StreamInterrupted: it broke after release."""
    snapshot, health, record = router.snapshot, router.health, exchange.record
    dialect = router.dialects[candidate.endpoint.provider.dialect]
    if record.parts is not None:
        dialect = TimedDialect(dialect, record.parts)
    speech = dialect.speech(candidate.endpoint.upstream_model)
    if speech.binds:
        origin = origin_of(speech, candidate.endpoint, candidate.account)
        exchange = msgspec.structs.replace(exchange, chat=msgspec.structs.replace(exchange.chat, origin=origin))
    try:
        if exchange.chat.body_bytes < LARGE:
            call = _encoded(router, exchange, dialect, candidate)
        else:
            call = await router.aside.do(partial(_encoded, router, exchange, dialect, candidate))
    except (RequestError, asyncio.CancelledError):  # which nobody could read, or waits for: nobody is asked
        if candidate.trial:
            health.trial_abandoned(candidate, snapshot)
        raise
    attempt = record.dispatched(new_attempt_id(), candidate.endpoint, candidate.account.name)
    failure: Failure | None = None
    busy, account = router.busy, candidate.account.name
    busy[account] = busy.get(account, 0) + 1
    try:
        failure = await _call(router, exchange, made, candidate, deadline, dialect, call, spending)
        return failure
    except StreamInterrupted as error:
        failure = error.failed.failure
        raise
    finally:
        busy[account] -= 1
        if spending is not None:
            spending.attempted(failure, record.usage)
        if failure is not None:
            health.failed(candidate, failure, snapshot)
        elif attempt.outcome == "ok":  # also where the client left while it was given the end
            health.succeeded(candidate, snapshot, _measured(attempt, record))
        elif candidate.trial:
            health.trial_abandoned(candidate, snapshot)


def _encoded(router: Router, exchange: Exchange, dialect: Dialect, candidate: Candidate) -> UpstreamRequest:
    """The request as the candidate wants it; what that leaves out is noted. RequestError where nobody could read it."""
    chat, endpoint = exchange.chat, candidate.endpoint
    asked = spelled_out(chat, endpoint) if endpoint.explicit_system_prompt else chat
    call = dialect.encode(asked, endpoint, router.secret(candidate.account))
    exchange.record.warnings = exchange.warnings + call.warnings
    if chat.native is None and not chat.sealed:
        return call
    speech = dialect.speech(endpoint.upstream_model)
    if chat.native is not None and (asked.native is None or speech.shape != chat.native.dialect):
        exchange.record.warnings += exchange.skin.losses(chat)
    if chat.sealed and (lost := unread(chat, endpoint, speech)) is not None and lost not in call.warnings:
        exchange.record.warnings += (lost,)
    return call


async def _call(
    router: Router,
    exchange: Exchange,
    made: Plan,
    candidate: Candidate,
    deadline: float,
    dialect: Dialect,
    call: UpstreamRequest,
    spending: Spending | None,
) -> Failure | None:
    chat, record = exchange.chat, exchange.record
    record.sent = call.body
    phases = _phases(made, chat, deadline)
    if candidate.endpoint.fault is not None:
        came = await rehearse(router, record, candidate.endpoint, dialect, phases)
        if isinstance(came, Failure):
            return came
        phases = came
    sent, heard = router.clock(), False
    try:
        if call.signing is not None:
            call = await signed(call, router.secret(candidate.account), router.wall())
        async with router.upstream.send(call, record.request_id, phases, record.trace_line) as reply:
            record.reply, heard = reply, True
            if record.parts is not None:
                record.parts.connect_s += reply.connect_s
            if spending is not None and spending.holds_account:
                spending.told(reply.headers, router.wall())
            try:
                if reply.status != 200:
                    failure: Failure | None = dialect.failure(reply.status, reply.headers, await reply.read_error(), router.wall())
                else:
                    record.cache_control = reply.get(b"cache-control")
                    if chat.stream:
                        failure = await read(router, exchange, Reading(made, dialect, chat, reply, sent + phases.first_byte_s))
                    else:
                        failure = await take_whole(router, exchange, dialect, reply)
            finally:
                record.reply_over()
    except UpstreamFault as fault:
        failure = fault.failure
        record.waited_s += 0.0 if heard else router.clock() - sent  # the reply has told how long
    except asyncio.CancelledError:
        record.waited_s += 0.0 if heard else router.clock() - sent
        raise
    except StreamInterrupted as error:
        failed = replace_part(error.failed, failure=without_secret(error.failed.failure, router.secret(candidate.account)))
        record.attempt_ended(failed.failure)
        raise StreamInterrupted(failed) from error
    if failure is not None:
        failure = without_secret(failure, router.secret(candidate.account))
        if failure.failure_class is FailureClass.SERVER_ERROR and failure.status is not None:
            failure = whose_fault(chat.fields, failure) if chat.native is None and chat.body_bytes < LARGE else failure
        record.attempt_ended(failure)
    return failure


def _phases(made: Plan, chat: ChatRequest, deadline: float) -> Phases:
    times = made.model.timeouts
    first = _FIRST_TOKEN_S[chat.stream] if times.first_token_ms is None else times.first_token_ms / 1000
    return Phases(times.connect_ms / 1000, first, times.idle_ms / 1000, deadline)


def _measured(attempt: AttemptRecord, record: Record) -> Measured:
    """What the attempt took; a whole answer came at once, so its output took all of its time."""
    ended = attempt.ended if attempt.ended is not None else record.clock()
    tokens = record.usage.completion_tokens if record.usage is not None else 0
    first, last = attempt.first_output_at, attempt.last_output_at
    if not record.stream or first is None or last is None:
        return Measured(ended - attempt.started, None, ended - attempt.started, tokens)
    return Measured(first - attempt.started, first - attempt.started, last - first, tokens)
