"""10,000 seeded worlds: whatever endpoints do and whenever clients leave, the promises of the request path hold."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from n4n.core.breaker import Breaker, phase
from n4n.core.catalog import BreakerPolicy, RetryPolicy, StreamGuardPolicy, Timeouts
from n4n.core.directives import parse
from tests.simulation.clock import VirtualLoop
from tests.simulation.world import DONE, FINISH, ROLE, Client, Piece, Script, World, refusal, spoken, whole
from tests.support.endpoints import chat, endpoint, model, priced

SEEDS, SLICES = 10_000, 10
DIRECTIVES = ("", "region=eu", "exclude=region:eu", "fallback=off", "max_attempts=1", "max_attempts=2", "only=endpoint:a|endpoint:c",
              "region=eu,max_attempts=2", "require=b", "prefer=c,exclude=endpoint:a", "sort=cost,max_ttft_ms=200")  # fmt: skip
NAMED = {"only=endpoint:a|endpoint:c": "ac", "require=b": "b", "prefer=c,exclude=endpoint:a": "ac"}
REGIONS = {"a": "eu", "b": "us", "c": "eu-west", "d": ""}
ALLOWED: dict[str, Callable[[str], bool]] = {
    "region=eu": lambda name: REGIONS[name].startswith("eu"),
    "exclude=region:eu": lambda name: not REGIONS[name].startswith("eu"),
    "only=endpoint:a|endpoint:c": lambda name: name in "ac",
    "require=b": lambda name: name == "b",
    "exclude=endpoint:a": lambda name: name != "a",
}
SAID = re.compile(r"(\d+)/(\d+) ")


class Chance:
    """One seed's dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def script(self, call: int, stream: bool, badness: float) -> Script:
        """What one call gets; `call` is its number, which a good answer's text bears."""
        dice = self.dice
        if dice.random() > badness:
            return self._good(str(call), stream, dice.choice([None, None, "end", "open"]))
        kind = dice.randrange(10)
        if kind == 0:
            return Script(None)
        if kind == 1:
            return Script(dice.uniform(0.5, 30))
        if kind in (2, 3):
            return refusal(dice.choice([400, 401, 403, 404, 408, 429, 500, 502, 503, 529]), dice.choice([None, None, 0, 1, 3, 40]))
        if kind == 4:
            return Script(0.01, 200, ((0.0, dice.choice([b"", b"<html>", b'{"choices":[', b'{"error":{"message":"x"}}', DONE])),))
        return self._broken(str(call), dice.choice(["reset", "silence", "end", "error", "corrupt"]))

    def _good(self, source: str, stream: bool, ending: str | None) -> Script:
        dice = self.dice
        if not stream or dice.random() < 0.05:
            return Script(dice.uniform(0, 0.4), 200, ((0.0, whole(source)),))
        body: list[Piece] = [(dice.uniform(0, 0.3), ROLE)]
        body += [(dice.choice([0.0, 0.05, dice.uniform(0, 0.6)]), spoken(source, at)) for at in range(dice.randrange(9))]
        body.append((0.0, FINISH))
        body += {None: [(0.0, DONE)], "end": [], "open": [(100.0, b": late\n\n")]}[ending]
        return Script(dice.uniform(0, 0.4), 200, self._split(body))

    def _broken(self, source: str, how: str) -> Script:
        dice = self.dice
        body: list[Piece] = [(0.0, ROLE), *((dice.uniform(0, 0.3), spoken(source, at)) for at in range(dice.randrange(9)))]
        body += {
            "reset": [(0.0, None)], "silence": [(1000.0, b"")], "end": [], "corrupt": [(0.0, b"data: {\n\n")],
            "error": [(0.0, b'data: {"error":{"message":"x","code":"%b"}}\n\n' % dice.choice([b"rate_limit_exceeded", b"server_error"]))],
        }[how]  # fmt: skip
        return Script(0.01, 200, self._split(body))

    def _split(self, body: list[Piece]) -> list[Piece]:
        """Some pieces arrive together with the one before them."""
        joined: list[Piece] = []
        for wait, piece in body:
            if joined and piece is not None and joined[-1][1] is not None and self.dice.random() < 0.3:
                joined[-1] = (joined[-1][0], joined[-1][1] + piece)
            else:
                joined.append((wait, piece))
        return joined


