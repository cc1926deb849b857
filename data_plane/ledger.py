"""What a router writes of its attempts: a line when one is dispatched, a line when it is settled, both kept before anything goes on."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from data_plane.record import AttemptRecord, Record
from n4n.core.ledger import DISPATCHED, RATIO, SETTLED
from n4n.core.pricing import cost_pico, usd
from n4n.core.usage import BYTES_PER_TOKEN, estimate
from n4n.runtime.open_attempts import OpenAttempts
from n4n.runtime.segments import Segments

_ENCODE = msgspec.json.Encoder().encode
_HEAD = b'["%b",%d,%b,%d,%b,%b,%b,%b,%b'
_ROUTE = b"%b,%b,%b,%b,%b,%d"
_MOST_ROUTES = 8192
_DISPATCHED = DISPATCHED + b"%b,%d,%d,%b]\n"
_SETTLED = SETTLED + b"%b,%b,%b,%b,%d,%d,%d,%d,%d,%b,%b,%b,%b,%b,%.3f,%b,%d]\n"
_RATIO = _ENCODE(RATIO)


class Ledger:
    """Of one worker. `segments` keeps the lines; `known`, where there is a Redis, those of what Postgres does not have yet."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        self._routes: dict[tuple[str, str, str | None, int], tuple[bytes, bytes]] = {}
        self.segments: Segments | None = None
        self.known: OpenAttempts | None = None

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
        line = _DISPATCHED % (attempt.head, prompt, output, price)
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
                self.segments.append(_settled(record, attempt))
                if self.known is not None and self.known.crowded:
                    self.known.settled(attempt.attempt_id)


def _settled(record: Record, attempt: AttemptRecord) -> bytes:
    last = attempt is record.attempts[-1]
    usage = record.usage if last else None
    counted = record.counted if last else None
    cost = record.cost_usd
    state = _state(record, attempt, shown=last and record.ttft_s is not None)
    if usage is None:
        usage, cost = estimate(record.body_bytes if state == "cancelled" else 0, 0), "0"
        if state == "cancelled":  # the provider may have read the prompt, and bills for that
            counted, cost = usage, usd(cost_pico(usage, attempt.endpoint.price))
    known = attempt.ended is not None or record.outcome == "cancelled"
    return _SETTLED % (
        attempt.head,
        _word(state),
        _word(None if state in ("ok", "cancelled") else attempt.outcome if known else "error"),
        b"null" if attempt.status is None else b"%d" % attempt.status,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.completion_tokens,
        usage.reasoning_tokens,
        b"null" if counted is None else b"%d" % counted.prompt_tokens,
        b"null" if counted is None else b"%d" % counted.completion_tokens,
        b"null" if counted is None else _RATIO,
        b"true" if usage.estimated and counted is not None else b"false",
        _money(cost),
        ((attempt.ended if attempt.ended is not None else record.clock()) - attempt.started) * 1000,
        b"null" if not last or record.ttft_s is None else b"%.3f" % (record.ttft_s * 1000),
        usage.cache_write_1h_tokens,
    )


def _state(record: Record, attempt: AttemptRecord, *, shown: bool) -> str:
    """`shown`: the client has seen some of it."""
    if attempt.outcome == "ok":
        return "ok"
    if attempt.ended is None and record.outcome == "cancelled":
        return "cancelled"
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
