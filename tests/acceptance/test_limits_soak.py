"""Acceptance runs of limits, short. `python -m tests.soak.limits` is the long one."""

from __future__ import annotations

import asyncio

import pytest

from tests.soak.limits.figures import Outcome, at_least, at_most, percentile, told
from tests.soak.limits.places import places
from tests.soak.limits.pools import fifth, quotas
from tests.soak.limits.provider import provider
from tests.soak.limits.rates import rpm
from tests.soak.limits.stage import stage


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Of a few seconds each, one after the other."""

    async def run() -> dict[str, Outcome]:
        async with provider() as counting:
            with quotas() as limited:
                with stage(tmp_path_factory.mktemp("limits"), counting.base_url, limited.server.base_url("openai"), routers=2) as place:
                    return {
                        "rpm": await rpm(place, counting, 3.0),
                        "places": await places(place, counting, 100, kill=False),
                        "fifth": await fifth(place, counting, 3.0),
                    }

    return asyncio.run(run())


@pytest.mark.parametrize("run", ["rpm", "places", "fifth"])
def test_limits_hold_across_routers(outcomes: dict[str, Outcome], run: str) -> None:
    assert outcomes[run].holds, str(outcomes[run])


def test_an_outcome_holds_where_every_figure_does() -> None:
    good, bad = (
        Outcome("a", [told("x", 1), at_most("y", 2, 2), at_least("z", 2, 2)]),
        Outcome("b", [at_most("y", 3, 2), at_least("z", 2, 2)]),
    )
    assert (good.holds, bad.holds) == (True, False)
    assert str(bad).splitlines()[0] == "b: FAILED" and "≤ 2" in str(bad) and str(bad).count("FAILED") == 2
    assert not at_least("z", 1, 2).holds
    assert (percentile([], 0.5), percentile([3, 1, 2], 0.99)) == (0.0, 3)
