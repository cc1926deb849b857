"""The request path, top to bottom: plan ▸ attempt ▸ (wait ▸ attempt)* ▸ settle.

Every skin runs this and nothing else. Deciders say what to do (plan, attempts, guard); this loop asks, performs, reports
back. Up to the guard's release a failed attempt is invisible to the client; after it there is no other attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import assert_never

from data_plane.answers import Answer
from data_plane.meter import AttemptRecord, Record
from data_plane.router import Router
from n4n.core.attempts import Attempts, GiveUp, Send, Wait
from n4n.core.chat import ChatRequest, Chunk, Done, Event, Failed
from n4n.core.dialects import Dialect, StreamDecoder
from n4n.core.directives import Directives
from n4n.core.errors import FailedAttempt, Failure, FailureClass, StreamInterrupted
from n4n.core.plan import Candidate, Plan, plan
from n4n.core.pricing import cost_pico
from n4n.core.stream_guard import Abandon, Finish, Hold, Interrupt, Pass, Release, StreamGuard
from n4n.core.usage import estimate, suspect
from n4n.runtime.upstream import Phases, Reply, UpstreamFault

_FIRST_TOKEN_S = {True: 8.0, False: 120.0}  # where the model sets none: by whether the answer is a stream
_NO_FIRST_TOKEN = Failed(Failure(FailureClass.TIMEOUT, "the provider did not send a first token in time"))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request on its way: what was asked, by whom, how the answer leaves, and the record of it all."""

    chat: ChatRequest
    directives: Directives
    allowed_models: frozenset[str]
    deadline: float | None  # the caller's own, on the router's clock
    answer: Answer
    record: Record


async def serve(router: Router, exchange: Exchange) -> None:
    """Answers one request; GatewayError when that fails before the client saw anything."""
    world, record = router.world(), exchange.record
    record.catalog_version, record.directives = world.snapshot.version, exchange.directives.applied
    made = plan(exchange.chat, exchange.directives, world, allowed_models=exchange.allowed_models, now=router.clock(), draw=router.draw)
    record.plan = made
    deadline = record.started + made.model.timeouts.total_ms / 1000
    deadline = deadline if exchange.deadline is None else min(deadline, exchange.deadline)
    attempts = Attempts(made, started=record.started, deadline=deadline, budget=router.health.budget(made.model.id))
    while True:
        step = attempts.next_step(router.clock(), router.draw())
        record.fallback_attempts = attempts.fallback_attempts
        match step:
            case Send(candidate=candidate) if candidate.trial and not router.health.start_trial(candidate, world.snapshot):
                attempts.withdrawn()
            case Send(candidate=candidate):
                failure = await _attempt(router, exchange, made, candidate, deadline)
                if failure is None:
                    attempts.succeeded(router.clock())
                    return
                attempts.failed(failure, router.clock())
            case Wait(seconds=seconds):
                await asyncio.sleep(seconds)
                record.waited_s += seconds
            case GiveUp(error=error):
                raise error
            case _:
                assert_never(step)


async def _attempt(router: Router, exchange: Exchange, made: Plan, candidate: Candidate, deadline: float) -> Failure | None:
    """One call to one candidate. None: the client has its answer. StreamInterrupted: it broke after release."""
    snapshot, health, record = router.world().snapshot, router.health, exchange.record
    attempt = record.dispatched(router.attempt_id(), candidate.endpoint, candidate.account.name)
    verdict = False
    try:
        failure = await _call(router, exchange, made, candidate, deadline, attempt)
        verdict = True
        if failure is None:
            health.succeeded(candidate, snapshot, (record.ttft_s or 0.0) + record.started - attempt.started)
        else:
            health.failed(candidate, failure, snapshot)
        return failure
    except StreamInterrupted as error:
        verdict = True
        health.failed(candidate, error.failed.failure, snapshot)
        raise
    finally:
        if candidate.trial and not verdict:
            health.trial_abandoned(candidate, snapshot)


async def _call(
    router: Router, exchange: Exchange, made: Plan, candidate: Candidate, deadline: float, attempt: AttemptRecord
) -> Failure | None:
    endpoint, chat, record = candidate.endpoint, exchange.chat, exchange.record
    dialect = router.dialects[endpoint.provider.dialect]
    call = dialect.encode(chat, endpoint, router.secret(candidate.account))
    record.warnings = call.warnings
    phases = _phases(made, chat, deadline)
    sent = router.clock()
    try:
        async with router.upstream.send(call, record.request_id, phases) as reply:
            try:
                failure = await _read(router, exchange, made, dialect, reply, sent + phases.first_byte_s)
            finally:
                record.waited_s += reply.waited_s
    except UpstreamFault as fault:
        failure = fault.failure
        record.waited_s += router.clock() - sent
    except StreamInterrupted as error:
        record.attempt_ended(error.failed.failure)
        raise
    record.attempt_ended(failure)
    return failure


