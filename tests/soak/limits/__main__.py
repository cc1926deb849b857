"""The runs of limits, by name: each bounded in count and time. Exit status 1 when a bound is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

from tests.soak.limits.far_redis import far_redis
from tests.soak.limits.figures import Outcome
from tests.soak.limits.mixed import mixed
from tests.soak.limits.outages import killed, outage, slow, stopped
from tests.soak.limits.places import places
from tests.soak.limits.pools import Quotas, fifth, pool, quotas
from tests.soak.limits.provider import Provider, provider
from tests.soak.limits.rates import rpm, tpm
from tests.soak.limits.stage import Stage, stage
from tests.support.house import free_port

Run = Callable[[Stage, Provider, Quotas, float], Awaitable[Outcome]]
ABOUT = "Shared limits under acceptance: two or three routers, one Redis, a provider that counts."


async def _rpm(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await rpm(stage, counting, seconds)


async def _tpm(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await tpm(stage, counting, seconds)


async def _places(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await places(stage, counting, max(300, int(2000 * seconds / 180)), kill=True)


async def _pool(stage: Stage, _: Provider, limited: Quotas, seconds: float, *, deep: bool) -> Outcome:
    return await pool(stage, limited, seconds, deep=deep)


async def _fifth(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await fifth(stage, counting, seconds)


async def _mixed(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await mixed(stage, counting, seconds)


async def _killed(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await outage(stage, counting, killed(stage, seconds / 9))


async def _stopped(stage: Stage, counting: Provider, _: Quotas, seconds: float) -> Outcome:
    return await outage(stage, counting, stopped(stage, seconds / 3))


RUNS: Mapping[str, Run] = {
    "rpm": _rpm,
    "tpm": _tpm,
    "places": _places,
    "pool": partial(_pool, deep=False),
    "pool-tokens": partial(_pool, deep=True),
    "fifth": _fifth,
    "mixed": _mixed,
    "redis-killed": _killed,
    "redis-stopped": _stopped,
}


async def run(names: list[str], seconds: float, routers: int, folder: Path) -> list[Outcome]:
    """The named runs, one after the other, each told as it ends."""
    found = []
    async with provider() as counting:
        with quotas() as limited:
            if rest := [name for name in names if name in RUNS]:
                with stage(folder, counting.base_url, limited.server.base_url("openai"), routers=routers) as place:
                    for name in rest:
                        found.append(await RUNS[name](place, counting, limited, seconds))
                        print(found[-1], flush=True)
            if "redis-slow" in names:
                found.append(await _slow(counting, limited, seconds / 9, routers, folder / "slow"))
                print(found[-1], flush=True)
    return found


async def _slow(counting: Provider, limited: Quotas, seconds: float, routers: int, folder: Path) -> Outcome:
    """Through a proxy, which has to be there before the routers are."""
    port, simulated = free_port(), limited.server.base_url("openai")
    with far_redis(port) as way:
        urls = dict.fromkeys(range(routers), way.url)
        with stage(folder, counting.base_url, simulated, routers=routers, redis_port=port, redis_url=urls) as place:
            return await outage(place, counting, slow(way, seconds))


def main() -> int:
    """Runs them."""
    names = [*RUNS, "redis-slow"]
    parser = argparse.ArgumentParser(prog="python -m tests.soak.limits", description=ABOUT)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"any of {', '.join(names)} (default: all)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each run under load (default 3)")
    parser.add_argument("--routers", type=int, default=3, choices=(2, 3), help="processes that share the load (default 3)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with every program's log")
    args = parser.parse_args()
    if unknown := set(args.runs) - set(names):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    folder = Path(tempfile.mkdtemp(prefix="n4n-limits-"))
    try:
        found = asyncio.run(run(args.runs or names, args.minutes * 60, args.routers, folder))
    finally:
        if args.keep:
            print(f"logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(outcome.holds for outcome in found) else 1


if __name__ == "__main__":
    sys.exit(main())
