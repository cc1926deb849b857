"""All that a request leaves behind: its answer, log line, trace at a receiver, rows in Postgres and metrics, gathered for comparison."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from prometheus_client.parser import text_string_to_metric_families
from psycopg.rows import dict_row

from data_plane.ledger import Ledger
from n4n.runtime.control_link import Identity
from n4n.runtime.segments import Segments
from n4n.runtime.tracing import Tracing
from n4n.runtime.usage_link import UsageLink
from tests.control_plane.client import NODE
from tests.support.otlp import Receiver, Seen
from tests.support.router import RunningRouter, running_router
from tests.support.stores import libpq_url

WITHIN_S = 15.0
TURNS = [{"role": "user", "content": "ping"}]
BODIES: Mapping[str, Mapping[str, object]] = {
    "/v1/chat/completions": {"model": "m", "messages": TURNS},
    "/v1/completions": {"model": "m", "prompt": "ping"},
    "/v1/messages": {"model": "m", "max_tokens": 50, "messages": TURNS},
    "/v1/responses": {"model": "m", "input": "ping"},
}
WAYS = [(path, stream) for path in BODIES for stream in (False, True)]
COUNTED = frozenset((
    "llm_requests_total", "llm_request_latency_seconds_count", "llm_request_latency_seconds_sum", "n4n_overhead_seconds_count",
    "llm_ttft_seconds_count", "llm_ttft_seconds_sum", "llm_fallback_depth_count", "llm_fallback_depth_sum", "n4n_attempts_total",
    "llm_tokens_total", "llm_cost_usd_total", "n4n_unpriced_attempts_total", "llm_queue_seconds_count", "llm_queue_seconds_sum",
    "n4n_active_streams",
))  # fmt: skip
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True)
class Answered:
    """What the client has; `status` 0: it left. Names of headers in lower case."""

    label: str
    status: int
    headers: Mapping[str, str]
    text: str
    sent: int  # bytes of the body that was sent

    @property
    def note(self) -> dict[str, Any]:
        """The `n4n` block, wherever the skin has it; {}: there is none."""
        events = [line[6:] for line in self.text.splitlines() if line.startswith("data: {")] or [self.text]
        for event in reversed(events):
            told = json.loads(event)
            for place in (told, told.get("response"), told.get("error")):
                if isinstance(place, dict) and "n4n" in place:
                    return dict(place["n4n"])
        return {}


@dataclass
class Told:
    """One request in every sink."""

    label: str
    line: dict[str, Any]
    spans: Sequence[Seen]  # the server's first
    rows: Sequence[dict[str, Any]]  # by number

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """As the log line has them."""
        return list(self.line["routing"]["attempts"])

    @property
    def server(self) -> Seen:
        """The span of the request."""
        return self.spans[0]

    @property
    def clients(self) -> list[Seen]:
        """The spans of its attempts."""
        return [span for span in self.spans if span.kind == "CLIENT"]


@dataclass
class Scene:
    """A router whose every sink is watched."""

    house: RunningRouter
    received: Receiver
    database: str

    async def ask(
        self,
        label: str,
        path: str,
        *,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        **fields: object,
    ) -> Answered:
        """One request, labelled so that every sink finds it; `body` instead of a good one."""
        whole: dict[str, object] = {**BODIES.get(path, {"model": "m"}), **({"stream": True} if stream else {}), **fields}
        sent = json.dumps(whole).encode() if body is None else body
        told = {**self.house.headers(x_request_id=label), "content-type": "application/json", **(headers or {})}
        url = f"http://127.0.0.1:{self.house.port}{path}"
        async with self.house.http.post(url, data=sent, headers=told) as answer:
            got = {name.lower(): value for name, value in answer.headers.items()}
            return Answered(label, answer.status, got, (await answer.read()).decode(), len(sent))

    async def metrics(self) -> Samples:
        """/metrics as it stands."""
        async with self.house.http.get(f"http://127.0.0.1:{self.house.port}/metrics") as answer:
            text = await answer.text()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def told(self, *labels: str) -> list[Told]:
        """What the sinks have of these requests, once it is all there."""
        lines = {str(line["request_id"]): line for line in await self.house.logged(len(labels))}
        assert lines.keys() == set(labels)
        await self._until(lambda: set(labels) <= {span.attributes.get("n4n.request_id") for span in self.received.spans}, "the traces")
        wanted = sum(len(line["routing"]["attempts"]) for line in lines.values())
        rows, until = await self.rows(labels), time.monotonic() + WITHIN_S
        while len(rows) < wanted:
            assert time.monotonic() < until, f"waited {WITHIN_S:g} s for the rows"
            await asyncio.sleep(0.02)
            rows = await self.rows(labels)
        found = []
        for label in labels:
            server = next(span for span in self.received.spans if span.attributes.get("n4n.request_id") == label)
            rest = [span for span in self.received.spans if span.trace_id == server.trace_id and span is not server]
            spans = [server, *sorted(rest, key=lambda span: span.start_ns)]
            found.append(Told(label, lines[label], spans, [row for row in rows if row["request_id"] == label]))
        return found

    async def rows(self, labels: Iterable[str]) -> list[dict[str, Any]]:
        """Of the ledger, by number. Beside the loop: a control plane that lives in it may hold the table for a moment."""
        return await asyncio.to_thread(self._rows, list(labels))

    def _rows(self, labels: list[str]) -> list[dict[str, Any]]:
        with psycopg.connect(libpq_url(self.database), row_factory=dict_row) as connection:
            query = "SELECT * FROM usage_ledger WHERE request_id = ANY(%s) ORDER BY request_id, attempt_no"
            return connection.execute(query, (labels,)).fetchall()

    async def _until(self, holds: Any, what: str) -> None:
        until = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < until, f"waited {WITHIN_S:g} s for {what}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def scene(
    document: Mapping[str, object],
    folder: Path,
    *,
    control_plane: int,
    database: str,
    received: Receiver,
    tracing: Tracing,
    **more: Any,
) -> AsyncIterator[Scene]:
    """A router over `document` that ships its rows to the control plane at this port, and its spans to the receiver."""
    async with running_router(document, tracing=tracing, **more) as house:
        ledger = Ledger()
        segments = ledger.segments = Segments(folder, "r", carried=ledger.unsettled)
        house.web._meter.ledger = ledger
        who = Identity("r1", "data-plane", "test", NODE)
        link = UsageLink([f"127.0.0.1:{control_plane}"], who, segments, clock=time.monotonic, draw=lambda: 0.5, every_s=0.02)
        shipping = asyncio.create_task(link.run())
        try:
            yield Scene(house, received, database)
        finally:
            shipping.cancel()
            await asyncio.wait([shipping])
            segments.close()


def agree(told: Told, answered: Answered | None = None) -> None:
    """Every sink tells the same of one request. `answered` None: its client left."""
    line, span, label = told.line, told.server, told.label
    routing, usage = line["routing"], line["usage"]
    said = span.attributes

    def same(what: str, one: object, other: object, *, by: float = 0.0) -> None:
        near = isinstance(one, int | float) and isinstance(other, int | float) and abs(one - other) <= by
        assert near or one == other, f"{label}: {what} is {one!r} here and {other!r} there\n{line}\n{said}\n{told.rows}"

    same("trace", line["trace_id"], span.trace_id)
    for name, field in (("status", "http.response.status_code"), ("outcome", "n4n.outcome"), ("priority", "n4n.priority"),
                        ("key_id", "n4n.key_id"), ("tenant", "n4n.tenant"), ("bytes_in", "http.request.body.size"),
                        ("bytes_out", "http.response.body.size")):  # fmt: skip
        same(name, line[name], said.get(field))
    same("error", line["error"], said.get("error.type") if line["error"] else None)
    same("failed", span.failed, line["outcome"] in ("error", "cancelled"))
    for name, field in (("catalog_version", "n4n.catalog_version"), ("selected", "n4n.endpoint"), ("fallback_attempts",) * 2):
        same(name, routing[name], said.get(field if field.startswith("n4n.") else f"n4n.{field}"))
    same("directives", routing["directives_applied"], said.get("n4n.directives", []))
    same("candidates", routing["candidates_considered"], said.get("n4n.candidates", 0))
    same("warnings", len(line["warnings"]), said.get("n4n.warnings", 0))
    same("latency", line["latency_ms"], (span.end_ns - span.start_ns) / 1e6, by=0.06)
    same("overhead", line["overhead_ms"], said["n4n.overhead_ms"], by=0.06)
    same("queue", line["queue_ms"], said.get("n4n.queue_ms", 0.0), by=0.06)
    same("hold", line["hold_ms"], said.get("n4n.guard_hold_ms"), by=0.06)
    first = said.get("gen_ai.response.time_to_first_chunk")
    same("first token", line["ttft_ms"], None if first is None else float(first) * 1000, by=0.06)  # type: ignore[arg-type]
    cost = said.get("n4n.cost_usd")
    same("cost", None if usage is None else usage["cost_usd"], None if cost is None else float(str(cost)))
    same("preference overridden", routing["preference_overridden"], said.get("n4n.preference_overridden"))
    _tokens(told, same)
    _attempts(told, same)
    if answered is not None:
        _answer(told, answered, same)


def _tokens(told: Told, same: Any) -> None:
    usage, said = told.line["usage"], told.server.attributes
    if usage is None:
        same("usage", said.get("gen_ai.usage.input_tokens"), None)
        same("billed", sum(row["prompt_tokens"] + row["completion_tokens"] for row in told.rows), 0)
        same("cost", sum(row["cost_usd"] for row in told.rows), 0)
        return
    last = told.rows[-1] if told.rows else None
    for name, field in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"),
                        ("cached_tokens", "cache_read.input_tokens"), ("reasoning_tokens", "reasoning.output_tokens")):  # fmt: skip
        same(name, usage[name], said[f"gen_ai.usage.{field}"])
        same(name, usage[name], told.clients[-1].attributes[f"gen_ai.usage.{field}"])
        assert last is not None
        same(name, usage[name], last[name])
    assert last is not None
    same("estimated", usage["estimated"], last["estimated"])
    same(
        "counted",
        (usage["local_prompt_tokens"], usage["local_completion_tokens"]),
        (last["counted_prompt_tokens"], last["counted_completion_tokens"]),
    )
    same("cost", None if last["cost_usd"] is None else float(last["cost_usd"]), usage["cost_usd"])
    if last["cost_usd"] is not None:
        same("cost", sum((row["cost_usd"] for row in told.rows), Decimal()), last["cost_usd"])


def _attempts(told: Told, same: Any) -> None:
    line, attempts, clients, rows = told.line, told.attempts, told.clients, told.rows
    same("attempts", len(attempts), len(clients))
    same("attempts", len(attempts), len(rows))
    for number, (attempt, span, row) in enumerate(zip(attempts, clients, rows, strict=True), 1):
        said = span.attributes
        same("parent", span.parent_id, told.server.span_id)
        same("number", row["attempt_no"], number)
        for name in ("attempt_id", "endpoint", "account"):
            same(name, attempt[name], said[f"n4n.{name}"])
            same(name, attempt[name], row[name])
        same("outcome", attempt["outcome"], said["n4n.outcome"])
        same("outcome", attempt["outcome"], row["error_class"] or row["state"])
        same("failed", span.failed, attempt["outcome"] != "ok")
        same("status", row["status"], said.get("http.response.status_code"))
        same("latency", attempt["ms"], (span.end_ns - span.start_ns) / 1e6, by=0.06)
        same("latency", attempt["ms"], row["latency_ms"], by=0.06)
        same("start", row["started_at"].timestamp() * 1e6, span.start_ns / 1000, by=2.0)
        same("stream", line["stream"], row["stream"])
        same("provider", said["n4n.provider"], row["provider"])
        last = number == len(attempts)
        same("first token", row["ttft_ms"], line["ttft_ms"] if last else None, by=0.06)
        for name in ("tenant", "key_id", "priority"):
            same(name, line[name], row[name])
        same("version", line["routing"]["catalog_version"], row["catalog_version"])
    if attempts:
        same("selected", line["routing"]["selected"], attempts[-1]["endpoint"])


def _answer(told: Told, answered: Answered, same: Any) -> None:
    line, headers, note = told.line, answered.headers, answered.note
    same("status", answered.status, line["status"])
    same("label", headers["x-request-id"], line["request_id"])
    if line["bytes_in"]:  # who asks nobody we know, or at no place that there is, is not read
        same("bytes in", answered.sent, line["bytes_in"])
    same("bytes out", len(answered.text.encode()), line["bytes_out"])
    if "x-n4n-fallback-attempts" in headers and not line["stream"]:
        same("fallbacks", int(headers["x-n4n-fallback-attempts"]), line["routing"]["fallback_attempts"])
    if "usage" in note and not line.get("idempotent_replay"):
        same("usage", note["usage"], line["usage"])
        same("endpoint", note["endpoint"], line["routing"]["selected"])
    if "attempts" in note:
        failed = [(one["endpoint"], one["outcome"]) for one in told.attempts if one["outcome"] != "ok"]
        same("attempts", [(one["endpoint"], one["class"]) for one in note["attempts"]], failed)


def counted(told: Sequence[Told], names: Mapping[str, tuple[str, str]]) -> Samples:
    """What /metrics has to have gained by these requests, as the other sinks tell it. `names`: model and tier of what is none itself."""
    gained: Samples = {}

    def add(name: str, value: float, **labels: str) -> None:
        place = (name, tuple(sorted(labels.items())))
        gained[place] = gained.get(place, 0.0) + value

    for one in told:
        said, line = one.server.attributes, one.line
        provider, asked = str(said.get("n4n.provider", "")), str(said.get("gen_ai.request.model", ""))
        model, tier = names.get(asked, (asked, ""))
        route = {"provider": provider, "model": model, "tier": tier}
        assert all((row["model"], row["tier"]) == (model, tier) for row in one.rows), one.rows
        add("llm_requests_total", 1, **route, status=line["outcome"])
        add("llm_request_latency_seconds_count", 1, **route)
        add("llm_request_latency_seconds_sum", line["latency_ms"] / 1000, **route)
        add("n4n_overhead_seconds_count", 1)
        if line["ttft_ms"] is not None:
            add("llm_ttft_seconds_count", 1, **route)
            add("llm_ttft_seconds_sum", line["ttft_ms"] / 1000, **route)
        if one.attempts:
            add("llm_fallback_depth_count", 1, tier=tier)
            add("llm_fallback_depth_sum", line["routing"]["fallback_attempts"], tier=tier)
        for row, attempt in zip(one.rows, one.attempts, strict=True):
            add("n4n_attempts_total", 1, provider=row["provider"], outcome=attempt["outcome"])
        if one.rows and line["usage"] is not None:
            add("llm_tokens_total", one.rows[-1]["prompt_tokens"], provider=provider, model=model, direction="input")
            add("llm_tokens_total", one.rows[-1]["completion_tokens"], provider=provider, model=model, direction="output")
            cost = one.rows[-1]["cost_usd"]
            add("llm_cost_usd_total", float(cost or 0), provider=provider, model=model)
            add("n4n_unpriced_attempts_total", cost is None, provider=provider, model=model)
        if line["queue_ms"]:
            add("llm_queue_seconds_count", 1, priority=line["priority"])
            add("llm_queue_seconds_sum", line["queue_ms"] / 1000, priority=line["priority"])
    return {place: value for place, value in gained.items() if value}


def gained(before: Samples, after: Samples) -> Samples:
    """What was added of the metrics that tell of requests."""
    grown = {place: value - before.get(place, 0.0) for place, value in after.items() if place[0] in COUNTED}
    return {place: value for place, value in grown.items() if abs(value) > 1e-12}
