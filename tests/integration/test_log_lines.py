"""Lines of the request log, whatever clients send."""

from __future__ import annotations

import pytest

from data_plane.meter import LONGEST_MODEL
from tests.support.router import catalog, running_router
from tests.support.upstream import ScriptedUpstream


@pytest.mark.parametrize("longer", [0, 1, 500_000])
async def test_of_a_models_name_no_more_is_logged_than_a_name_has(longer: int) -> None:
    asked = "m" * (LONGEST_MODEL + longer)
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as router:
        async with router.chat(model=asked) as answer:
            assert answer.status == 404
        [line] = await router.logged()
    assert line["model"] == (f"{asked[:LONGEST_MODEL]}…" if longer else asked)
