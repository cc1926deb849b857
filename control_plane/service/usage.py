"""The Usage service: takes in the rows that routers bring, and reports over what is there."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import grpc
from google.protobuf.message import Message

from control_plane.ledger import GROUPS, Ledger, Total
from control_plane.refusals import InvalidRequest
from control_plane.service.answers import Context, answering, unary_handlers
from n4n.core.ledger import read_rows
from n4n.v1 import usage_pb2

_SERVICE = usage_pb2.DESCRIPTOR.services_by_name["Usage"]
_LAST_MS = 4_102_444_800_000  # the year 2100
_log = logging.getLogger("n4n.control_plane")


class Usage:
    """Rows are acknowledged when Postgres has them. `taken`, `unreadable`: counts since the start."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.taken = self.unreadable = 0

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        return unary_handlers(_SERVICE, {"Query": self.Query, "Report": self.Report})

    async def Report(self, request: usage_pb2.UsageReport, context: Context) -> usage_pb2.UsageReceipt:
        """A router's rows. A line that is none is counted and left out: it would never become one."""
        async with answering(context):
            rows, unreadable = read_rows(request.lines)
            too_old = await self._ledger.take(rows)
            self.taken += len(rows)
            self.unreadable += unreadable
            if unreadable or too_old:
                _log.warning(
                    "usage of %.100r, %.100r before %d: %d lines cannot be read, %d are older than the ledger goes",
                    request.node, request.source, request.offset, unreadable, too_old,
                )  # fmt: skip
            return usage_pb2.UsageReceipt(offset=request.offset, unreadable=unreadable)

    async def Query(self, request: usage_pb2.UsageQuery, context: Context) -> usage_pb2.UsageReply:
        """Sums by one group."""
        async with answering(context):
            if request.by not in GROUPS:
                raise InvalidRequest(f"by: must be one of {', '.join(GROUPS)}")
            since = _instant("since_ms", request.since_ms)
            until = _instant("until_ms", request.until_ms) if request.HasField("until_ms") else None
            return usage_pb2.UsageReply(rows=map(_row, await self._ledger.report(request.by, since, until)))


def _instant(field: str, ms: int) -> datetime:
    if not 0 <= ms < _LAST_MS:
        raise InvalidRequest(f"{field}: must be Unix milliseconds before the year 2100")
    return datetime.fromtimestamp(ms / 1000, UTC)


def _row(total: Total) -> usage_pb2.UsageRow:
    row = usage_pb2.UsageRow(group=total.group)
    for name, value in total.sums.items():
        setattr(row, name, max(0, value))
    if total.cost_usd is not None:
        row.cost_usd = format(total.cost_usd.normalize(), "f")
    return row
