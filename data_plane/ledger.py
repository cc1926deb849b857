"""What a router writes of its attempts: a line when one is dispatched, a line when it is settled, both kept before anything goes on."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from data_plane.counting import Counting, Waiting
from data_plane.record import AttemptRecord, Record
from n4n.core.chat import Usage
from n4n.core.counting.wire import Counted
from n4n.core.ledger import DISPATCHED, RATIO, SETTLED
from n4n.core.pricing import cost_pico, usd
from n4n.core.usage import BYTES_PER_TOKEN, settled
from n4n.runtime.open_attempts import OpenAttempts
from n4n.runtime.segments import Segments

_ENCODE = msgspec.json.Encoder().encode
_HEAD = b'["%b",%d,%b,%d,%b,%b,%b,%b,%b'
_ROUTE = b"%b,%b,%b,%b,%b,%d"
_MOST_ROUTES = 8192
_DISPATCHED = DISPATCHED + b"%b,%d,%d,%b%b]\n"
_SETTLED = SETTLED + b"%b,%b,%b,%b,%d,%d,%d,%d,%d,%b,%b,%b,%b,%b,%.3f,%b,%d%b]\n"
_SELDOM = b",%b,%b,%b,%d,%d,%d,%d,%d"
_RATIO = _ENCODE(RATIO)
_NOTHING = Usage()


class Ledger:
    """Of one worker. `segments` keeps the lines; `known`, where there is a Redis, those of what Postgres does not have yet."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        self._routes: dict[tuple[str, str, str | None, int], tuple[bytes, bytes]] = {}
        self.segments: Segments | None = None
        self.known: OpenAttempts | None = None
        self.counting: Counting | None = None

    def unsettled(self) -> list[bytes]:
        """The dispatch lines of what is under way."""
        return list(self._open.values())

    def dispatched(self, record: Record, attempt: AttemptRecord) -> None:
        """An attempt is about to be sent; those before it have ended."""
        if len(record.attempts) > 1:
            self.settle(record)
        route, price = self._route(record, attempt)
        attempt.head = _HEAD % (
            attempt.attempt_id.encode(),
            (record.wall + attempt.started - record.started) * 1_000_000,
            _ENCODE(record.request_id),
            len(record.attempts),
            _word(record.tenant or ""),
            _word(record.key_id or ""),
            route,
            b"true" if record.stream else b"false",
            _word(record.priority),
        )
        prompt, output = -(-record.body_bytes // BYTES_PER_TOKEN), _least(record.most_output, attempt.endpoint.max_output_tokens)
        line = _DISPATCHED % (attempt.head, prompt, output, price, b"," + record.tags if record.tags else b"")
        self._open[attempt.attempt_id] = line
        if self.segments is not None:
            self.segments.append(line)
        if self.known is not None:
            self.known.dispatched(attempt.attempt_id, line)

    def _route(self, record: Record, attempt: AttemptRecord) -> tuple[bytes, bytes]:
        """Where it goes, and the price there: the same for thousands of attempts."""
        endpoint, version = attempt.endpoint, record.catalog_version or 0
        tier = record.plan.target.tier if record.plan is not None else None
        known = self._routes.get(key := (endpoint.id, attempt.account, tier, version))
        if known is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            names = (endpoint.id, endpoint.provider.name, attempt.account, endpoint.model, tier or "")
            price = endpoint.price.base if endpoint.price is not None else None
            priced = None if price is None or price.input is None or price.output is None else (price.input, price.output)
            known = self._routes[key] = (_ROUTE % (*map(_ENCODE, names), version), _ENCODE(priced))
        return known

    def settle(self, record: Record) -> None:
        """Every attempt so far has ended, well or not; settling again what is settled is nothing."""
        for attempt in record.attempts:
            if self._open.pop(attempt.attempt_id, None) is not None and self.segments is not None:
                latency_ms = ((attempt.ended if attempt.ended is not None else record.clock()) - attempt.started) * 1000
                self.segments.append(_row(record, attempt, latency_ms, _counts(record, attempt)))
                if self.known is not None and self.known.crowded:
                    self.known.settled(attempt.attempt_id)
                if self.counting is not None and attempt is record.attempts[-1]:
                    self.counting.settled(record, attempt, latency_ms)

    def revise(self, waiting: Waiting, told: Counted) -> None:
        """The row of an attempt once more, with its exact counts; what was billed by an estimate is billed by them."""
        record, attempt, estimated = waiting.record, waiting.attempt, waiting.record.counted
        if estimated is None or self.segments is None:
            return
        usage = settled(waiting.reported, _exact(told, estimated), waiting.output_bytes > 0)
        prompt, completion = _comparable(usage, told)
        if prompt is None and completion is None:
            return
        if self.counting is not None and not usage.doubt:
            for direction, reported, counted in (
                ("input", usage.prompt_tokens, prompt),
                ("output", usage.completion_tokens, completion),
            ):
                if counted is not None:
                    self.counting.compare(attempt.endpoint.id, direction, reported, counted)
        cost = usd(cost_pico(usage, attempt.endpoint.price))
        self.segments.append(_row(record, attempt, waiting.latency_ms, _Counts(usage, cost, prompt, completion, _word(told.encoding), 1)))


class _Counts(msgspec.Struct):
    """The numbers of a row: what is billed, and what was counted by what; None: that side was not."""

    usage: Usage
    cost_usd: str | None
    prompt: int | None = None
    completion: int | None = None
    by: bytes = b"null"
    revision: int = 0


def _counts(record: Record, attempt: AttemptRecord) -> _Counts:
    """As they are known when an attempt ends."""
    last = attempt is record.attempts[-1]
    counted = record.counted
    if last and record.usage is not None:
        if counted is None:
            return _Counts(record.usage, record.cost_usd)
        return _Counts(record.usage, record.cost_usd, counted.prompt_tokens, counted.completion_tokens, _RATIO)
    return _Counts(_NOTHING, "0")


def _exact(told: Counted, estimated: Usage) -> Usage:
    """Our count, where a side was counted; else the estimate of it."""
    output = estimated.completion_tokens if told.output is None else told.output + told.reasoning
    return Usage(estimated.prompt_tokens if told.prompt is None else told.prompt, output, estimated=True)


def _comparable(usage: Usage, told: Counted) -> tuple[int | None, int | None]:
    """Counts of input and output to stand beside what was reported; of what is doubted, all there is.

    Reasoning that a provider counts is mostly not shown as it was, so that its own number has to do for that part.
    """
    output = None if told.output is None else told.output + (usage.reasoning_tokens or told.reasoning)
    if usage.doubt:
        return told.prompt, output
    heard = usage.audio_output_tokens or usage.image_output_tokens
    return told.prompt if told.prompt_exact else None, output if told.output_exact and not heard else None


def _row(record: Record, attempt: AttemptRecord, latency_ms: float, counts: _Counts) -> bytes:
    last, usage = attempt is record.attempts[-1], counts.usage
    state = _state(attempt, shown=last and record.ttft_s is not None)
    return _SETTLED % (
        attempt.head,
        _word(state),
        _word(None if state in ("ok", "cancelled") else attempt.outcome),
        b"null" if attempt.status is None else b"%d" % attempt.status,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.completion_tokens,
        usage.reasoning_tokens,
        b"null" if counts.prompt is None else b"%d" % counts.prompt,
        b"null" if counts.completion is None else b"%d" % counts.completion,
        counts.by,
        b"true" if usage.estimated else b"false",
        _money(counts.cost_usd),
        latency_ms,
        b"null" if not last or record.ttft_s is None else b"%.3f" % (record.ttft_s * 1000),
        usage.cache_write_1h_tokens,
        _seldom(record, counts),
    )


def _seldom(record: Record, counts: _Counts) -> bytes:
    """The rest of a row; nothing where all of it is as it usually is."""
    usage = counts.usage
    audio, image = usage.audio_input_tokens or usage.audio_output_tokens, usage.image_input_tokens or usage.image_output_tokens
    if not (usage.service_tier or usage.doubt or record.tags or audio or image or counts.revision):
        return b""
    return _SELDOM % (
        _word(usage.service_tier),
        _word(usage.doubt or None),
        record.tags or b"{}",
        usage.audio_input_tokens,
        usage.audio_output_tokens,
        usage.image_input_tokens,
        usage.image_output_tokens,
        counts.revision,
    )


def _state(attempt: AttemptRecord, *, shown: bool) -> str:
    """`shown`: the client has seen some of it."""
    if attempt.outcome in ("ok", "cancelled"):
        return attempt.outcome
    return "partial" if shown else "failed"


def _least(*bounds: int | None) -> int:
    """Of the bounds on what may come; 0: nobody said any, and nothing is reckoned with."""
    asked, most = bounds
    if asked is None:
        return 0
    return asked if most is None else min(asked, most)


def _money(usd: str | None) -> bytes:
    return b"null" if usd is None else b'"%b"' % usd.encode()


@lru_cache(8192)
def _word(text: str | None) -> bytes:
    """A name of the catalog, a tenant, a key's public id or a fixed word, as JSON."""
    return _ENCODE(text)
