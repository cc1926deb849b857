"""What became of a request, told by its answer, its log line, its trace, its rows in the ledger and the metrics: one story each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis

from n4n.core.budgets import Budget, Unit, pico_of
from n4n.core.errors import KeyRevoked
from n4n.runtime.tracing import tracing_of
from tests.control_plane.client import a_plane
from tests.support import answers
from tests.support.answers import completion, error, hang_after, hang_before_headers, partial, rate_limited, sse, usage
from tests.support.call import Reply
from tests.support.otlp import receiver
from tests.support.router import catalog
from tests.support.script import Rst, Sleep, Whole, compact
from tests.support.sinks import WAYS, Answered, Scene, Told, agree, counted, gained, scene
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")
STREAMS = [(path, stream) for path, stream in WAYS if stream]
AT_ONCE = {"stream_guard": {"chunks": 1, "max_hold_ms": 1}, "retry": {"max_retries": 0}}
NO_NAMES: Mapping[str, tuple[str, str]] = {}
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
VECTORS = compact({"object": "list", "data": [VECTOR], "model": "x", "usage": {"prompt_tokens": 3, "total_tokens": 3}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sinks(module_postgres_url: str) -> AsyncIterator[Mapping[str, Any]]:
    """A control plane with its ledger, and a receiver of traces: what every router of this file tells."""
    with pytest.MonkeyPatch.context() as patched, receiver() as received:
        for name, value in received.environ().items():
            patched.setenv(name, value)
        tracing = tracing_of(received.environ(), "data-plane", "r1")
        assert tracing is not None
        async with a_plane(module_postgres_url) as plane:
            yield {"control_plane": plane.port, "database": module_postgres_url, "received": received, "tracing": tracing}
        await asyncio.to_thread(tracing.close)


def many(*urls: str) -> dict[str, object]:
    """A model for each way to ask, `m0` and so on, with endpoints of its own: what failed for one is not held against the others."""
    whole: dict[str, Any] = {}
    for number in range(len(WAYS)):
        for kind, named in catalog(*urls).items():
            for name, fields in named.items():  # type: ignore[attr-defined]
                own = {**fields, **{part: f"{fields[part]}.{number}" for part in ("provider", "account") if part in fields}}
                whole.setdefault(kind, {})[f"m{number}" if kind == "models" else f"{name}.{number}"] = own
                if kind == "endpoints":
                    own["model"] = f"m{number}"
    return whole


def play(stream: bool, *pieces: str) -> Reply:
    """A good answer."""
    told = usage(20, 9, cached=5, reasoning=3)
    return sse(*(pieces or ("po", "ng")), usage=told) if stream else completion("".join(pieces) or "pong", usage=told)


async def check(
    stage: Scene, before: Mapping[Any, float], found: Sequence[Answered | str], names: Mapping[str, tuple[str, str]] = NO_NAMES
) -> list[Told]:
    """All sinks agree with each other and with the answers; a text stands for a client that left."""
    told = await stage.told(*(one if isinstance(one, str) else one.label for one in found))
    for one, answered in zip(told, found, strict=True):
        agree(one, None if isinstance(answered, str) else answered)
    wanted, until = counted(told, names), time.monotonic() + 10
    while True:  # a page of metrics may be a moment old
        grown = gained(dict(before), await stage.metrics())
        both = {**wanted, **grown}
        same = {place: grown.get(place, 0.0) for place in both} == pytest.approx(
            {place: wanted.get(place, 0.0) for place in both}, abs=2e-4 * len(told)
        )
        if same:
            break
        assert time.monotonic() < until, {place: (grown.get(place), wanted.get(place)) for place in both}
        await asyncio.sleep(0.1)
    return told


async def test_a_request_that_fell_back_twice(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two, ScriptedUpstream() as three:
        one.script(then=error(503))
        two.script(then=(*answers.garbled(),))
        three.script(then=lambda call: play(bool(call.json.get("stream"))))
        async with scene(many(one.base_url, two.base_url, three.base_url), tmp_path, **sinks) as stage:
            before, found = await stage.metrics(), []
            for number, (path, stream) in enumerate(WAYS):
                found.append(await stage.ask(f"fell-back{path}-{stream}", path, stream=stream, model=f"m{number}"))
            told = await check(stage, before, found)
    for one_told, (_, stream) in zip(told, WAYS, strict=True):
        tried = [(one["endpoint"].partition(".")[0], one["outcome"]) for one in one_told.attempts]
        assert tried == [("e1", "overloaded"), ("e2", "server_error"), ("e3", "ok")]
        line = one_told.line
        assert (line["status"], line["outcome"], line["routing"]["fallback_attempts"], line["stream"]) == (200, "success", 2, stream)
        assert (line["usage"]["prompt_tokens"], line["usage"]["completion_tokens"]) == (20, 9)
        assert one_told.clients[-1].attributes["gen_ai.response.finish_reasons"]
        first = one_told.clients[-1].attributes["gen_ai.response.time_to_first_chunk"]
        assert 0 < float(first) * 1000 < line["ttft_ms"], "of the attempt, not of the request"  # type: ignore[arg-type]


async def test_a_request_that_every_endpoint_failed(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two:
        one.script(then=answers.reset())
        two.script(then=error(500))
        async with scene(many(one.base_url, two.base_url), tmp_path, **sinks) as stage:
            before = await stage.metrics()
            found = [await stage.ask(f"failed{at}", path, stream=stream, model=f"m{at}") for at, (path, stream) in enumerate(WAYS)]
            for one_told in await check(stage, before, found):
                assert (one_told.line["outcome"], one_told.line["status"], one_told.server.failed) == ("error", 502, True)
                assert len(one_told.attempts) >= 2


async def test_a_request_that_waited_in_the_queue(sinks: Mapping[str, Any], tmp_path: Path, redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        upstream.script(then=lambda call: play(bool(call.json.get("stream"))))
        document = catalog(upstream.base_url)
        document["accounts"]["ae1"]["limits"] = {"rpm": 900, "burst": 1}  # type: ignore[index]
        async with scene(document, tmp_path, store=store, **sinks) as stage:
            before = await stage.metrics()
            asking = [stage.ask(f"queued{path}-{stream}", path, stream=stream) for path, stream in WAYS]
            told = await check(stage, before, await asyncio.gather(*asking))
    waited = [one for one in told if one.line["queue_ms"]]
    assert len(waited) >= len(WAYS) - 1
    for one in waited:
        (queue,) = [span for span in one.spans if span.name == "n4n queue"]
        assert queue.parent_id == one.server.span_id
        if one.server.attributes["n4n.queue_ms"] == pytest.approx((queue.end_ns - queue.start_ns) / 1e6, abs=0.1):
            assert one.clients[0].start_ns >= queue.end_ns - 100_000, "it was sent when its turn had come"


async def test_a_request_that_left_the_queue(sinks: Mapping[str, Any], tmp_path: Path, redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        document = catalog(upstream.base_url)
        document["accounts"]["ae1"]["limits"] = {"rpm": 30, "burst": 1}  # type: ignore[index]
        async with scene(document, tmp_path, store=store, **sinks) as stage:
            before = await stage.metrics()
            found: list[Answered | str] = [await stage.ask("queue-first", "/v1/chat/completions")]
            leaving = asyncio.create_task(stage.ask("queue-left", "/v1/messages", stream=True))
            async with asyncio.timeout(5):
                while not sum(stage.house.router.quotas.waiting.values()):  # type: ignore[union-attr]  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            leaving.cancel()
            await asyncio.wait([leaving])
            _, left = await check(stage, before, [*found, "queue-left"])
    assert (left.line["status"], left.line["outcome"], left.attempts, left.rows) == (499, "cancelled", [], [])
    assert left.line["queue_ms"] > 40


async def test_a_request_that_a_directive_refused(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        async with scene(catalog(upstream.base_url, upstream.base_url), tmp_path, **sinks) as stage:
            before = await stage.metrics()
            refusing = {"x-n4n-routing": "region=eu"}
            found = [await stage.ask(f"refused{path}-{stream}", path, stream=stream, headers=refusing) for path, stream in WAYS]
            found.append(
                await stage.ask(
                    "refused-count",
                    "/v1/messages/count_tokens",
                    headers=refusing,
                    messages=[{"role": "user", "content": "x"}],
                )
            )
            told = await check(stage, before, found)
        assert not upstream.calls
    for one, answered in zip(told, found, strict=True):
        assert (one.line["status"], one.line["outcome"], one.line["error"]) == (400, "rejected", "no_eligible_endpoint")
        assert one.line["routing"]["directives_applied"] == ["region=eu"]
        assert (one.line["eliminated"], answered.note["eliminated"]) == ({"region=eu": 2}, {"region=eu": 2})
        assert one.line["routing"]["candidates_considered"] == answered.note["candidates"] == 2
        assert one.server.attributes["n4n.eliminated"] == ["region=eu: 2"]
        assert (one.server.attributes["gen_ai.request.model"], one.server.failed, one.rows) == ("m", False, [])


@pytest.mark.parametrize("seen", [False, True], ids=["before-the-first-byte", "in-the-middle"])
async def test_a_request_that_its_client_aborted(sinks: Mapping[str, Any], tmp_path: Path, seen: bool) -> None:
    ways = STREAMS if seen else WAYS
    async with ScriptedUpstream() as upstream:
        upstream.script(then=hang_after(*"abcdefgh") if seen else hang_before_headers())
        async with scene(catalog(upstream.base_url, model=AT_ONCE), tmp_path, **sinks) as stage:
            before, labels = await stage.metrics(), []
            for number, (path, stream) in enumerate(ways, 1):
                labels.append(f"aborted-{seen}{path}-{stream}")
                leaving = asyncio.create_task(_first_bytes(stage, labels[-1], path, stream))
                await (leaving if seen else upstream.arrived(number))
                leaving.cancel()
                await asyncio.wait([leaving])
            told = await check(stage, before, labels)
    for one in told:
        (attempt,), (row,) = one.attempts, one.rows
        assert (one.line["status"], one.line["outcome"], attempt["outcome"], row["state"]) == (499, "cancelled", "cancelled", "cancelled")
        assert one.line["usage"]["estimated"]
        assert row["cost_usd"] > 0
        assert (row["completion_tokens"] > 0) is seen is (one.line["ttft_ms"] is not None)


async def _first_bytes(stage: Scene, label: str, path: str, stream: bool) -> None:
    from tests.support.sinks import BODIES

    url, headers = f"http://127.0.0.1:{stage.house.port}{path}", stage.house.headers(x_request_id=label)
    async with stage.house.http.post(url, json={**BODIES[path], "stream": stream}, headers=headers) as answer:
        await answer.content.readany()


async def test_a_stream_that_was_cut_after_it_began(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=(*partial("one", "two", "three", "four"), Sleep(0.03), Rst()))
        async with scene(catalog(upstream.base_url, model=AT_ONCE), tmp_path, **sinks) as stage:
            before = await stage.metrics()
            found = [await stage.ask(f"cut{path}", path, stream=True) for path, _ in STREAMS]
            told = await check(stage, before, found)
    for one, answered in zip(told, found, strict=True):
        (attempt,), (row,) = one.attempts, one.rows
        assert (one.line["status"], one.line["outcome"], one.line["error"]) == (200, "error", "stream_interrupted")
        assert (attempt["outcome"], row["state"], row["estimated"]) == ("server_error", "partial", True)
        assert one.line["usage"]["completion_tokens"] > 0
        assert "stream_interrupted" in answered.text


async def test_a_request_that_the_gateway_ended_itself(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    """A router that must leave, and a key that was revoked: neither is the client's doing, one is the provider's."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=hang_before_headers())
        async with scene(catalog(upstream.base_url, model=AT_ONCE), tmp_path, **sinks) as stage:
            before, found = await stage.metrics(), []
            for label, how in (("revoked", "end"), ("drained", "cut")):
                asking = asyncio.create_task(stage.ask(label, "/v1/chat/completions"))
                await upstream.arrived(len(found) + 1)
                if how == "cut":
                    stage.house.web.cut()
                else:
                    (task,) = stage.house.web.running
                    stage.house.web.end(task, KeyRevoked())
                found.append(await asking)
            revoked, drained = await check(stage, before, found)
    assert (revoked.line["outcome"], revoked.attempts[0]["outcome"], revoked.rows[0]["state"]) == ("cancelled",) * 3
    assert (drained.line["outcome"], drained.line["status"], drained.attempts[0]["outcome"]) == ("error", 503, "error")
    assert (drained.rows[0]["state"], drained.rows[0]["error_class"]) == ("failed", "error")


