"""The Usage service: takes in the rows that routers bring, and reports over what is there."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime

import grpc
import msgspec
from google.protobuf.message import Message

from control_plane.ledger import Ledger
from control_plane.rating import Rating, Ratings
from control_plane.refusals import InvalidRequest
from control_plane.repository import Repository
from control_plane.service.answers import Context, answering, author_of, instant, mixed_handlers
from control_plane.usage_reports import EXPORTS, GROUPS, Question, Reports, Total
from n4n.core.catalog import PriceList
from n4n.core.ledger import read_rows
from n4n.core.price_files import read_prices
from n4n.core.schema import NAME
from n4n.runtime.spans import current_work
from n4n.v1 import usage_pb2

_SERVICE = usage_pb2.DESCRIPTOR.services_by_name["Usage"]
_MOST_GROUPS = 3
_LONGEST_LABEL = 100
_TELL_EVERY = 10  # batches of a rating
_log = logging.getLogger("n4n.control_plane")


class Usage:
    """Rows are acknowledged when Postgres has them. `taken`, `unreadable`: counts since the start."""

    def __init__(self, ledger: Ledger, reports: Reports, ratings: Ratings, repository: Repository, now: Callable[[], datetime]) -> None:
        self._ledger, self._reports, self._ratings, self._repository, self._now = ledger, reports, ratings, repository, now
        self.taken = self.unreadable = 0

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        single: Mapping[str, Callable[..., object]] = {"Query": self.Query, "Report": self.Report, "Ratings": self.Ratings}
        return mixed_handlers(_SERVICE, single, {"Export": self.Export, "Rerate": self.Rerate})

    async def Report(self, request: usage_pb2.UsageReport, context: Context) -> usage_pb2.UsageReceipt:
        """A router's rows. A line that is none is counted and left out: it would never become one."""
        async with answering(context):
            rows, unreadable = read_rows(request.lines)
            too_old = await self._ledger.take(rows)
            self.taken += len(rows)
            self.unreadable += unreadable
            work = current_work()
            if work is not None:
                work.told |= {"n4n.bytes": len(request.lines), "n4n.rows": len(rows), "n4n.lines_unreadable": unreadable}
            if unreadable or too_old:
                _log.warning(
                    "usage of %.100r, %.100r before %d: %d lines cannot be read, %d are older than the ledger goes",
                    request.node, request.source, request.offset, unreadable, too_old,
                )  # fmt: skip
            return usage_pb2.UsageReceipt(offset=request.offset, unreadable=unreadable)

    async def Query(self, request: usage_pb2.UsageQuery, context: Context) -> usage_pb2.UsageReply:
        """Sums by one or several names."""
        async with answering(context):
            by = tuple(name.strip() for name in request.by.split(","))
            if not set(by) <= GROUPS.keys() or len(set(by)) < len(by) or len(by) > _MOST_GROUPS:
                raise InvalidRequest(f"by: must be one to {_MOST_GROUPS} of {', '.join(GROUPS)}")
            for name in request.only:
                if name not in GROUPS or name == "day":
                    raise InvalidRequest(f"only: must name one of {', '.join(GROUPS)} but day, not {name[:40]}")
            question = Question(*_span(request), await self._label(request.label), tuple(request.only.items()))
            return usage_pb2.UsageReply(rows=map(_row, await self._reports.report(by, question)))

    async def Export(self, request: usage_pb2.UsageExport, context: Context) -> AsyncIterator[usage_pb2.UsageExportPart]:
        """One CSV file in parts."""
        async with answering(context):
            if request.by not in EXPORTS:
                raise InvalidRequest(f"by: must be one of {', '.join(EXPORTS)}")
            lines = 0
            async for part in self._reports.export(request.by, Question(*_span(request), await self._label(request.label))):
                lines += part.count(b"\n")
                yield usage_pb2.UsageExportPart(csv=part)
            yield usage_pb2.UsageExportPart(lines=lines - 1)

    async def Rerate(self, request: usage_pb2.UsageRerate, context: Context) -> AsyncIterator[usage_pb2.UsageRating]:
        """A period at other prices."""
        async with answering(context):
            if not NAME.match(request.label) or len(request.label) > _LONGEST_LABEL:
                raise InvalidRequest(f"label: must be a name of at most {_LONGEST_LABEL} letters, digits, dots, underscores and hyphens")
            since, until = _span(request)
            now = self._now()
            until = now if until is None else until
            if since >= until:
                raise InvalidRequest("until_ms: must be after since_ms")
            prices, source = await self._prices(request)
            asked = Rating(request.label, since, until, author_of(request.author), now, source)
            number, last = 0, asked
            async for last in self._ratings.make(asked, prices):
                number += 1
                if number % _TELL_EVERY == 0:
                    yield _rating(last)
            work = current_work()
            if work is not None:
                work.told |= {"n4n.rows": last.rows, "n4n.rows_kept": last.kept, "n4n.rows_unpriced": last.unpriced}
            _log.info("usage is rated anew as %s: %d rows at the prices of %s", last.label, last.rows, last.prices)
            yield _rating(last, done=True)

    async def Ratings(self, request: usage_pb2.UsageRatingsQuery, context: Context) -> usage_pb2.UsageRatings:
        """What was rated anew."""
        async with answering(context):
            return usage_pb2.UsageRatings(ratings=[_rating(one, done=True) for one in await self._ratings.made()])

    async def _label(self, label: str) -> str:
        if label and not any(one.label == label for one in await self._ratings.made()):
            raise InvalidRequest(f"label: there is no rating called {label[:100]}; n4n usage ratings lists them")
        return label

    async def _prices(self, request: usage_pb2.UsageRerate) -> tuple[Mapping[str, PriceList | None], str]:
        if request.HasField("catalog_version"):
            if request.catalog_version < 1:
                raise InvalidRequest("catalog_version: must be a version's number, 1 or more")
            stored = await self._repository.stored_catalog(request.catalog_version)
            assert stored is not None  # NotFound was raised
            raw, source = stored.document, f"catalog version {request.catalog_version}"
            told = json.loads(raw).get("endpoints")
        else:
            source = "a file"
            try:
                told = msgspec.json.decode(request.prices_json)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidRequest("prices_json: is no JSON") from error
        prices, problems = read_prices(told)
        if problems:
            raise InvalidRequest(str(problems[0]), problems=problems)
        return prices, source


def _span(request: usage_pb2.UsageQuery | usage_pb2.UsageExport | usage_pb2.UsageRerate) -> tuple[datetime, datetime | None]:
    until = instant("until_ms", request.until_ms) if request.HasField("until_ms") else None
    return instant("since_ms", request.since_ms), until


def _row(total: Total) -> usage_pb2.UsageRow:
    row = usage_pb2.UsageRow(group=total.groups[0], groups=total.groups)
    for name, value in total.sums.items():
        setattr(row, name, max(0, value))
    if total.cost_usd is not None:
        row.cost_usd = format(total.cost_usd.normalize(), "f")
    return row


def _rating(rating: Rating, *, done: bool = False) -> usage_pb2.UsageRating:
    return usage_pb2.UsageRating(
        label=rating.label,
        since_ms=_ms(rating.since),
        until_ms=_ms(rating.until),
        author=rating.author,
        created_at_ms=_ms(rating.created_at),
        prices=rating.prices,
        rows=rating.rows,
        kept=rating.kept,
        unpriced=rating.unpriced,
        before_usd=format(rating.before_usd.normalize(), "f"),
        cost_usd=format(rating.cost_usd.normalize(), "f"),
        done=done,
    )


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
