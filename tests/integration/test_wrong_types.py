"""A request with a member of a wrong type costs its sender a 400 and no provider anything."""

from __future__ import annotations

import pytest

from tests.core.test_member_kinds import GOOD, MAY_BE, wrong
from tests.support.answers import error
from tests.support.router import catalog, running_router
from tests.support.upstream import ScriptedUpstream


@pytest.mark.parametrize("path", GOOD)
async def test_nothing_is_sent_and_the_endpoint_stays_as_healthy_as_it_was(path: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=error(500))
        endpoint = {"supports": ["embeddings"]} if path == "/v1/embeddings" else None
        async with running_router(catalog(upstream.base_url, endpoint=endpoint)) as router:
            asked = [(name, value) for name, may_be in MAY_BE[path].items() for value in wrong(name, may_be)]
            for name, value in asked:
                body, url = {**GOOD[path], name: value}, router.base_url.removesuffix("/v1") + path
                async with router.http.post(url, json=body, headers=router.headers()) as answer:
                    told = await answer.json()
                assert (answer.status, answer.headers["x-should-retry"]) == (400, "false"), told
                assert told["error"]["message"].startswith(name), told
            assert not upstream.calls
            lines = await router.logged(len(asked))
            assert {(line["outcome"], line["error"]) for line in lines} == {("rejected", "invalid_request")}
            assert router.router.health.views == {}, "no endpoint is thought of any worse"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_that_fails_over_nonsense_inside_is_not_held_to_be_ill(stream: bool) -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two:
        one.script(then=error(500))
        async with running_router(catalog(one.base_url, two.base_url)) as router:
            for turns in ([{"role": "user", "content": 5}], [{"role": "user", "content": "x"}, 7]):
                async with router.chat(messages=turns, stream=stream) as answer:
                    told = (await answer.json())["error"]
                assert (answer.status, told["param"], told["message"].startswith("messages cannot be read")) == (400, "messages", True)
            assert len(one.calls) == 2
            assert not two.calls
            assert [(view.score, view.breaker.recent) for view in router.router.health.views.values()] == [(1.0, ())]
            async with router.chat(stream=stream) as answer:
                assert answer.status == 200
            assert len(two.calls) == 1
