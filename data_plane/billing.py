"""What an answer is billed: its usage and cost, once, for the client's block, the log line, the metrics and the ledger."""

from __future__ import annotations

from msgspec.structs import replace

from data_plane.record import Answered, Record
from n4n.core.chat import Usage
from n4n.core.pricing import cost_pico, usd, why_unpriced
from n4n.core.usage import MISSING, estimate, settled


def bill(record: Record, reported: Usage | None, output_bytes: int, pieces: list[bytes] | None) -> None:
    """The provider's count where it can be believed. `pieces`: what came, for a count of ours; None: not all of it is there."""
    endpoint = record.attempts[-1].endpoint
    counting = None if record.ledger is None else record.ledger.counting
    if counting is None:
        record.counted = estimate(record.body_bytes, output_bytes)
    else:
        ratios = counting.ratios(endpoint.model)
        record.counted = estimate(record.body_bytes, output_bytes, ratios.input, ratios.output)
        record.answered = Answered(record.sent, pieces, reported, output_bytes)
    record.usage = settled(reported, record.counted, output_bytes > 0)
    record.cost_usd = usd(cost_pico(record.usage, endpoint.price))
    if record.cost_usd is None and endpoint.price is not None:
        what = why_unpriced(record.usage, endpoint.price)
        record.warnings += (f"the cost is not known: {what} has no price at endpoint {endpoint.id}",)


def bill_unanswered(record: Record) -> None:
    """The newest attempt was left before any of its answer came: the provider may have read the prompt, and bills for that."""
    record.usage = record.counted = replace(estimate(record.body_bytes, 0), doubt=MISSING)
    record.cost_usd = usd(cost_pico(record.usage, record.attempts[-1].endpoint.price))
