"""What a body of many MiB may hold, and how it is read."""

from __future__ import annotations

import json

import pytest

from n4n.core import large
from n4n.core.chat_request import read_chat
from n4n.core.errors import MalformedRequest
from n4n.core.fitness import least_tokens
from n4n.core.skins.chat import Chat

MANY = large.MOST_VALUES + 1


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "ping"}], **fields}).encode()


def test_a_large_body_is_read_as_a_small_one_is_and_weighed_once() -> None:
    raw = body(user="u" * 300_000)
    plain, read = read_chat(raw), large.read(Chat(), raw, lambda _: None)

    assert read.fields == plain.fields and plain.least_tokens is None
    assert read.least_tokens == least_tokens(plain) == least_tokens(read) > 0


@pytest.mark.parametrize("more", [[{}] * MANY, [[]] * MANY, [""] * MANY, [1] * (8 * MANY)], ids=["objects", "lists", "texts", "numbers"])
def test_many_small_values_are_refused(more: list[object]) -> None:
    with pytest.raises(MalformedRequest, match="too many values"):
        large.check(body(more=more))


def test_quotes_within_a_text_are_no_values() -> None:
    large.check(body(more='"' * MANY))
