"""A change of one model is a change of one model."""

from __future__ import annotations

import asyncio
import copy

import pytest

from tests.bugs.streams import said
from tests.support.answers import DONE, delta, error, held, partial
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Gate, Wait
from tests.support.upstream import ScriptedUpstream


def many(upstream: ScriptedUpstream) -> dict[str, object]:
    """Models m1, m2 and m3 beside m, each with an endpoint of its own."""
    document = catalog(upstream.base_url)
    for at in range(1, 4):
        document["models"][f"m{at}"] = {}  # type: ignore[index]
        document["endpoints"][f"x{at}"] = {"model": f"m{at}", "account": "ae1"}  # type: ignore[index]
    return document


CHANGES = {
    "its price": lambda d: d["endpoints"]["x1"].update(price={"input_per_1m": 9, "output_per_1m": 9}),
    "its policy": lambda d: d["models"]["m1"].update(strategy="health", stream_guard={"chunks": 5}),
    "its endpoint": lambda d: d["endpoints"].update(y1=d["endpoints"].pop("x1")),
    "it leaves": lambda d: (d["endpoints"].pop("x1", None), d["models"].pop("m1", None)),
    "another comes": lambda d: (d["models"].update(new={}), d["endpoints"].update(new={"model": "new", "account": "ae1"})),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_other_models_are_listed_and_answer_all_the_while(change: str) -> None:
    """LiteLLM #12711 and #13359 (case 22): editing one stored model made those of the other source vanish."""
    others = ("m", "m2", "m3")
    async with ScriptedUpstream() as upstream:
        document = many(upstream)
        async with running_router(document) as house:
            stop, failed = asyncio.Event(), []

            async def use(name: str) -> None:
                while not stop.is_set():
                    async with house.chat(model=name) as answer:
                        failed.extend([] if answer.status == 200 else [name])
                    failed.extend(set(others) - await listed(house))

            users = [asyncio.ensure_future(use(name)) for name in others]
            for version in range(2, 42):
                changed = copy.deepcopy(document)
                if version % 2:
                    CHANGES[change](changed)
                house.use(changed, version)
                await asyncio.sleep(0.005)
            stop.set()
            await asyncio.gather(*users)
    assert failed == [] and len(upstream.calls) > 20


async def listed(house: RunningRouter) -> set[str]:
    """The models that a caller sees."""
    async with house.http.get(f"{house.base_url}/models", headers=house.headers()) as answer:
        return {model["id"] for model in (await answer.json())["data"]}


async def test_a_stream_under_way_ends_as_it_began_though_its_endpoint_leaves_the_catalog() -> None:
    """LiteLLM #12711 and #13359 (case 22)."""
    gate = Gate()
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), Wait(gate), delta({"content": "b"}), delta({}, finish="stop"), DONE))
        document = many(upstream)
        async with running_router(document) as house:
            async with house.chat(model="m1", stream=True) as answer:
                CHANGES["it leaves"](document)
                house.use(document, 2)
                gate.open()
                text = await answer.text()
            async with house.chat(model="m1") as later:
                assert later.status == 404
    assert said(text) == "ab" and text.endswith("data: [DONE]\n\n") and answer.headers["x-n4n-catalog-version"] == "1"


async def test_a_retry_does_not_go_to_an_endpoint_that_was_taken_out_meanwhile() -> None:
    """LiteLLM #12711 and #13359 (case 22): what a plan holds is older than what an operator has decided since."""
    gate = Gate()
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(held(gate, error(500)), then=error(500))
        document = catalog(e1.base_url, e2.base_url)
        async with running_router(document) as house:
            asked = asyncio.ensure_future(house.chat().__aenter__())
            await e1.arrived()
            del document["endpoints"]["e2"]  # type: ignore[attr-defined]
            house.use(document, 2)
            gate.open()
            answer = await asked
            assert answer.status == 502
    assert e2.calls == []
