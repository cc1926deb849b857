"""Where a conversation keeps to, and when it does not."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from n4n.core.affinity import kept, saves
from n4n.core.candidates import Candidate, EndpointView, World
from n4n.core.catalog import Price, PriceList
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import read_chat
from n4n.core.directives import NONE, parse
from n4n.core.plan import plan
from n4n.core.skins.completions import read_completions
from n4n.core.skins.messages import read_messages
from n4n.core.skins.responses import read_responses
from tests.support.endpoints import NOW, endpoint, model, snapshot, world

CACHED = PriceList(Price(1000, 4000, cached_input=100))
LONG = "Rules. " * 1_000
POOL = snapshot([endpoint("e1", accounts=("a", "b", "c"), price=CACHED)])
PAIR = snapshot([endpoint("e1", price=CACHED, weight=3.0), endpoint("e2", price=CACHED)])


def chat(first: str = "Hello", *more: str, system: str = LONG, **fields: object) -> ChatRequest:
    turns = [{"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate((first, *more))]
    return read_chat(json.dumps({"model": "m", "messages": [{"role": "system", "content": system}, *turns], **fields}).encode())


def first(request: ChatRequest, within: World, tenant: str = "acme", text: str = "") -> Candidate:
    """The first candidate, chance being chance."""
    directives = parse(text) if text else NONE
    return plan(request, directives, within, now=NOW, draw=random.random, tenant=tenant).candidates[0]


def accounts(requests: list[ChatRequest], within: World, **more: Any) -> set[str]:
    return {first(one, within, **more).account.name for one in requests}


@pytest.mark.parametrize("text", ["", "exclude=endpoint:nobody"], ids=["a calm day", "looking closely"])
def test_the_turns_of_a_conversation_keep_to_one_account(text: str) -> None:
    held = snapshot([*POOL.endpoints.values(), endpoint("nobody")])
    turns = [chat(), chat("Hello", "Hi."), chat("Hello", "Hi.", "More, please.", temperature=0.5)]

    assert (
        len({(found.endpoint.id, found.account.name) for _ in range(5) for found in (first(one, world(held), text=text) for one in turns)})
        <= 2
    )
    assert len(accounts(turns * 5, world(POOL))) == 1
    assert first(turns[0], world(POOL)).kept


def test_conversations_spread_as_the_weights_say() -> None:
    seen = Counter(str(first(chat(f"Question {number}"), world(PAIR)).endpoint.id) for number in range(2_000))
    spread = Counter(first(chat(f"Question {number}"), world(POOL)).account.name for number in range(1_500))

    assert 0.70 < seen["e1"] / 2_000 < 0.80
    assert all(0.28 < spread[name] / 1_500 < 0.39 for name in "abc")


def test_tenants_models_and_beginnings_differ() -> None:
    many = [f"t{number}" for number in range(40)]
    assert len({first(chat(), world(POOL), tenant).account.name for tenant in many}) == 3
    assert len(accounts([chat(system=LONG + name) for name in many], world(POOL))) == 3


def test_a_cache_key_of_its_own_counts_instead_of_the_beginning_however_short_it_is() -> None:
    assert len(accounts([chat(f"Question {n}", system="Be brief.", prompt_cache_key="k") for n in range(30)], world(POOL))) == 1
    assert len(accounts([chat(system="Be brief.", prompt_cache_key=f"k{n}") for n in range(40)], world(POOL))) == 3


@pytest.mark.parametrize(
    ("request_", "held"),
    [
        (chat(system="Be brief."), POOL),  # too short to be cached
        (chat(system="Be brief.", prompt_cache_key=None), POOL),
        (chat(), snapshot([endpoint("e1", accounts=("a", "b"), price=PriceList(Price(1000, 4000)))])),
        (chat(), snapshot([endpoint("e1", accounts=("a", "b"))])),
        (read_completions(b'{"model":"m","prompt":"","user":"%b"}' % (b"u" * 5_000)), POOL),
    ],
    ids=["short", "no key", "no cheaper", "unpriced", "nothing said"],
)
def test_where_nothing_is_saved_chance_decides(request_: ChatRequest, held: Any) -> None:
    assert kept(request_, "acme", list(held.endpoints.values()), {}) is None
    assert len(accounts([request_] * 60, world(held))) > 1


def test_only_a_balanced_order_keeps_to_anybody() -> None:
    held = snapshot(
        [endpoint("e1", price=CACHED), endpoint("e2", price=PriceList(Price(900, 3000, cached_input=100)))], [model(strategy="cost")]
    )
    assert {first(chat(f"Question {n}"), world(held)).endpoint.id for n in range(30)} == {"e2"}


def test_who_is_sick_loses_conversations_and_who_is_crowded_comes_after_the_others() -> None:
    requests = [chat(f"Question {number}") for number in range(300)]
    home = [one for one in requests if first(one, world(PAIR)).endpoint.id == "e2"]
    sick = world(PAIR, {"e2": EndpointView(score=0.1)})

    assert sum(first(one, sick).endpoint.id == "e2" for one in home) < len(home) / 2
    one = home[0]
    within = World(**{name: getattr(world(PAIR), name) for name in World.__struct_fields__} | {"busy": {"e2-account": 40}})
    assert {first(one, within).endpoint.id for _ in range(9)} == {"e1"}


def test_a_crowded_account_of_a_pool_is_passed_over_and_where_all_are_chance_decides() -> None:
    request = chat()
    home = first(request, world(POOL)).account.name
    found = kept(request, "acme", list(POOL.endpoints.values()), {home: 40})
    (one,) = POOL.endpoints.values()

    assert found is not None
    other = found.drawn(one, one.accounts, world(POOL))
    assert other is not None and other.name != home
    assert found.drawn(one, [account for account in one.accounts if account.name == home], world(POOL)) is None
    unpriced = endpoint("e9", accounts=("a", "b"))
    assert found.drawn(unpriced, unpriced.accounts, world(POOL)) is None
    assert found.draw(unpriced, random.random) is random.random


def test_an_account_that_has_little_left_loses_conversations() -> None:
    requests = [chat(f"Question {number}") for number in range(300)]
    home = [one for one in requests if first(one, world(POOL)).account.name == "a"]
    little = World(**{name: getattr(world(POOL), name) for name in World.__struct_fields__} | {"factors": {"a": 0.1}})
    nothing = World(**{name: getattr(world(POOL), name) for name in World.__struct_fields__} | {"factors": {"a": 0.0}})

    assert 0 < sum(first(one, little).account.name == "a" for one in home) < len(home) / 2
    assert {first(one, nothing).account.name for one in home} == {"b", "c"}


def message(text: str) -> ChatRequest:
    return read_messages(
        json.dumps({"model": "m", "system": LONG, "max_tokens": 9, "messages": [{"role": "user", "content": text}]}).encode()
    )


def response(**fields: object) -> ChatRequest:
    return read_responses(json.dumps({"model": "m", **fields}).encode())


@pytest.mark.parametrize(
    "ask",
    [
        message,
        lambda text: response(instructions=LONG, input=text),
        lambda text: response(input=[{"role": "user", "content": LONG + text}]),
        lambda text: read_completions(json.dumps({"model": "m", "prompt": text + LONG}).encode()),
        lambda text: chat(text + "x" * 300_000, system="s"),
        lambda text: read_chat(json.dumps({"model": "m", "messages": [{"content": LONG}, {"content": text, "role": "user"}]}).encode()),
    ],
    ids=["messages", "responses", "items", "text", "very long", "content first"],
)
def test_every_skin_has_a_beginning(ask: Callable[[str], ChatRequest]) -> None:
    endpoints = list(POOL.endpoints.values())
    one, same, other = (kept(ask(text), "acme", endpoints, {}) for text in ("a", "a", "b"))

    assert one is not None and one == same != other


def test_a_cached_price_saves_where_it_is_lower() -> None:
    prices = (Price(10, 1, 5), Price(10, 1, 10), Price(None, 1, 5), Price(10, 1))
    assert [saves(endpoint("e", price=PriceList(price))) for price in prices] == [True, False, False, False]


@pytest.mark.parametrize("content_first", [False, True])
@pytest.mark.parametrize("first_", ["Hello", 'a "role": "user" in a text', "ends in ]}", "漢"])
def test_later_turns_begin_as_the_first_did_however_they_are_written(first_: str, content_first: bool) -> None:
    def asked(*texts: str) -> ChatRequest:
        roles = ("user", "assistant")
        turns: list[dict[str, object]] = [{"role": "system", "content": LONG}]
        turns += [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
        if content_first:
            turns = [{"content": turn["content"], "role": turn["role"]} for turn in turns]
        return read_chat(json.dumps({"model": "m", "messages": turns}, indent=1 if content_first else None).encode())

    endpoints = list(POOL.endpoints.values())
    found = [kept(one, "t", endpoints, {}) for one in (asked(first_), asked(first_, "a"), asked(first_, "a", "b", "c"), asked("else"))]
    assert all(found)
    assert len({one.beginning for one in found[:3] if one is not None}) == 1
    assert found[3] is not None and found[0] is not None and found[3].beginning != found[0].beginning
