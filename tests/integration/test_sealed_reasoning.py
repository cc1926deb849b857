"""Conversations whose reasoning only its maker can open, through the official SDKs: back to the account that made it, or left out and
told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.matrix.client_responses import body_of
from tests.support.matrix.stage import ALONE, endpoint, on_stage
from tests.support.matrix.table import PROVIDERS
from tests.support.matrix.words import Ask, Heard, Own, Text, Tokens, Told, Turn, says
from tests.support.upstream import ScriptedUpstream

THOUGHT = Told("42.", thought="Let me think.", tokens=Tokens(40, completion=30, reasoning=20))
HOMES = ("e1", "e2", "e3")


def document(upstream: ScriptedUpstream) -> dict[str, Any]:
    """Model `m` at three accounts of the Responses API, each below a path of its own."""
    return {
        "providers": {
            f"p-{name}": {
                "dialect": "openai_responses", "base_url": f"http://127.0.0.1:{upstream.port}/{name}/v1", "allow_private": True,
            } for name in HOMES
        },
        "accounts": {f"a-{name}": {"provider": f"p-{name}", "credential": "env:CANARY"} for name in HOMES},
        "models": {"m": ALONE},
        "endpoints": {name: endpoint("m", "openai_responses", f"a-{name}") for name in HOMES},
    }  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
async def test_it_goes_back_to_the_account_that_made_it_and_is_left_out_elsewhere(client: str, stream: bool) -> None:
    provider = PROVIDERS["openai_responses"]
    async with ScriptedUpstream() as upstream, on_stage(document(upstream), upstream) as stage:
        upstream.script(then=provider.stream(THOUGHT) if stream else provider.whole(THOUGHT))
        asks = stage.clients[client]
        for _ in range(6):
            first = await asks.ask("m", Ask(says("Think."), effort="low"), stream=stream)
            assert isinstance(first, Heard)
            home, turns = first.n4n["endpoint"], (*says("Think."), Turn("assistant", (Own(first.own),)), Turn("user", (Text("Go on."),)))
            upstream.calls.clear()

            again = await asks.ask("m", Ask(turns, effort="low"), stream=stream)
            away = await asks.ask("m", Ask(turns, effort="low"), stream=stream, headers={"x-n4n-routing": f"exclude=endpoint:{home}"})

            assert isinstance(again, Heard) and isinstance(away, Heard)
            back, moved = (json.loads(call.body)["input"] for call in upstream.calls)
            sealed = [item["encrypted_content"] for item in back if item.get("type") == "reasoning"]
            assert again.n4n["endpoint"] == home and sealed == [provider.signature] and again.n4n["warnings"] == []
            assert not [item for item in moved if item.get("type") == "reasoning"]
            assert any("did not make it and cannot read it" in line for line in away.n4n["warnings"])


def test_a_request_asks_for_what_is_sealed() -> None:
    assert body_of(Ask(says("Think.")))["include"] == ["reasoning.encrypted_content"]
