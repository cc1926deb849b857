"""The control client's calls to the Usage service: sums, rows as one file, and periods at other prices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from n4n.v1 import usage_pb2

Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What the attempts of one group came to; `cost_usd` None: nothing in it had a price, `unpriced` attempts are not in it."""

    group: str
    requests: int
    attempts: int
    failed: int
    unknown: int
    unpriced: int
    estimated: int
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    counted_completion_tokens: int
    compared_completion_tokens: int
    cost_usd: str | None
    groups: tuple[str, ...] = ()  # one for each name that was asked for; `group` is the first
    counted_prompt_tokens: int = 0
    compared_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class UsageRating:
    """A period at other prices; `kept`: of `rows`, those at the price they had. Money is decimal text, times are Unix ms."""

    label: str
    since_ms: int
    until_ms: int
    author: str
    created_at_ms: int
    prices: str
    rows: int
    kept: int
    unpriced: int
    before_usd: str
    cost_usd: str
    done: bool


class Caller(Protocol):
    """Who asks. Errors as the control client's."""

    async def ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """One answer."""
        ...

    def ask_many(self, method: str, request: Message, reply: type[Reply]) -> AsyncIterator[Reply]:
        """Answers as they come; however long that takes."""
        ...


class UsageCalls:
    """Part of the control client."""

    async def usage(
        self: Caller, by: str, since_ms: int, until_ms: int | None = None, *, label: str = "", only: Mapping[str, str] | None = None
    ) -> tuple[UsageTotal, ...]:
        """Sums by tenant, key, model, provider, endpoint or day, or by several of them, comma separated, of the attempts that began in
        this span (Unix ms), of `only` those names, at the costs of a rating (`label`)."""
        request = usage_pb2.UsageQuery(by=by, since_ms=since_ms, until_ms=until_ms, label=label, only=only)
        return tuple(map(_total, (await self.ask("Usage/Query", request, usage_pb2.UsageReply)).rows))

    async def export_usage(
        self: Caller, by: str, since_ms: int, until_ms: int | None = None, *, label: str = ""
    ) -> AsyncIterator[bytes | int]:
        """A CSV file in parts (`rows`: every attempt; `day`: sums of days), and at last how many lines it has."""
        request = usage_pb2.UsageExport(by=by, since_ms=since_ms, until_ms=until_ms, label=label)
        async for part in self.ask_many("Usage/Export", request, usage_pb2.UsageExportPart):
            yield part.csv or int(part.lines)

    async def rerate(
        self: Caller,
        label: str,
        since_ms: int,
        until_ms: int | None = None,
        *,
        author: str,
        catalog_version: int | None = None,
        prices_json: str | None = None,
    ) -> AsyncIterator[UsageRating]:
        """How far it is; the last one is done."""
        request = usage_pb2.UsageRerate(
            label=label, since_ms=since_ms, until_ms=until_ms, author=author, catalog_version=catalog_version, prices_json=prices_json
        )
        async for told in self.ask_many("Usage/Rerate", request, usage_pb2.UsageRating):
            yield _rating(told)

    async def ratings(self: Caller) -> tuple[UsageRating, ...]:
        """What was rated anew, newest first."""
        return tuple(map(_rating, (await self.ask("Usage/Ratings", usage_pb2.UsageRatingsQuery(), usage_pb2.UsageRatings)).ratings))


def _total(told: usage_pb2.UsageRow) -> UsageTotal:
    return UsageTotal(
        group=told.group,
        requests=told.requests,
        attempts=told.attempts,
        failed=told.failed,
        unknown=told.unknown,
        unpriced=told.unpriced,
        estimated=told.estimated,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        cache_write_tokens=told.cache_write_tokens,
        completion_tokens=told.completion_tokens,
        reasoning_tokens=told.reasoning_tokens,
        counted_completion_tokens=told.counted_completion_tokens,
        compared_completion_tokens=told.compared_completion_tokens,
        counted_prompt_tokens=told.counted_prompt_tokens,
        compared_prompt_tokens=told.compared_prompt_tokens,
        cost_usd=told.cost_usd if told.HasField("cost_usd") else None,
        groups=tuple(told.groups),
    )


def _rating(told: usage_pb2.UsageRating) -> UsageRating:
    return UsageRating(
        label=told.label,
        since_ms=told.since_ms,
        until_ms=told.until_ms,
        author=told.author,
        created_at_ms=told.created_at_ms,
        prices=told.prices,
        rows=told.rows,
        kept=told.kept,
        unpriced=told.unpriced,
        before_usd=told.before_usd,
        cost_usd=told.cost_usd,
        done=told.done,
    )
