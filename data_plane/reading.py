"""The answer of one attempt, to the client: whole, or event by event through the guard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from data_plane.answers import Answer
from data_plane.billing import bill
from data_plane.counting import Kept
from data_plane.exchange import Exchange
from data_plane.record import Record
from data_plane.router import Router
from n4n.core.candidates import Plan
from n4n.core.chat import ChatRequest, Chunk, Done, Event, Failed, Usage
from n4n.core.dialects import Dialect, StreamDecoder
from n4n.core.errors import FailedAttempt, Failure, FailureClass, StreamInterrupted
from n4n.core.large import LARGE
from n4n.core.stream_guard import Abandon, Finish, GuardState, Hold, Interrupt, Pass, Release, StreamGuard
from n4n.runtime.upstream import Reply, UpstreamFault

_NEAR_S, _MOST_READS = 0.02, 8  # how long, and how far, the end of a body is looked for after the answer's own end mark
_NO_FIRST_TOKEN = Failed(Failure(FailureClass.TIMEOUT, "the provider did not send a first token in time"))
_Ending = Finish | Abandon | Interrupt


async def take_whole(router: Router, exchange: Exchange, dialect: Dialect, reply: Reply) -> Failure | None:
    """An answer that is no stream. The client sees nothing of it before it is whole and understood."""
    record, answer = exchange.record, exchange.answer
    try:
        body = await reply.read()
    except UpstreamFault as fault:
        return fault.failure
    if len(body) < LARGE:
        came = dialect.decode(body, reply.content_type, exchange.chat)
    else:
        came = await router.aside.do(partial(dialect.decode, body, reply.content_type, exchange.chat))
    if isinstance(came, Failure):
        return came
    now = router.clock()
    record.ttft_s = now - record.started
    record.output_came(now)
    record.last_chunk = came
    record.attempt_ended(None)
    bill(record, came.usage, came.output_bytes, [came.payload])
    answer.put((came,))
    await answer.finish(record.usage)
    record.succeeded()
    return None


class Reading:
    """One answer while it is read."""

    __slots__ = ("chat", "decoder", "dialect", "first_token_at", "guard", "kept", "output_bytes", "reply", "usage")

    def __init__(self, made: Plan, dialect: Dialect, chat: ChatRequest, reply: Reply, first_token_at: float) -> None:
        self.dialect, self.chat, self.reply = dialect, chat, reply
        self.guard = StreamGuard(made.model.stream_guard)
        self.decoder = dialect.decoder(chat)
        self.first_token_at: float | None = first_token_at  # None: it has come
        self.output_bytes = 0
        self.usage: Usage | None = None  # as the provider told it so far
        self.kept: Kept | None = None  # what bears text, for a count; None: nobody counts

    @property
    def pieces(self) -> list[bytes] | None:
        """What came so far and bears text; None: not all of it was kept."""
        return None if self.kept is None else self.kept.pieces


async def read(router: Router, exchange: Exchange, reading: Reading) -> Failure | None:
    """The answer to its end; what the client saw of it is counted and priced, also where it broke off or the client left."""
    ledger = exchange.record.ledger
    if ledger is not None and ledger.counting is not None:
        reading.kept = ledger.counting.kept()
    try:
        return await _pass_on(router, exchange, reading)
    finally:
        if exchange.record.ttft_s is not None and exchange.record.usage is None:
            bill(exchange.record, reading.usage, reading.output_bytes, reading.pieces)
        if reading.kept is not None:
            reading.kept.release()


async def _pass_on(router: Router, exchange: Exchange, reading: Reading) -> Failure | None:
    """What arrives together is decided event by event, and leaves in one write."""
    answer = exchange.answer
    while True:
        events = await _events(router, answer, reading)
        outgoing, ending = _decide(exchange.record, reading, events, router.clock())
        due = answer.put(outgoing) if outgoing else False
        if due and exchange.record.ttft_s is None:
            exchange.record.ttft_s = router.clock() - exchange.record.started
        match ending:
            case Finish():
                exchange.record.attempt_ended(None)
                bill(exchange.record, reading.usage, reading.output_bytes, reading.pieces)
                await answer.finish(exchange.record.usage)
                exchange.record.succeeded()
                await _read_to_end(reading.reply, router.clock() + _NEAR_S)
                return None
            case Abandon(failure=failure):
                return failure
            case Interrupt(failure=failure):
                raise _interrupted(exchange.record, failure)
            case None:
                if due or (answer.quiet_until is not None and router.clock() >= answer.quiet_until):
                    await answer.flush()
            case _:
                assert_never(ending)


async def _events(router: Router, answer: Answer, reading: Reading) -> list[Event]:
    """The events that arrived together; none when only time has passed. Faults of the connection are events too."""
    decoder = reading.decoder
    wake_at = answer.quiet_until
    for at in (reading.guard.deadline, answer.wake_at, reading.first_token_at):
        if at is not None and (wake_at is None or at < wake_at):
            wake_at = at
    try:
        piece = await reading.reply.next(wake_at)
    except UpstreamFault as fault:
        return _broken_off(decoder, fault.failure)
    if piece == b"" or (piece is None and answer.wake_at is not None and router.clock() >= answer.wake_at):
        return decoder.end()
    events = decoder.feed(piece) if piece else []
    if reading.first_token_at is None or any(isinstance(event, Chunk) and (event.content or event.finishes) for event in events):
        reading.first_token_at = None
    elif router.clock() >= reading.first_token_at and not any(isinstance(event, Failed | Done) for event in events):
        return [_NO_FIRST_TOKEN]
    return events


async def _read_to_end(reply: Reply, until: float) -> None:
    """Takes the end of the body, which often comes a packet after the end mark, so that the connection can be used again."""
    waited_s = reply.waited_s
    with suppress(UpstreamFault):
        for _ in range(_MOST_READS):
            if not await reply.next(until):
                break
    reply.waited_s = waited_s  # nobody waited: the client has its answer


def _broken_off(decoder: StreamDecoder, failure: Failure) -> list[Event]:
    """The connection failed: what came whole counts, and where every choice had finished nothing is missing."""
    return [Failed(failure) if isinstance(event, Failed) else event for event in decoder.end()]


def _decide(record: Record, reading: Reading, events: Sequence[Event], now: float) -> tuple[list[Chunk], _Ending | None]:
    """What may go to the client, and how the attempt ended if it did."""
    outgoing: list[Chunk] = []
    guard = reading.guard
    for event in events:
        if isinstance(event, Chunk):
            if event.output_bytes:
                reading.output_bytes += event.output_bytes
                if reading.kept is not None:
                    reading.kept.add(event.payload)
            if event.usage is not None:
                reading.usage = event.usage
            if event.finishes:
                record.last_chunk = event
            if event.content:
                record.output_came(now)
            if guard.state is GuardState.RELEASED:  # nearly all of a long stream
                outgoing.append(event)
                continue
        decision = guard.receive(event, now)
        match decision:
            case Pass(event=passed):
                outgoing += [passed] if isinstance(passed, Chunk) else []
            case Hold():
                pass
            case Release(events=held):
                outgoing += [one for one in held if isinstance(one, Chunk)]
            case Finish(events=held):
                outgoing += [one for one in held if isinstance(one, Chunk)]
                return outgoing, decision
            case Abandon() | Interrupt():
                return outgoing, decision
            case _:
                assert_never(decision)
    if guard.deadline is not None:
        decision = guard.tick(now)
        if isinstance(decision, Abandon):  # slower than it must be
            return outgoing, decision
        if isinstance(decision, Release):
            outgoing += [one for one in decision.events if isinstance(one, Chunk)]
    return outgoing, None


def _interrupted(record: Record, failure: Failure) -> StreamInterrupted:
    attempt = record.attempts[-1]
    return StreamInterrupted(FailedAttempt(attempt.endpoint.id, failure, (record.clock() - attempt.started) * 1000))
