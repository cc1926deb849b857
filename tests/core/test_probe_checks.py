"""Deeper checks, judged by rule, and system prompts spelled out for endpoints that overlook them."""

from __future__ import annotations

import pytest

from n4n.core import json_bytes
from n4n.core.catalog import ProbePolicy
from n4n.core.chat_request import read_chat
from n4n.core.dialects.system_prompt import spelled_out
from n4n.core.probes.checks import JSON_OBJECT, SYSTEM_PROMPT, checks_of, passes, scored
from n4n.core.skins.messages import read_messages
from tests.support.endpoints import endpoint, model


def answer(content: object) -> bytes:
    """A completion that says this."""
    return json_bytes.dump({"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]})


def test_an_endpoint_is_asked_what_it_claims() -> None:
    assert [one.capability for one in checks_of(model(), endpoint("e"))] == [SYSTEM_PROMPT, JSON_OBJECT]
    assert [one.capability for one in checks_of(model(), endpoint("e", supports=frozenset({"tools"})))] == [SYSTEM_PROMPT]
    assert checks_of(model(), endpoint("e", supports=frozenset({"embeddings"}))) == []


def test_a_check_follows_the_models_profile() -> None:
    profile = ProbePolicy(param="max_completion_tokens", checks_max_tokens=300, effort="low")

    asked = checks_of(model(probe=profile), endpoint("e"))[0].request

    assert bytes(asked.fields["max_completion_tokens"]) == b"300" and bytes(asked.fields["reasoning_effort"]) == b'"low"'


@pytest.mark.parametrize(
    ("capability", "content", "passed"),
    [
        (SYSTEM_PROMPT, "Kumquat.", True),
        (SYSTEM_PROMPT, "Paris", False),
        (SYSTEM_PROMPT, "Paris, though you said kumquat", False),
        (SYSTEM_PROMPT, "", None),
        (SYSTEM_PROMPT, None, None),
        (JSON_OBJECT, ' {"answer": 42}\n', True),
        (JSON_OBJECT, '{"answer": 41}', False),
        (JSON_OBJECT, "[42]", False),
        (JSON_OBJECT, "Here you are: 42", False),
        (JSON_OBJECT, "\ud800", False),
    ],
)
def test_answers_are_judged_by_rule(capability: str, content: object, passed: bool | None) -> None:
    assert passes(capability, answer(content)) is passed


def test_a_capabilitys_score_follows_the_last_few_checks() -> None:
    assert scored(None, True) == 1.0
    assert scored(1.0, False) == 0.5
    assert scored(0.5, True) == 0.75
    assert scored(None, False) == 0.0


OVERLOOKS = endpoint("e", explicit_system_prompt=True)


def messages_of(*messages: object, at: object = OVERLOOKS) -> list[object]:
    """What is sent of these."""
    asked = read_chat(json_bytes.dump({"model": "m", "messages": list(messages)}))
    told = json_bytes.parse(bytes(spelled_out(asked, at).fields["messages"]))  # type: ignore[arg-type]
    assert isinstance(told, list)
    return told


def test_a_system_prompt_goes_before_the_first_user_message() -> None:
    system, developer = (
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "In Dutch."}, 3]},
    )
    user, later = {"role": "user", "content": "Hi", "name": "u"}, {"role": "user", "content": "More"}

    assert messages_of(system, user, developer, later) == [{"role": "user", "content": "Be brief.\n\nIn Dutch.\n\nHi", "name": "u"}, later]


def test_a_message_of_parts_gets_a_part_and_a_chat_without_a_user_gets_one() -> None:
    system = {"role": "system", "content": "Be brief."}
    parts = [{"type": "text", "text": "Hi"}]

    assert messages_of(system, {"role": "user", "content": parts}) == [
        {"role": "user", "content": [{"type": "text", "text": "Be brief."}, *parts]}
    ]
    assert messages_of(system, {"role": "assistant", "content": "Hi"})[0] == {"role": "user", "content": "Be brief."}
    assert messages_of(system, {"role": "user", "content": None}) == [{"role": "user", "content": "Be brief."}]
    assert messages_of({"role": "system", "content": ""}, {"role": "user", "content": "Hi"}) == [{"role": "user", "content": "Hi"}]


def test_nothing_changes_where_nothing_has_to() -> None:
    asked = read_chat(b'{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}')
    plain = read_chat(b'{"model":"m","messages":[{"role":"user","content":"Hi"}, 3]}')
    empty = read_chat(b'{"model":"m","messages":[{"role":"system"},{"role":"user","content":"Hi"}]}')

    assert spelled_out(asked, endpoint("e")) is asked
    assert spelled_out(plain, OVERLOOKS) is plain
    assert spelled_out(empty, OVERLOOKS) is empty


def test_who_speaks_another_dialect_is_translated_first() -> None:
    asked = read_messages(b'{"model":"m","max_tokens":9,"system":"Be brief.","messages":[{"role":"user","content":"Hi"}]}')

    told = spelled_out(asked, OVERLOOKS)

    assert told.native is None
    assert json_bytes.parse(bytes(told.fields["messages"])) == [{"role": "user", "content": "Be brief.\n\nHi"}]
