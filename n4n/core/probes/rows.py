"""A probe's lines in the usage ledger, of a tenant of its own: no tenant's bill has a probe in it."""

from __future__ import annotations

import msgspec

from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import Usage
from n4n.core.errors import Failure
from n4n.core.ledger import DISPATCHED, RATIO, SETTLED, Dispatch, Row
from n4n.core.pricing import cost_pico, usd
from n4n.core.usage import estimate, settled

TENANT = "n4n-probes"  # of the ledger alone: no key can be of it
_ENCODE = msgspec.json.Encoder().encode


class Sent(msgspec.Struct, frozen=True):
    """One probe on its way. `wall`: Unix seconds."""

    attempt_id: str
    request_id: str
    wall: float
    endpoint: Endpoint
    account: Account
    catalog_version: int
    stream: bool
    body_bytes: int
    most_output: int


class Came(msgspec.Struct, frozen=True):
    """How it ended, in seconds. `usage`: what the provider reported; `cancelled`: we were stopped, and nobody knows."""

    failure: Failure | None
    latency_s: float
    ttft_s: float | None = None
    usage: Usage | None = None
    output_bytes: int = 0
    cancelled: bool = False


def dispatched_line(sent: Sent) -> bytes:
    """Kept before it is sent, so that it is in the ledger whatever becomes of us."""
    base = None if sent.endpoint.price is None else sent.endpoint.price.base
    price = None if base is None or base.input is None or base.output is None else (base.input, base.output)
    head = _head(sent)
    return DISPATCHED + _ENCODE(Dispatch(*head, estimate(sent.body_bytes, 0).prompt_tokens, sent.most_output, price)) + b"\n"


def settled_line(sent: Sent, came: Came) -> tuple[bytes, int | None]:
    """And what it cost, in pico-USD; None: the endpoint has no price. What failed cost nothing, as far as providers bill."""
    counted = estimate(sent.body_bytes, came.output_bytes)
    well = came.failure is None
    if well:
        usage = settled(came.usage, counted, came.output_bytes > 0)
        cost = cost_pico(usage, sent.endpoint.price)
    else:
        usage, cost = estimate(0, 0), 0
    row = Row(
        *_head(sent),
        state="cancelled" if came.cancelled else "ok" if well else "failed",
        error_class=None if came.failure is None else came.failure.failure_class.value,
        status=None if came.cancelled else 200 if came.failure is None else came.failure.status if came.failure.may_have_run else None,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        counted_prompt_tokens=counted.prompt_tokens if well else None,
        counted_completion_tokens=counted.completion_tokens if well else None,
        counted_by=RATIO if well else None,
        estimated=usage.estimated and well,
        cost_usd=usd(cost),
        latency_ms=round(came.latency_s * 1000, 3),
        ttft_ms=None if came.ttft_s is None else round(came.ttft_s * 1000, 3),
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
    )
    return SETTLED + _ENCODE(row) + b"\n", cost


def _head(sent: Sent) -> tuple[str, int, str, int, str, str, str, str, str, str, str, int, bool, str]:
    endpoint = sent.endpoint
    return (
        sent.attempt_id,
        int(sent.wall * 1_000_000),
        sent.request_id,
        1,
        TENANT,
        TENANT,  # a key of its own too, by name
        endpoint.id,
        endpoint.provider.name,
        sent.account.name,
        endpoint.model,
        "",
        sent.catalog_version,
        sent.stream,
        "background",
    )
