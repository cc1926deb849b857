"""Probers together, without Redis, beside simulated providers, and stopped: what must not go wrong when something is away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.integration.test_bedrock import KEY_ID, SECRET, bedrock, streamed
from tests.integration.test_prober import document, score
from tests.soak.probers import run
from tests.support.answers import completion
from tests.support.event_stream import START, metadata, stop, text
from tests.support.prober import RunningProber, running_prober
from tests.support.script import Sleep
from tests.support.sigv4 import verify
from tests.support.simulated import PLACES, Simulated, route, simulated
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import running_valkey

INTERVAL_S = 0.5


def test_three_processes_share_the_work_and_outlive_a_kill_and_a_stop(tmp_path: Path) -> None:
    """`python -m tests.soak.probers` is the long one."""
    phases = run(tmp_path, models=8, interval_s=1.0, intervals=2, settled=1)

    assert [phase.fault for phase in phases] == [""] * 5, "\n".join(phase.line() for phase in phases)
    assert all(phase.rate > 0.7 for phase in phases), "in so short a time two or three are many"


async def probes_meanwhile(upstream: ScriptedUpstream, seconds: float) -> list[str]:
    """Which models were probed."""
    before = len(upstream.calls)
    await asyncio.sleep(seconds)
    return [str(call.json["model"]) for call in upstream.calls[before:]]


async def test_without_redis_a_prober_goes_on_with_its_last_known_share_at_the_planned_rate(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=completion("p", finish="length"))
            told = document(upstream, probe={"interval_sec": INTERVAL_S})
            async with running_prober(told, server.url, name="a") as one, running_prober(told, server.url, name="b") as other:
                await one.until(lambda: len(one.prober.schedule.members) == len(other.prober.schedule.members) == 2, "both to be known")
                shares = set(one.prober.schedule.share), set(other.prober.schedule.share)
                assert not shares[0] & shares[1] and len(shares[0] | shares[1]) == 6
                server.kill()
                await one.until(lambda: one.prober.is_away and other.prober.is_away, "Redis to be missed")

                asked = await probes_meanwhile(upstream, 4 * INTERVAL_S)

                assert len(asked) <= 1.1 * 3 * 4 + 3 and set(asked) == {"ill", "well", "fine"}
                assert (set(one.prober.schedule.share), set(other.prober.schedule.share)) == shares
                server.start()
                await one.until(lambda: not one.prober.is_away and not other.prober.is_away, "Redis again")
                back = await probes_meanwhile(upstream, 4 * INTERVAL_S)
                assert 6 <= len(back) <= 1.1 * 3 * 4 + 3


async def test_a_prober_that_stood_still_accuses_nobody(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=(Sleep(0.2), *completion("p", finish="length")))
        async with running_prober(document(upstream, probe={"interval_sec": 0.3, "timeout_ms": 600}), redis_url) as running:
            well = running.count("ok")
            await running.until(lambda: running.count("ok") >= well + 3, "probes")
            unclear, ill = running.count("unclear"), running.count("ill")
            await upstream.arrived(len(upstream.calls) + 1)
            time.sleep(1.5)  # noqa: ASYNC251  # upstream and prober stand still, as a stopped process does
            await running.until(lambda: running.count("unclear") > unclear, "a probe that tells nothing")

            assert running.count("ill") == ill
            assert {score(running, name) for name in ("ill", "well", "fine")} == {1.0}


def quick(server: Simulated, *places: str) -> dict[str, object]:
    """A model at simulated providers, probed quickly."""
    timeouts = {"first_token_ms": 1000}
    told = route(*((server, place) for place in places), timeouts=timeouts, probe={"interval_sec": 0.3, "checks_interval_sec": 604_800})
    for provider in told["providers"].values():  # type: ignore[attr-defined]
        provider["probe_budget_usd_per_day"] = 1_000_000
    return told


async def fallen(running: RunningProber, endpoint: str) -> None:
    """Waits until an endpoint has lost its rank."""
    await running.until(lambda: running.health.score(endpoint) < 0.2, f"{endpoint} to fall")


async def test_every_simulated_dialect_is_probed_and_found_well(redis_url: str) -> None:
    with simulated() as server:
        async with running_prober(quick(server, *PLACES), redis_url) as running:
            names = [f"e{number + 1}" for number in range(len(PLACES))]
            await running.until(lambda: {row.endpoint for row in running.rows()} == set(names), "every dialect")

            assert {row.state for row in running.rows()} == {"ok"}
            assert {running.health.score(name) for name in names} == {1.0}
            assert not await running.findings() and running.count("misconfigured") == 0
        assert not server.findings(but=("no_retry", "unused_parameter"))


async def test_a_simulated_outage_and_a_slow_first_token_are_found_by_probes_alone(redis_url: str) -> None:
    with simulated() as down, simulated() as slow, simulated() as well:
        told = quick(down, "openai")
        for number, server in ((2, slow), (3, well)):
            more = quick(server, "openai")
            for kind in ("providers", "accounts"):
                prefix = "p" if kind == "providers" else "a"
                entry = dict(more[kind][f"{prefix}e1"])  # type: ignore[index]
                told[kind][f"{prefix}e{number}"] = {**entry, **({"provider": f"pe{number}"} if prefix == "a" else {})}  # type: ignore[index]
            told["endpoints"][f"e{number}"] = {**more["endpoints"]["e1"], "account": f"ae{number}"}  # type: ignore[index]
        async with running_prober(told, redis_url) as running:
            await running.until(lambda: len({row.endpoint for row in running.rows()}) == 3, "every endpoint to be probed")
            down.outage()
            slow.slow_first_token(3.0, times=None)

            await asyncio.gather(fallen(running, "e1"), fallen(running, "e2"))

            assert running.health.score("e3") > 0.4, "a late answer of a busy machine is one failure, and excludes nobody"
            reasons = {row.endpoint: row.error_class for row in running.rows() if row.state == "failed"}
            assert (reasons["e1"], reasons["e2"]) == ("overloaded", "timeout")


async def test_probes_of_an_account_with_an_access_key_are_signed_as_requests_are(redis_url: str) -> None:
    frames = (START, text("p"), stop("max_tokens"), metadata(inputTokens=5, outputTokens=1))
    async with ScriptedUpstream() as upstream:
        upstream.script(then=streamed(*frames))
        told = bedrock(upstream.base_url)
        told["models"]["m"]["probe"] = {"interval_sec": 0.3}
        told["endpoints"]["e1"]["region"] = "eu-west-1"
        for provider in told["providers"].values():
            provider["probe_budget_usd_per_day"] = 1_000_000
        async with running_prober(told, redis_url, secrets={"ae1": f"{KEY_ID}:{SECRET}:tok"}) as running:
            await running.until(lambda: len(running.rows()) >= 2, "probes")

            assert {row.state for row in running.rows()} == {"ok"} and running.health.score("e1") == 1.0
        for call in upstream.calls:
            assert verify(call, {KEY_ID: SECRET}, region="eu-west-1", service="bedrock", tokens={KEY_ID: "tok"}) == KEY_ID