def _phases(made: Plan, chat: ChatRequest, deadline: float) -> Phases:
    times = made.model.timeouts
    first = _FIRST_TOKEN_S[chat.stream] if times.first_token_ms is None else times.first_token_ms / 1000
    return Phases(times.connect_ms / 1000, first, times.idle_ms / 1000, deadline)


async def _read(router: Router, exchange: Exchange, made: Plan, dialect: Dialect, reply: Reply, first_token_at: float) -> Failure | None:
    """The answer of one attempt through the guard to the client."""
    if reply.status != 200:
        return dialect.failure(reply.status, reply.headers, await reply.read_error(), router.wall())
    exchange.record.cache_control = reply.headers.get("cache-control")
    guard = StreamGuard(made.model.stream_guard)
    output_bytes = 0
    async for events in _events(router, exchange, dialect, reply, guard, first_token_at):
        outgoing: list[Chunk] = []
        for event in events:
            if isinstance(event, Chunk):
                output_bytes += event.output_bytes
                if event.usage is not None:
                    exchange.record.usage = event.usage
            decision = guard.receive(event, router.clock())
            match decision:
                case Hold():
                    pass
                case Pass(event=passed):
                    outgoing.extend([passed] if isinstance(passed, Chunk) else [])
                case Release(events=held) | Finish(events=held):
                    outgoing.extend(one for one in held if isinstance(one, Chunk))
                case Abandon(failure=failure):
                    exchange.record.usage = None
                    return failure
                case Interrupt(failure=failure):
                    await _send(exchange, outgoing)
                    raise _interrupted(exchange, failure)
                case _:
                    assert_never(decision)
            if isinstance(decision, Finish):
                await _send(exchange, outgoing)
                await _settle(exchange, output_bytes)
                return None
        if not events and isinstance(opened := guard.tick(router.clock()), Release):
            outgoing.extend(one for one in opened.events if isinstance(one, Chunk))
        await _send(exchange, outgoing)
    raise AssertionError("a decoder's end is always a Done or a Failed")


async def _events(
    router: Router, exchange: Exchange, dialect: Dialect, reply: Reply, guard: StreamGuard, first_token_at: float
) -> AsyncIterator[list[Event]]:
    """Events as they arrive together; an empty list when only time has passed. Faults of the connection are events too."""
    chat = exchange.chat
    if not chat.stream:
        try:
            answer = dialect.decode(await reply.read(), reply.content_type, chat)
        except UpstreamFault as fault:
            answer = fault.failure
        yield [Failed(answer)] if isinstance(answer, Failure) else [answer, Done()]
        return
    decoder = dialect.decoder(chat)
    while True:
        yield await _next_events(router, exchange, reply, decoder, guard, first_token_at)


async def _next_events(
    router: Router, exchange: Exchange, reply: Reply, decoder: StreamDecoder, guard: StreamGuard, first_token_at: float
) -> list[Event]:
    waiting_for_first = not exchange.answer.started and guard.deadline is None
    wakes = [at for at in (guard.deadline, exchange.answer.wake_at, first_token_at if waiting_for_first else None) if at is not None]
    try:
        piece = await reply.next(min(wakes, default=None))
    except UpstreamFault as fault:
        return [Failed(fault.failure)]
    if piece:
        return decoder.feed(piece)
    now = router.clock()
    if piece is None and waiting_for_first and now >= first_token_at:
        return [_NO_FIRST_TOKEN]
    if piece == b"" or (exchange.answer.wake_at is not None and now >= exchange.answer.wake_at):
        return decoder.end()
    return []


async def _send(exchange: Exchange, chunks: list[Chunk]) -> None:
    if not chunks:
        return
    if exchange.record.ttft_s is None:
        exchange.record.ttft_s = exchange.record.clock() - exchange.record.started
    await exchange.answer.send(chunks)


def _interrupted(exchange: Exchange, failure: Failure) -> StreamInterrupted:
    attempt = exchange.record.attempts[-1]
    ms = (exchange.record.clock() - attempt.started) * 1000
    return StreamInterrupted(FailedAttempt(attempt.endpoint.id, failure, ms))


async def _settle(exchange: Exchange, output_bytes: int) -> None:
    """The upstream's answer is whole: usage, cost, the last bytes to the client."""
    record = exchange.record
    record.counted = estimate(exchange.chat.body_bytes, output_bytes)
    if suspect(record.usage, output_bytes > 0):
        record.usage = record.counted
    endpoint = record.attempts[-1].endpoint
    record.cost_pico = cost_pico(record.usage, endpoint.price) if record.usage is not None else None
    await exchange.answer.finish(record.usage)