async def test_a_request_that_was_answered_before(sinks: Mapping[str, Any], tmp_path: Path, redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        upstream.script(then=lambda call: play(bool(call.json.get("stream"))))
        async with scene(catalog(upstream.base_url), tmp_path, store=store, **sinks) as stage:
            before, found = await stage.metrics(), []
            for path, stream in WAYS:
                for turn in ("first", "again"):
                    key = {"idempotency-key": f"{path}{stream}"}
                    found.append(await stage.ask(f"once-{turn}{path}-{stream}", path, stream=stream, headers=key))
            told = await check(stage, before, found)
        assert len(upstream.calls) == len(WAYS)
    for first, again in zip(told[::2], told[1::2], strict=True):
        assert (first.line.get("idempotent_replay"), again.line["idempotent_replay"]) == (None, True)
        assert again.server.attributes["n4n.idempotent_replay"] is True
        assert (again.line["usage"], again.attempts, again.rows, again.line["status"]) == (None, [], [], 200)


async def test_a_request_beyond_a_budget_and_one_beyond_a_limit(sinks: Mapping[str, Any], tmp_path: Path, redis_url: str) -> None:
    spent = Budget(Unit.USD, pico_of("0.05"), "day", False, round(time.time() * 1000))
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        upstream.script(then=completion("pong", usage=usage(4000, 4000)))
        async with scene(catalog(upstream.base_url), tmp_path, store=store, **sinks) as stage:
            before, found = await stage.metrics(), []
            stage.house.use_key(public_id="budgetbudget", budgets=(spent,))
            found.append(await stage.ask("spends", "/v1/chat/completions", max_tokens=4000))
            await _settled(redis_url)
            found += [await stage.ask(f"spent{path}-{stream}", path, stream=stream) for path, stream in WAYS]
            stage.house.use_key(public_id="limitslimits", budgets=(), limits={"rpm": 1, "burst": 1})
            found.append(await stage.ask("takes", "/v1/chat/completions"))
            found += [await stage.ask(f"taken{path}-{stream}", path, stream=stream) for path, stream in WAYS]
            told = await check(stage, before, found)
        assert len(upstream.calls) == 2
    beyond = {one.label: one for one in told if one.line["status"] != 200}
    assert len(beyond) == 2 * len(WAYS)
    for label, one in beyond.items():
        wanted = (402, "rejected", "budget_exceeded") if label.startswith("spent") else (429, "rate_limited", "rate_limited")
        assert (one.line["status"], one.line["outcome"], one.line["error"]) == wanted
        assert one.line["routing"]["candidates_considered"] == 1


async def _settled(url: str) -> None:
    """Until the budget knows what the first request cost."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        async with asyncio.timeout(5):
            while float(client.hget("n4n:{t:acme}:budgetbudget:m", "usd/day:s") or 0) != 5e10:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_request_that_all_providers_limit(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=rate_limited(retry_after=60))
        async with scene(catalog(upstream.base_url), tmp_path, **sinks) as stage:
            before = await stage.metrics()
            found = [await stage.ask(f"limited{path}-{stream}", path, stream=stream) for path, stream in WAYS]
            told = await check(stage, before, found)
    assert {one.line["status"] for one in told} == {429}
    assert {one.line["outcome"] for one in told} == {"rate_limited"}
    assert [len(one.attempts) for one in told] == [1, *[0] * (len(WAYS) - 1)], "who was told to wait asks nobody"


async def test_a_request_that_makes_no_sense(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        async with scene(catalog(upstream.base_url), tmp_path, **sinks) as stage:
            before, found = await stage.metrics(), []
            for path, stream in WAYS:
                found.append(await stage.ask(f"unknown{path}-{stream}", path, stream=stream, model="nobody's"))
                found.append(await stage.ask(f"bad{path}-{stream}", path, body=b'{"model":"m","stream":%b' % str(stream).lower().encode()))
            found.append(await stage.ask("no-route", "/v1/nothing"))
            wrong = {"authorization": f"Bearer {stage.house.key}x"}
            found.append(await stage.ask("no-key", "/v1/chat/completions", headers=wrong))
            told = await check(stage, before, found)
        assert not upstream.calls
    statuses = [one.line["status"] for one in told]
    assert statuses == [404, 400] * len(WAYS) + [404, 401]
    for one in told:
        assert (one.line["outcome"], one.attempts, one.rows, one.line["usage"]) == ("rejected", [], [], None)
        assert "nobody" not in repr(one.spans) and one.server.attributes["error.type"] == one.line["error"]


async def test_a_count_of_tokens_and_embeddings(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script((answers.JSON, Whole(b'{"input_tokens":14}')), (answers.JSON, Whole(VECTORS)), error(500))
        document = catalog(upstream.base_url, upstream.base_url)
        document["providers"]["pe1"]["dialect"] = "anthropic"  # type: ignore[index]
        document["models"]["v"] = {"retry": {"max_retries": 0}}  # type: ignore[index]
        document["endpoints"]["e2"] |= {"model": "v", "supports": ["embeddings"], "price": {"input_per_1m": 2}}  # type: ignore[index]
        async with scene(document, tmp_path, **sinks) as stage:
            before = await stage.metrics()
            turns = [{"role": "user", "content": "ping"}]
            found = [
                await stage.ask("counts", "/v1/messages/count_tokens", messages=turns),
                await stage.ask("embeds", "/v1/embeddings", model="v", input="ping"),
                await stage.ask("embeds-not", "/v1/embeddings", model="v", input="ping"),
            ]
            counts, embeds, failed = await check(stage, before, found)
    assert (counts.line["model"], counts.line["status"], counts.attempts, counts.rows) == ("m", 200, [], []), "counting is free"
    assert counts.server.attributes["gen_ai.request.model"] == "m"
    assert (embeds.line["usage"]["prompt_tokens"], embeds.rows[0]["cost_usd"]) == (3, Decimal("0.000006"))
    assert embeds.server.attributes["gen_ai.operation.name"] == "embeddings"
    assert (failed.line["status"], failed.rows[0]["state"]) == (502, "failed")


async def test_a_request_that_was_tried_again_at_the_same_endpoint(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(*(reply for _, stream in WAYS for reply in (error(500), play(stream))))
        document = catalog(
            upstream.base_url, model={"retry": {"max_retries": 1, "backoff_ms": 1}, "circuit_breaker": {"failure_threshold": 100}}
        )
        async with scene(document, tmp_path, **sinks) as stage:
            before = await stage.metrics()
            found = [await stage.ask(f"again{path}-{stream}", path, stream=stream) for path, stream in WAYS]
            told = await check(stage, before, found)
    for one in told:
        assert [(attempt["endpoint"], attempt["outcome"]) for attempt in one.attempts] == [("e1", "server_error"), ("e1", "ok")]
        assert one.line["routing"]["fallback_attempts"] == 0


async def test_a_request_by_another_name_of_its_model(sinks: Mapping[str, Any], tmp_path: Path, redis_url: str) -> None:
    names = {"other/name": ("m", ""), "tier/t": ("m", "t"), "pe1/m": ("m", "")}
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        upstream.script(then=lambda call: play(bool(call.json.get("stream"))))
        document = catalog(upstream.base_url, upstream.base_url, model={"aliases": ["other/name"]})
        document["tiers"] = {"t": {"chain": ["m"]}}
        async with scene(document, tmp_path, store=store, **sinks) as stage:
            before, found = await stage.metrics(), []
            for name in names:
                for how, headers in (
                    ("served", {"idempotency-key": name}), ("replayed", {"idempotency-key": name}),
                    ("refused", {"x-n4n-routing": "region=eu"}),
                    ("against-its-wish", {"x-n4n-routing": "prefer=e2,exclude=endpoint:e1"}),
                ):  # fmt: skip
                    found.append(await stage.ask(f"{how}-{name}", "/v1/chat/completions", model=name, headers=headers))
            told = await check(stage, before, found, names)
    assert [one.server.attributes["gen_ai.request.model"] for one in told] == [name for name in names for _ in range(4)]


async def test_a_request_whose_preference_was_not_heard_and_one_without_a_price(sinks: Mapping[str, Any], tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(error(401), then=lambda call: play(bool(call.json.get("stream"))))
        document = catalog(upstream.base_url, upstream.base_url, endpoint={"price": {}})
        async with scene(document, tmp_path, **sinks) as stage:
            before, wish = await stage.metrics(), {"x-n4n-routing": "prefer=e1"}
            found = [await stage.ask(f"unpriced{path}-{stream}", path, stream=stream, headers=wish) for path, stream in WAYS]
            told = await check(stage, before, found)
    assert [one.line["routing"]["preference_overridden"] for one in told] == [None, *["prefer=e1: e1: cooldown"] * (len(WAYS) - 1)]
    assert {(one.line["usage"]["cost_usd"], one.rows[-1]["cost_usd"]) for one in told} == {(None, None)}
