"""Odd bodies and odd answers: tests/fuzz/odd makes them, for a moment here and by hand for as long as one likes."""

from __future__ import annotations

import random

import pytest

from n4n.core.chat import Chunk
from n4n.core.dialects.table import DIALECTS
from n4n.core.skins.completions import Completions, read_completions
from n4n.core.skins.messages import read_messages
from n4n.core.skins.openai_responses import OpenAIResponses
from n4n.core.skins.responses import read_responses
from tests.fuzz import odd


@pytest.mark.parametrize("seed", range(4))
def test_odd_requests_are_refused_by_name_or_written_as_json(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        odd.one_request(dice)


@pytest.mark.parametrize("seed", range(4))
def test_odd_answers_are_failures_or_said_as_json(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        odd.one_answer(dice)


RESPONSE = b'{"id":"r","object":"response","status":"completed","created_at":%b,"output":[%b]}'


@pytest.mark.parametrize("created", [b"1e400", b"-1e400", b"null", b"1.9"])
def test_a_time_that_there_cannot_be_is_none(created: bytes) -> None:
    chat, own = read_completions(b'{"model":"m","prompt":"x"}'), read_responses(b'{"model":"m","input":"x"}')
    told = DIALECTS["openai_responses"].decode(RESPONSE % (created, b""), "application/json", chat)
    assert isinstance(told, Chunk)
    assert b'"created":1' in told.payload or b'"created":0' in told.payload

    completion = b'{"created":%b,"choices":[{"message":{"content":"\\ud83d"},"finish_reason":"stop"}]}' % created
    assert b'"created_at":' in OpenAIResponses().whole(Chunk(completion), own, None, b"{}")


def test_half_a_pair_in_the_name_of_a_member_is_no_reason_to_raise() -> None:
    named = b'{"\\ud83d":1,"type":"message","content":[{"type":"output_text","text":"a"}]}'
    chat = read_completions(b'{"model":"m","prompt":"x"}')
    assert DIALECTS["openai_responses"].decode(RESPONSE % (b"1", named), "application/json", chat) is not None
    bedrock = b'{"output":{"message":{"\\ud83d":1,"content":[{"text":"a"}]}},"stopReason":"end_turn"}'
    assert DIALECTS["bedrock"].decode(bedrock, "application/json", chat) is not None
    decoder = DIALECTS["anthropic"].decoder(read_messages(b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}'))
    assert decoder.feed(b'data: {"type":"\\ud83d"}\n\n') is not None


def test_a_choice_without_a_sensible_place_is_the_first() -> None:
    odd_place = b'{"choices":[{"index":{"a":1},"message":{"content":"x"},"finish_reason":"stop"}]}'
    said = Completions().whole(Chunk(odd_place), read_completions(b'{"model":"m","prompt":"x"}'), None, b"{}")
    assert b'"index":0' in said
