"""What a routing decision costs, in process: the plan of a request with ten candidates, in a small catalog and in a large one."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from statistics import median

from n4n.core.breaker import BreakerState
from n4n.core.candidates import EndpointView, World
from n4n.core.catalog import Snapshot, compile_snapshot
from n4n.core.chat import ChatRequest
from n4n.core.dialects.table import DIALECTS
from n4n.core.directives import NONE, Directives, parse
from n4n.core.document import parse_document
from n4n.core.plan import plan

CANDIDATES = 10
ASKED = 10  # models that requests name
MANY, FEW = 5_000, 10
ROUNDS = 7


def decisions_us(models: int, directives: str = "", calls: int = 3_000) -> float:
    """Microseconds of CPU for one plan, the least of some rounds; all models have one endpoint but those that are asked for."""
    world = _world(models)
    step = max(1, models // ASKED)
    requests = [ChatRequest({}, f"model-{at * step}") for at in range(ASKED)]
    told = parse(directives) if directives else NONE
    draw = random.Random(1).random
    _round(requests, told, world, draw, calls)  # what a snapshot remembers of names is there
    gc.collect()
    return min(_round(requests, told, world, draw, calls) for _ in range(ROUNDS))


def _round(requests: Sequence[ChatRequest], directives: Directives, world: World, draw: Callable[[], float], calls: int) -> float:
    begun = time.process_time()
    for at in range(calls):
        plan(requests[at % ASKED], directives, world, now=1000.0, draw=draw)
    return (time.process_time() - begun) / calls * 1e6


def _world(models: int) -> World:
    snapshot = _snapshot(models)
    dice = random.Random(2)
    views = {
        name: EndpointView(BreakerState(), 0.0, None, 0.0, 1.0 if dice.random() < 0.9 else 0.6, dice.uniform(100, 900), 100.0, 50.0)
        for name in snapshot.endpoints
    }
    accounts = frozenset(account.name for one in snapshot.endpoints.values() for account in one.accounts)
    return World(snapshot, frozenset(DIALECTS), accounts, views, {}, DIALECTS)


def _snapshot(models: int) -> Snapshot:
    step = max(1, models // ASKED)
    endpoints: dict[str, dict[str, object]] = {}
    for number in range(models):
        asked = number % step == 0 and number // step < ASKED
        for at in range(CANDIDATES if asked else 1):
            endpoints[f"e{number}-{at}"] = {
                "model": f"model-{number}", "account": f"a{at}", "weight": 1 + at, "region": "eu" if at % 2 else "us",
                "price": {"input_per_1m": 1 + at, "output_per_1m": 2 + at},
            }  # fmt: skip
    document, problems = parse_document({
        "providers": {f"p{at}": {"dialect": "openai", "base_url": "https://api.example/v1"} for at in range(CANDIDATES)},
        "accounts": {f"a{at}": {"provider": f"p{at}"} for at in range(CANDIDATES)},
        "models": {f"model-{number}": {} for number in range(models)},
        "endpoints": endpoints,
        "tiers": {},
    })  # fmt: skip
    assert not problems, problems[:3]
    return compile_snapshot(document, version=1, checksum="bench")


def main() -> None:
    """Prints a table of decisions; one median of each pair of turns."""
    for told in ("", "region=eu", "sort=latency,max_ttft_ms=500"):
        pairs = [(decisions_us(FEW, told), decisions_us(MANY, told)) for _ in range(3)]
        few, many = median(one for one, _ in pairs), median(one for _, one in pairs)
        print(f"{told or 'no directive':30} {few:6.1f} µs at {FEW} models, {many:6.1f} µs at {MANY:,}: {many / few:.2f}")


if __name__ == "__main__":
    main()