def policy(dice: random.Random) -> dict[str, object]:
    """A model's policy."""
    return {
        "retry": RetryPolicy(max_retries=dice.randrange(4), backoff_ms=dice.choice([1, 50, 500])),
        "stream_guard": StreamGuardPolicy(dice.choice([0, 1, 3, 6]), dice.choice([0, 50, 200])),
        "timeouts": Timeouts(1000, dice.choice([300, 1000, 3000]), dice.choice([400, 2000]), dice.choice([2000, 5000, 15000])),
        "breaker": BreakerPolicy(dice.choice([1, 2, 5]), 20, dice.choice([1, 10])),
        "strategy": dice.choice(["balanced", "cost", "latency", "health", "throughput"]),
    }


async def live(seed: int) -> list[Client]:
    """One world: a few requests over the same endpoints, some of whose clients leave."""
    chance = Chance(seed)
    dice = chance.dice
    names = "abcd"[: dice.randrange(1, 5)]
    pools = {name: [f"{name}1", f"{name}2"][: dice.randrange(1, 3)] for name in names}
    endpoints = [
        endpoint(name, upstream_model=name, region=REGIONS[name], price=priced(dice.randrange(1, 5), 1), accounts=pools[name])
        for name in names
    ]
    badness = {name: dice.choice([0.0, 0.2, 0.7, 1.0]) for name in names}
    held = model(**policy(dice))
    world = World(endpoints, [held], lambda name, call, streamed: chance.script(call, streamed, badness[name]), dice.random)
    clients: list[Client] = []
    async with asyncio.TaskGroup() as group:
        for at in range(dice.randrange(1, 6)):
            await asyncio.sleep(dice.choice([0.0, 0.0, dice.uniform(0, 3)]))
            text = dice.choice(DIRECTIVES)
            text = text if all(name in names for name in NAMED.get(text, "")) else ""  # a name that no endpoint has is refused
            timeout_s = dice.choice([None, None, 0.3, 2.0])
            client = Client(world, f"r{at}", chat(stream=dice.random() < 0.7), parse(text), timeout_s)
            clients.append(client)
            task = group.create_task(client.run())
            if dice.random() < 0.2:
                asyncio.get_running_loop().call_later(dice.uniform(0, 3), task.cancel)
    return clients


def check(client: Client) -> None:
    """The promises, for one request."""
    world, calls = client.world, client.calls
    held = world.snapshot.models["m"]
    limit = min(1 + held.retry.max_retries, client.directives.max_attempts or 99)
    assert len(client.endings) == 1, f"ended {client.endings}"
    assert len(calls) <= limit and len(calls) == len(client.record.attempts)
    due = min(client.started + held.timeouts.total_ms / 1000, client.deadline or float("inf"))
    assert client.ended <= due + 2.0 * (client.endings == ["finished"]) + 1e-6, "later than its deadline"
    assert all(call.at < due for call in calls) and not any(call.barred for call in calls)
    assert all(call.ended is not None and call.ended <= client.ended for call in calls), "a call outlived its request"
    assert all(one.ended <= two.at for one, two in pairwise(calls) if one.ended is not None), "two calls at once"
    for text in client.directives.applied:
        assert all(ALLOWED.get(text, lambda _: True)(call.endpoint) for call in calls), f"{text} was broken"
    if client.directives.fallback is False:
        assert len({call.endpoint for call in calls}) <= 1
    check_output(client)


def check_output(client: Client) -> None:
    """Everything shown is of one attempt, from its first chunk on, without a gap; an answer is the last attempt's, whole."""
    payloads = [json.loads(payload) for payload in client.shown]
    texts = [
        (choice["delta"] if "delta" in choice else choice["message"]).get("content") or "" for one in payloads for choice in one["choices"]
    ]
    said = [(source, int(at)) for source, at in SAID.findall("".join(texts))]
    assert len({source for source, _ in said}) <= 1, f"two attempts in one answer: {said}"
    assert [at for _, at in said] == list(range(len(said)))
    if client.endings == ["finished"]:
        finishes = [choice["finish_reason"] for one in payloads for choice in one["choices"] if choice.get("finish_reason")]
        assert finishes == ["stop"] and client.record.attempts[-1].outcome == "ok"
    elif client.error is not None and said:
        assert client.error.code == "stream_interrupted"


def check_breakers(clients: list[Client]) -> None:
    """No breaker keeps a trial that nobody is on."""
    world = clients[0].world
    for view in world.health.views.values():
        assert phase(view.breaker, world.clock()) is not Breaker.HALF_OPEN or view.breaker.kept is Breaker.OPEN


@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_happens_the_promises_hold(part: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        for seed in range(part * SEEDS // SLICES, (part + 1) * SEEDS // SLICES):
            try:
                clients = runner.run(live(seed))
                for client in clients:
                    check(client)
                check_breakers(clients)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
