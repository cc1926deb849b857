"""A prober against real sockets and a real Redis: what it finds without any traffic, what it tells, and what it costs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping

import pytest

from n4n.core.health.signals import Signal, Source
from n4n.core.probes.rows import TENANT
from n4n.runtime.logs import JsonLines, fields
from n4n.runtime.stores import command
from tests.support.answers import completion, error, hang_before_headers, html, nothing, rate_limited, sse
from tests.support.call import Call, Reply
from tests.support.prober import RunningProber, running_prober
from tests.support.script import Answer
from tests.support.upstream import ScriptedUpstream

INTERVAL_S = 0.2
QUICK = {"interval_sec": INTERVAL_S, "timeout_ms": 300}
PRICE = {"input_per_1m": 2.5, "output_per_1m": 10}
MODELS = ("ill", "well", "fine")


def document(upstream: ScriptedUpstream, *, probe: Mapping[str, object] = QUICK, **provider: object) -> dict[str, object]:
    """Three models at one provider, one account."""
    return {
        "providers": {
            "acme": {
                "dialect": "openai",
                "base_url": upstream.base_url,
                "allow_private": True,
                "probe_budget_usd_per_day": 1_000_000,
                **provider,
            }
        },
        "accounts": {"acme-main": {"provider": "acme", "credential": "env:CANARY"}},
        "models": {name: {"probe": dict(probe), "circuit_breaker": {"recovery_timeout_sec": 0.2}} for name in MODELS},
        "endpoints": {f"e-{name}": {"model": name, "account": "acme-main", "price": PRICE, "supports": ["reasoning"]} for name in MODELS},
    }


def answering(of_ill: Reply) -> Reply:
    """One model does this; the others, and the root and /v1/models, answer."""

    def reply(call: Call) -> Answer:
        if call.method == "POST" and call.json["model"] == "ill":
            return of_ill(call) if callable(of_ill) else of_ill
        return completion("pong", finish="length")

    return reply


def score(running: RunningProber, name: str) -> float:
    """As every router reads it."""
    return running.health.score(f"e-{name}")


@pytest.mark.parametrize(
    "fault", [error(500), html(200), html(503), nothing(), hang_before_headers()], ids=["500", "a page", "a 503 page", "nothing", "silence"]
)
async def test_one_ill_model_of_a_provider_that_answers_is_found_in_three_intervals_without_traffic(redis_url: str, fault: Answer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(completion()))
        async with running_prober(document(upstream), redis_url) as running:
            await running.until(lambda: len({call.json["model"] for call in upstream.calls}) == 3, "every model to be probed")
            assert {score(running, name) for name in MODELS} == {1.0}
            upstream.script(then=answering(fault))
            failures = running.count("ill")
            await running.until(lambda: running.count("ill") >= failures + 3, "three failed probes")

            await running.until(lambda: score(running, "ill") < 0.2, "what they tell")
            fallen = [seen for seen in running.scores["e-ill"] if seen < 1.0]
            assert fallen[0] >= 0.4, "one single failure never excludes"
            assert score(running, "well") == score(running, "fine") == 1.0


async def test_a_model_that_recovered_comes_back_by_steps(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(error(500)))
        told = document(upstream)
        told["models"]["ill"]["health"] = {"step_sec": 0.01, "step_successes": 2}  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            await running.until(lambda: score(running, "ill") <= 0.06, "it to fall to the floor")
            upstream.script(then=answering(completion()))
            steps: list[float] = []
            while not steps or steps[-1] < 0.9:
                if not steps or score(running, "ill") != steps[-1]:
                    steps.append(score(running, "ill"))
                await asyncio.sleep(0.005)

            assert any(0.05 <= step <= 0.25 for step in steps), steps
            assert len([step for step in steps if step < 0.9]) >= 2, steps


async def test_a_limit_of_output_that_is_reached_is_well_and_a_stream_is_read_to_its_end(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        limit = error(400, message="Could not finish the message because max_tokens or model output limit was reached.")
        upstream.script(
            then=lambda call: sse("p") if call.json.get("stream") else limit if call.json["model"] == "ill" else completion(None)
        )
        told = document(upstream)
        profile = {**QUICK, "stream": False, "effort": "low", "param": "max_completion_tokens", "max_tokens": 3}
        told["models"]["fine"]["probe"] = profile  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            well = running.count("ok")
            await running.until(lambda: running.count("ok") >= well + 6, "probes that are answered")
            assert {score(running, name) for name in MODELS} == {1.0}
            assert not await running.findings()
            asked = {str(call.json["model"]): call.json for call in upstream.calls}
            message = {"messages": [{"role": "user", "content": "ping"}]}
            assert asked["fine"] == {"model": "fine", **message, "max_completion_tokens": 3, "reasoning_effort": "low"}
            assert asked["well"] == {
                "model": "well", **message, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True},
            }  # fmt: skip
            assert running.health.seen["e-well"].ttft_ms is not None


async def test_a_refused_parameter_is_a_misconfigured_probe_and_no_dead_model(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        refusal = "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead."
        upstream.script(then=answering(error(400, code="integer_below_min_value", type="invalid_request_error", message=refusal)))
        async with running_prober(document(upstream), redis_url) as running:
            finding = await running.found("misconfigured")

            assert finding.about == "endpoint e-ill" and finding.message.endswith("set probe: {max_tokens: 16} on the model")
            assert score(running, "ill") == 1.0
            upstream.script(then=answering(completion()))
            await running.until(lambda: not running.prober._notes._standing, "the finding to end")
            assert not await running.findings()


async def test_a_rate_limit_tells_of_quota_and_not_of_health(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(rate_limited(retry_after=7)))
        async with running_prober(document(upstream), redis_url) as running:
            limited = running.count("limited")
            await running.until(lambda: running.count("limited") > limited, "a limited probe")
            await running.until(lambda: running.store.pending == 0, "what was told")

            assert score(running, "ill") == 1.0 and not await running.findings()
            assert await cooling(running) == ["endpoint e-ill rate_limited"]


async def cooling(running: RunningProber) -> list[str]:
    """What routers are told to leave alone."""
    told = await running.store.command(command(b"ZRANGE", "n4n:{sight}:c", 0, -1))
    assert isinstance(told, list)
    return sorted(one.decode() for one in told if isinstance(one, bytes))


@pytest.mark.parametrize(
    ("answer", "failure_class"),
    [(error(401, code="invalid_api_key"), "auth"), (error(402, message="Insufficient credits"), "quota_exhausted")],
)
async def test_an_account_that_is_refused_is_out_and_an_alert_and_left_alone_meanwhile(
    redis_url: str, answer: Answer, failure_class: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answer)
        with caplog.at_level(logging.INFO, "n4n.prober"):
            async with running_prober(document(upstream), redis_url) as running:
                finding = await running.found("account_out")
                assert finding.about == "account acme-main"
                assert await cooling(running) == [f"account acme-main {failure_class}"]
                calls = len(upstream.calls)
                await asyncio.sleep(3 * INTERVAL_S)
                assert len(upstream.calls) <= calls + 3, "no more than what was under way"
                assert {score(running, name) for name in MODELS} == {1.0}
        lines = [json.loads(JsonLines("prober").format(record)) for record in caplog.records]
        assert [line["about"] for line in lines if line.get("alert") == "account_out"] == ["account acme-main"]
        assert "sk-canary" not in caplog.text and "127.0.0.1" not in caplog.text


async def test_a_model_that_is_gone_is_out_and_an_alert(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(error(404, code="model_not_found")))
        async with running_prober(document(upstream), redis_url) as running:
            assert (await running.found("gone")).about == "endpoint e-ill"
            assert await cooling(running) == ["endpoint e-ill model_not_found"]


async def test_without_a_key_nobody_is_called_and_it_is_told(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, running_prober(document(upstream), redis_url, secrets={}) as running:
        assert (await running.found("no_credential")).message.startswith("this prober has no key")
        assert not upstream.calls


async def test_live_traffic_spares_a_probe(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, running_prober(document(upstream, probe={"interval_sec": 1.0}), redis_url) as running:

        async def serve_well(until: int) -> None:
            while sum(call.json["model"] == "fine" for call in upstream.calls) < until:
                running.health.tell([Signal("e-ill", Source.LIVE), Signal("e-well", Source.LIVE)])
                await running.health.flush()  # successes are told every two seconds, which is more than this interval
                await asyncio.sleep(0.02)

        async with asyncio.timeout(15):
            await serve_well(until=2)
            begun, spared = len(upstream.calls), running.count("spared")
            await serve_well(until=4)

        assert running.count("spared") > spared
        asked = [call.json["model"] for call in upstream.calls[begun:]]
        assert asked.count("fine") == 2 and len(asked) <= 3, "the one that nobody used, and perhaps one more where this machine stood still"


async def test_probes_are_rows_of_a_tenant_of_their_own(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(error(500)))
        async with running_prober(document(upstream), redis_url) as running:
            await running.until(lambda: len(running.rows()) >= 6, "rows")
            rows = running.rows()
            assert {row.tenant for row in rows} == {TENANT} and {row.key_id for row in rows} == {TENANT}
            assert {row.state for row in rows if row.model == "ill"} == {"failed"}
            assert {(row.state, row.cost_usd) for row in rows if row.model == "well"} == {("ok", "0.0000975")}
            assert len({row.attempt_id for row in rows}) == len(rows)


async def test_no_more_is_spent_than_the_budget_of_the_provider(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=lambda call: completion("pong", usage={"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9}))
        told = document(upstream, probe={"interval_sec": 0.1}, probe_budget_usd_per_day="0.002")
        async with running_prober(told, redis_url) as running:
            await running.until(lambda: len(running.rows()) >= 3, "the first probes")
            await asyncio.sleep(0.8)

            spent = sum(float(row.cost_usd or 0) for row in running.rows())
            assert 0 < spent <= 0.002
            assert len(upstream.calls) <= 0.002 / 0.00003, "24 were planned and more"
            at_rest = len(upstream.calls)
            await asyncio.sleep(0.3)
            assert len(upstream.calls) <= at_rest + 2, "what is left is for the rest of the day"


async def test_checks_ask_for_obedience_and_failures_lower_the_score_of_the_capability(redis_url: str) -> None:
    def reply(call: Call) -> Answer:
        if call.json["max_tokens"] == 64:
            return completion("Paris" if "response_format" not in call.json else '{"answer": 42}')
        return completion("p", finish="length")

    async with ScriptedUpstream() as upstream:
        upstream.script(then=reply)
        told = document(upstream, probe={"interval_sec": 60, "checks_interval_sec": 1})
        told["endpoints"]["e-ill"].pop("supports")  # type: ignore[index]
        told["endpoints"] = {"e-ill": told["endpoints"]["e-ill"]}  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            finding = await running.found("check_failed")

            assert (finding.capability, finding.score) == ("system_prompt", 0.5)
            assert finding.message == "does not obey a system prompt (score 0.50)"
            assert score(running, "ill") == 1.0
            assert any("response_format" in call.json for call in upstream.calls)


async def test_an_endpoint_that_overlooks_system_prompts_is_asked_in_the_user_message(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion("Kumquat"))
        told = document(upstream, probe={"interval_sec": 60, "checks_interval_sec": 1})
        told["endpoints"] = {"e-ill": {**told["endpoints"]["e-ill"], "explicit_system_prompt": True}}  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            await running.until(lambda: any(call.json["max_tokens"] == 64 for call in upstream.calls), "a check")

            asked = next(call.json for call in upstream.calls if call.json["max_tokens"] == 64)
            assert [message["role"] for message in asked["messages"]] == ["user"]  # type: ignore[union-attr, index]


def balance(left: float | None, usable: bool = True) -> Reply:
    """What OpenRouter says of a key, beside good answers."""
    body = {"data": {"limit": 10, "limit_remaining": left, "usage": 1}}

    def reply(call: Call) -> Answer:
        return completion("p", finish="length") if call.method == "POST" else _json(body)

    return reply


def _json(body: object) -> Answer:
    from tests.support.answers import JSON
    from tests.support.script import Whole

    return (JSON, Whole(json.dumps(body).encode()))


@pytest.mark.parametrize("left", [4.0, 0.0])
async def test_a_low_balance_is_an_alert_and_at_zero_the_account_is_out(
    redis_url: str, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("n4n.core.probes.work.EVERY_S", 0.3)
    async with ScriptedUpstream() as upstream:
        upstream.script(then=balance(left))
        told = document(upstream, probe={"enabled": False})
        told["accounts"]["acme-main"]["balance"] = {"below_usd": 5, "api": "openrouter"}  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            finding = await running.found("low_balance")

            assert finding.message == ("4.00 USD are left on it: top it up" if left else "nothing is left on it: top it up")
            call = next(call for call in upstream.calls if call.method == "GET")
            assert call.path == "/v1/key" and call.header("authorization") == "Bearer sk-canary"
            if left:
                assert not await cooling(running)
            else:
                assert (await running.found("account_out")).about == "account acme-main"
                assert await cooling(running) == ["account acme-main quota_exhausted"]
                upstream.script(then=balance(9.0))
                await running.until(lambda: not running.prober._notes._standing, "both findings to end when it is topped up")


async def test_a_prober_is_stopped_in_the_middle_of_a_probe(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=hang_before_headers())
        async with running_prober(document(upstream, probe={"interval_sec": 0.2, "timeout_ms": 5000}), redis_url) as running:
            await upstream.arrived()
            stopped = asyncio.all_tasks()
            for task in stopped:
                if task.get_name().startswith("p:"):
                    task.cancel()
            await running.until(lambda: any(row.state == "cancelled" for row in running.rows()), "its row")
            assert {score(running, name) for name in MODELS} == {1.0}
        assert not running.ledger.unsettled()


def test_a_log_line_is_json() -> None:
    record = logging.makeLogRecord(
        {"name": "n4n.prober", "levelname": "INFO", "levelno": 20, "msg": "probe of %s", "args": ("e",), **fields(event="probe")}
    )

    told = json.loads(JsonLines("prober").format(record))
    assert (told["level"], told["message"], told["event"]) == ("info", "probe of e", "probe") and told["timestamp"].endswith("Z")


async def test_a_probe_fares_as_traffic_does_where_the_catalog_injects_a_fault_and_calls_nobody(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answering(completion()))
        told = document(upstream)
        told["endpoints"]["e-ill"]["fault"] = {"abort_status": 503}  # type: ignore[index]
        told["endpoints"]["e-fine"]["fault"] = {"delay_ms": 60}  # type: ignore[index]
        with caplog.at_level(logging.INFO, "n4n.prober"):
            async with running_prober(told, redis_url) as running:
                await running.until(lambda: score(running, "ill") < 0.2, "failed probes to be told")
                await running.until(lambda: any(call.json["model"] == "fine" for call in upstream.calls), "the delayed one to be asked")
                assert score(running, "well") == score(running, "fine") == 1.0
                rows = [row for row in running.rows() if row.endpoint == "e-ill"]
                pace = running.health.seen["e-fine"].latency_ms
    assert "ill" not in {call.json["model"] for call in upstream.calls}
    assert {(row.state, row.error_class, row.status, row.cost_usd) for row in rows} == {("failed", "overloaded", None, "0")}
    assert pace is not None and pace >= 59
    lines = [json.loads(JsonLines("prober").format(one)) for one in caplog.records if "probe of e-ill" in one.getMessage()]
    assert lines and {(one["injected"], one["status"]) for one in lines} == {("abort 503", 503)}
    assert all("injected by the catalog, for a rehearsal" in one["message"] for one in lines)
