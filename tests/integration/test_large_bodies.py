"""Requests and answers of many MiB pass, and nobody else waits for them: no step of the loop takes 100 ms."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from n4n.core.large import MOST_VALUES
from tests.support.far_side import MIB, PICTURE, FarSide, far_side
from tests.support.matrix import client_chat, client_messages, client_responses
from tests.support.matrix.stage import ALONE, BASES, account, endpoint
from tests.support.matrix.table import PROVIDERS
from tests.support.matrix.words import Ask, Image, Text, Turn
from tests.support.router import KEY, RunningRouter, running_router
from tests.support.stalls import Stalls, watched

MOST_S = 0.1
TRIES = 3  # a fault of ours shows in each
LARGEST = 31  # MiB of base64: with all around it below the bound of 32 MiB
ASK = Ask((Turn("user", (Text("What is this?"), Image(f"data:image/png;base64,{PICTURE}"))),))
SKINS: Mapping[str, tuple[str, Any]] = {
    "chat": ("/v1/chat/completions", client_chat.body_of(ASK)),
    "messages": ("/v1/messages", client_messages.body_of(ASK)),
    "responses": ("/v1/responses", client_responses.body_of(ASK)),
}
# Each provider by one skin, each skin in its own words and in others'.
PICTURES = [*(("chat", name) for name in PROVIDERS), ("messages", "anthropic"), ("messages", "gemini"), ("responses", "openai_responses")]
STREAMS = [
    *(("chat", name) for name in ("openai", "openai_responses", "anthropic", "gemini", "bedrock")),
    ("messages", "anthropic"), ("messages", "gemini"), ("responses", "openai"), ("responses", "openai_responses"),
]  # fmt: skip
ANSWERS = [*((*one, True) for one in STREAMS), ("chat", "anthropic", False), ("messages", "openai", False), ("responses", "gemini", False)]


@dataclass
class Sides:
    """A router, and in another process its clients and providers."""

    house: RunningRouter
    far: FarSide

    async def ask(self, skin: str, provider: str, body: Mapping[str, Any] | None = None, **sizes: int) -> tuple[dict[str, Any], Stalls]:
        """One request, and how long the loop stood still: at best, of some tries, where that was too long."""
        path, usual = SKINS[skin]
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        said = json.dumps({"model": provider, **(usual if body is None else body)}, ensure_ascii=False)
        for _ in range(TRIES):
            async with watched() as stalls:
                told = await self.far.send(self.house.port, path, headers, said, **sizes)
            assert stalls.step_cpu_s < MOST_S
            if stalls.gap_s < MOST_S:
                break
        return told, stalls


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sides() -> AsyncIterator[Sides]:
    """A model for each provider, by its name."""
    async with far_side() as far:
        document = {
            "providers": {
                f"p-{name}": {
                    "dialect": one.dialect,
                    "base_url": f"http://127.0.0.1:{far.port}/{name}{BASES.get(one.dialect, '/v1')}",
                    "allow_private": True,
                }
                for name, one in PROVIDERS.items()
            },
            "accounts": {f"a-{name}": account(name) for name in PROVIDERS},
            "models": dict.fromkeys(PROVIDERS, ALONE),
            "endpoints": {f"e-{name}": endpoint(name, name, f"a-{name}") for name in PROVIDERS},
        }
        async with running_router(document) as house:
            yield Sides(house, far)


@pytest.mark.parametrize(("skin", "provider"), PICTURES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_picture_of_31_mib_passes_and_holds_up_nobody(sides: Sides, skin: str, provider: str) -> None:
    told, stalls = await sides.ask(skin, provider, mib=LARGEST)

    assert told["status"] == 200 and "A picture." in told["text"]
    assert told["seen"][0]["size"] > LARGEST * MIB and told["seen"][0]["picture"]
    assert stalls.gap_s < MOST_S


@pytest.mark.parametrize(("skin", "provider", "stream"), ANSWERS)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_in_events_of_4_mib_passes_and_holds_up_nobody(sides: Sides, skin: str, provider: str, stream: bool) -> None:
    body = {**SKINS[skin][1], "stream": stream}
    size = 7 if provider == "openai_responses" else 8  # MiB; told in two halves, but Responses ends with an event of all of it
    told, stalls = await sides.ask(skin, provider, body, answer_mib=size)

    assert told["status"] == 200 and told["filler"] >= size * MIB and '"n4n"' in told["text"] and '"error":{' not in told["text"]
    assert stalls.gap_s < MOST_S


WIDE = [{"role": "user", "content": "hi"}] * 38_000
TEXTS = {
    "one long text": [{"role": "user", "content": '漢字 and \\ and "\n' * (24 * MIB // 24)}],
    "many messages": WIDE,
    "many parts": [{"role": "user", "content": [{"type": "text", "text": "hi"}] * 38_000}],
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.asyncio(loop_scope="module")
async def test_much_text_passes_and_holds_up_nobody(sides: Sides, kind: str, provider: str) -> None:
    told, stalls = await sides.ask("chat", provider, {"messages": TEXTS[kind]})

    assert told["status"] == 200 and "A picture." in told["text"] and stalls.gap_s < MOST_S


@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_event_of_more_than_8_mib_ends_a_stream_with_an_error_and_a_whole_answer_may_be_as_large(sides: Sides, skin: str) -> None:
    """Responses ends a stream with an event of all of it."""
    stream, _ = await sides.ask(skin, "openai_responses", {**SKINS[skin][1], "stream": True}, answer_mib=9)
    whole, _ = await sides.ask(skin, "openai_responses", answer_mib=9)

    assert "one event of the provider's stream is too long" in stream["text"] and "stream_interrupted" in stream["text"]
    assert '"n4n":{"usage"' not in stream["text"], "no sign of a good end"
    assert whole["status"] == 200 and whole["filler"] >= 9 * MIB


@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.asyncio(loop_scope="module")
async def test_very_many_small_values_are_refused_before_they_are_read(sides: Sides, skin: str) -> None:
    body = {**SKINS[skin][1], "more": [[]] * (MOST_VALUES + 1)}
    told, stalls = await sides.ask(skin, "openai", body)

    assert told["status"] == 400 and "too many values" in told["text"] and told["seen"] == []
    assert stalls.gap_s < MOST_S


@pytest.mark.asyncio(loop_scope="module")
async def test_above_the_bound_a_request_is_refused_cleanly(sides: Sides) -> None:
    told, _ = await sides.ask("chat", "openai", mib=33)

    assert (told["status"], json.loads(told["text"])["error"]["code"]) == (413, "request_too_large") and told["seen"] == []
