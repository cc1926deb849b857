"""What a provider says was used: its own export read into one shape, whatever the export looks like.

    OpenAI      pages of /v1/organization/usage/… and /v1/organization/costs (JSON), and the CSV files that its dashboard exports
    Anthropic   pages of /v1/organizations/usage_report/messages and /cost_report (JSON)
    anything    CSV with a header: a day, a model, and counts or a cost, by any of the names below

Days are UTC, as theirs are. Money is USD. Sources: platform.openai.com/docs/api-reference/usage, docs.anthropic.com/en/api/usage-cost-api.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import cast

DAY = ("day", "date", "start_time_iso", "start_time", "starting_at", "timestamp", "usage_date_utc")
MODEL = ("model", "model_version", "line_item")
REQUESTS = ("requests", "num_model_requests", "n_requests", "num_requests")
INPUT = ("input_tokens", "prompt_tokens", "n_context_tokens_total")
UNCACHED = ("uncached_input_tokens", "usage_input_tokens_no_cache")  # with the next two the whole input
WRITTEN = (
    "cache_creation_input_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens", "usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h",
)  # fmt: skip
CACHED = (
    "input_cached_tokens", "cached_tokens", "cache_read_input_tokens", "cache_read_tokens", "usage_input_tokens_cache_read",
    "n_cached_context_tokens_total",
)  # fmt: skip
OUTPUT = ("output_tokens", "completion_tokens", "usage_output_tokens", "n_generated_tokens_total")
COST = ("cost_usd", "amount_value", "cost", "amount")
CURRENCY = ("amount_currency", "currency")
_MS = 10**11  # a number above is milliseconds
_MOST = 10**15  # tokens or USD of one day: more is no bill
_Cells = Mapping[str, object]


class NoExport(Exception):
    """The text is none of these; the message is one line that says what is missing, and where."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a provider says of one day and model. None: it says nothing of that; `model` None: of all models."""

    day: date
    model: str | None
    requests: Decimal | None = None
    input_tokens: Decimal | None = None  # all, cached and written included
    cached_tokens: Decimal | None = None
    output_tokens: Decimal | None = None
    cost_usd: Decimal | None = None

    @property
    def says_something(self) -> bool:
        """Whether there is anything to compare."""
        return any(told is not None for told in (self.requests, self.input_tokens, self.cached_tokens, self.output_tokens, self.cost_usd))


def read_export(text: str) -> list[Stated]:
    """Everything that an export says; NoExport."""
    if text.lstrip()[:1] in ("{", "["):
        return list(_of_json(text))
    try:
        return list(_of_csv(text))
    except csv.Error as error:  # a cell without an end, and the like
        raise NoExport(f"it is no CSV: {error}") from error


# --- CSV ---


def _of_csv(text: str) -> Iterator[Stated]:
    lines = text.splitlines()
    head = lines[0] if lines else ""
    rows = csv.reader(lines, delimiter=max(",;\t", key=head.count))
    names = [name.strip().lower().replace(" ", "_") for name in next(rows, [])]
    if not any(name in names for name in DAY):
        raise NoExport(f"its first line names no column for the day; call it one of {', '.join(DAY)}")
    if not any(name in names for group in (INPUT, UNCACHED, OUTPUT, COST) for name in group):
        raise NoExport(f"its first line names neither tokens nor a cost; call them {INPUT[0]}, {OUTPUT[0]}, {COST[0]}")
    for number, row in enumerate(rows, 2):
        cells = {name: cell.strip() for name, cell in zip(names, row, strict=False) if cell.strip()}
        if any(name in cells for name in DAY):
            yield _stated(cells, f"line {number}")


# --- JSON ---


