"""The call Fleet.Health: how every endpoint is, as the provider matrix shows it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import grpc
from google.protobuf.message import Message

from control_plane.health import EndpointHealth, Known
from control_plane.refusals import InvalidRequest
from control_plane.service.answers import Context, answering, unary_handlers
from n4n.core import schema
from n4n.core.breaker import Breaker, phase
from n4n.core.catalog import PriceList
from n4n.core.health.seen import Seen
from n4n.v1 import fleet_pb2, types_pb2

_SERVICE = fleet_pb2.DESCRIPTOR.services_by_name["Fleet"]
_LONGEST_MS = 31 * 86_400_000


class Health:
    """One call of the Fleet service, which has others beside it."""

    def __init__(self, health: EndpointHealth, now: Callable[[], datetime]) -> None:
        self._health, self._now = health, now

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        return unary_handlers(_SERVICE, {"Health": self.Health})

    async def Health(self, request: fleet_pb2.HealthRequest, context: Context) -> fleet_pb2.HealthReply:
        """Every endpoint of the catalog, or of one model."""
        async with answering(context):
            if not 0 < request.window_ms <= _LONGEST_MS:
                raise InvalidRequest("window_ms: must be from 1 to 31 days of milliseconds")
            report = await self._health.report(request.model, timedelta(milliseconds=request.window_ms))
            rows = [_row(one, self._now().timestamp()) for one in report.endpoints]
            return fleet_pb2.HealthReply(endpoints=rows, redis=report.redis, database=report.database, cut=report.cut)


def _row(known: Known, now: float) -> fleet_pb2.EndpointHealth:
    endpoint, seen = known.endpoint, known.seen or Seen()
    at = phase(seen.breaker, now)
    return fleet_pb2.EndpointHealth(
        endpoint=endpoint.id,
        model=endpoint.model,
        provider=endpoint.provider.name,
        accounts=[one.name for one in endpoint.accounts],
        region=endpoint.region,
        state=endpoint.state,
        weight=endpoint.weight,
        score=known.score,
        breaker=at.value,
        breaker_until_ms=_ms(seen.breaker.until) if at is Breaker.OPEN else None,
        cooldown_until_ms=_ms(known.cooldown_until),
        cooldown=known.cooldown,
        latency_ms=seen.latency_ms,
        ttft_ms=seen.ttft_ms,
        ttft_p50_ms=seen.ttft_p50_ms,
        ttft_p95_ms=seen.ttft_p95_ms,
        tokens_per_s=seen.tokens_per_s,
        tokens_per_s_p50=seen.tokens_per_s_p50,
        tokens_per_s_p95=seen.tokens_per_s_p95,
        attempts=known.attempts,
        errors=known.errors,
        price=_price(endpoint.price),
        last_success_ms=_ms(seen.good_at),
        findings=known.findings,
    )


def _ms(at: float | None) -> int | None:
    return None if at is None else round(at * 1000)


def _price(prices: PriceList | None) -> types_pb2.Price | None:
    """The base prices, as the document spells them."""
    if prices is None:
        return None
    base = prices.base
    return types_pb2.Price(input_per_1m=_usd(base.input), output_per_1m=_usd(base.output), cached_input_per_1m=_usd(base.cached_input))


def _usd(pico: int | None) -> str | None:
    """Pico-USD per token as USD per 1,000,000 of them."""
    return None if pico is None else schema.plain(Decimal(pico) / 1_000_000)