def _of_json(text: str) -> Iterator[Stated]:
    try:
        read = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise NoExport(f"it is no JSON: {error}") from error
    buckets = list(_buckets(read))
    if not buckets:
        raise NoExport("it holds no `data` with buckets of `results`; save what the usage or costs API answers")
    for number, bucket in enumerate(buckets):
        starts = {name: bucket[name] for name in DAY if bucket.get(name)}
        for one in cast(Sequence[object], bucket["results"]):
            if isinstance(one, Mapping):
                yield _stated({**starts, **_flat(one)}, f"data[{number}]")


def _buckets(read: object) -> Iterator[Mapping[str, object]]:
    """Of one page, of several in a list, or of a list of buckets."""
    for page in read if isinstance(read, list) else [read]:
        if not isinstance(page, Mapping):
            continue
        inner = page.get("data")
        for bucket in inner if isinstance(inner, list) else [page]:
            if isinstance(bucket, Mapping) and isinstance(bucket.get("results"), list):
                yield bucket


def _flat(result: Mapping[str, object]) -> dict[str, object]:
    """Its own fields and those of its parts. Anthropic's cost report tells cents, as text; OpenAI's tells USD, with its currency beside."""
    told = {name: value for name, value in result.items() if not isinstance(value, Mapping)}
    for part in result.values():
        if isinstance(part, Mapping):
            told.update(part)
    amount = result.get("amount")
    if isinstance(amount, Mapping):
        told["amount_value"] = amount.get("value")
    elif isinstance(amount, str):
        told["amount_value"] = _number(amount, "amount") / 100
        del told["amount"]
    return told


# --- both ---


def _stated(cells: _Cells, where: str) -> Stated:
    currency = _first(cells, CURRENCY)
    if currency is not None and str(currency).lower() != "usd":
        raise NoExport(f"{where}: the amount is in {str(currency)[:10]!r}; only usd can be compared")
    cached, uncached, written = (_sum(cells, names, where) for names in (CACHED, UNCACHED, WRITTEN))
    whole = None if uncached is None else uncached + (cached or 0) + (written or 0)
    return Stated(
        _day(_first(cells, DAY), where),
        _model(cells),
        _sum(cells, REQUESTS, where),
        _sum(cells, INPUT, where) if whole is None else whole,
        cached,
        _sum(cells, OUTPUT, where),
        _one(cells, COST, where),
    )


def _first(cells: _Cells, names: Iterable[str]) -> object:
    return next((cells[name] for name in names if cells.get(name) is not None), None)


def _model(cells: _Cells) -> str | None:
    """A line item of the costs API is a model and what of it was used: "gpt-4o-2024-08-06, input"."""
    told = _first(cells, MODEL)
    return str(told).partition(",")[0].strip() or None if told is not None else None


def _sum(cells: _Cells, names: Iterable[str], where: str) -> Decimal | None:
    found = [_number(cells[name], f"{where}: {name}") for name in names if cells.get(name) is not None]
    return sum(found, Decimal()) if found else None


def _one(cells: _Cells, names: Iterable[str], where: str) -> Decimal | None:
    told = _first(cells, names)
    return None if told is None else _number(told, f"{where}: {COST[0]}")


def _number(told: object, where: str) -> Decimal:
    try:
        number = Decimal(str(told).removeprefix("$").replace(",", ""))
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or abs(number) > _MOST or isinstance(told, bool):
        raise NoExport(f"{where} must be a number, not {str(told)[:40]!r}")
    return number


def _day(told: object, where: str) -> date:
    text = str(told)
    try:
        if text.replace(".", "", 1).isdecimal() and len(text) > 8:
            seconds = int(float(text))
            at = datetime.fromtimestamp(seconds / 1000 if seconds > _MS else seconds, UTC)
        else:
            at = datetime.fromisoformat(text)
        if not 2000 <= at.year < 2100:
            raise ValueError(text)
    except (ValueError, OverflowError, OSError):
        raise NoExport(f"{where}: {text[:40]!r} is no day; write 2026-11-30, or Unix seconds") from None
    return (at.astimezone(UTC) if at.tzinfo else at).date()
