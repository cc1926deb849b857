"""Idempotency keys: names that tell nothing, answers as bytes and back, and pauses."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.errors import MalformedRequest
from n4n.core.idempotency import LONGEST_KEY, MOST_BYTES, Kept, check_key, known_by, lasting, packed, pauses, unpacked

SECRET = b"a secret"


@pytest.mark.parametrize("key", ["a", "8e03978e-40d5-43e8-bc93-6894a57f9324", '"quoted"', "k" * LONGEST_KEY, "clé ✓"])
def test_a_key_is_any_text_of_some_length(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize("key", ["", "k" * (LONGEST_KEY + 1), "a\tb", "a\nb", "a\x7f", "a\x85"])
def test_what_is_no_key_is_refused_by_name(key: str) -> None:
    with pytest.raises(MalformedRequest, match="idempotency-key must be 1 to 255 characters") as raised:
        check_key(key)
    assert raised.value.param == "idempotency-key"


def test_the_same_request_is_known_by_the_same_and_any_other_is_not() -> None:
    first = known_by(SECRET, "acme", "k", "/v1/messages", b"{}")
    assert known_by(SECRET, "acme", "k", "/v1/messages", b"{}") == first
    others = [
        known_by(SECRET, "acme", "k", "/v1/messages", b"{ }"),
        known_by(SECRET, "acme", "k", "/v1/responses", b"{}"),
    ]
    assert {other.name for other in others} == {first.name}
    assert first.fingerprint not in {other.fingerprint for other in others}


def test_tenants_keys_and_secrets_have_names_of_their_own() -> None:
    asked = [("acme", "k"), ("acm", "ek"), ("acme", "K"), ("", "acmek"), ("acme", "\udcff")]
    names = {known_by(secret, tenant, key, "/v1/messages", b"").name for secret in (SECRET, b"another") for tenant, key in asked}
    assert len(names) == 10


def test_a_name_tells_nothing_and_shares_a_slot_with_nobody() -> None:
    known = known_by(SECRET, "acme", "order-17", "/v1/messages", b'{"a": "secret"}')
    assert known.name.startswith("n4n:{i:") and known.name.endswith("}") and len(known.fingerprint) == 32
    assert "acme" not in known.name and "17" not in known.name.replace(known.name[7:-1], "")


@given(st.booleans(), st.binary(max_size=200), st.binary(max_size=5000))
def test_an_answer_comes_back_as_it_was(stream: bool, fields: bytes, body: bytes) -> None:
    answer = Kept(stream, fields, body)
    assert unpacked(packed(answer)) == answer


def test_an_answer_is_small_once_it_is_packed() -> None:
    assert len(packed(Kept(True, b"", b'data: {"delta": "word"}\n\n' * 10_000))) < 5000


@pytest.mark.parametrize("content", [b"", b"\x02abc", b"\x01", b"\x01abc", packed(Kept(False, b"", b"a"))[:-3]])
def test_what_is_no_answer_is_never_taken_for_one(content: bytes) -> None:
    with pytest.raises(ValueError, match="an answer"):
        unpacked(content)


def test_what_inflates_beyond_any_answer_is_not_taken() -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpacked(packed(Kept(False, b"", bytes(2 * MOST_BYTES))))


def test_lines_of_one_answer_alone_are_not_told_again() -> None:
    own = b"server: n4n\r\nx-request-id: r\r\nx-n4n-overhead-ms: 1.0\r\nx-ratelimit-limit-requests: 5\r\nx-n4n-queue-ms: 7\r\n"
    lasts = b"x-n4n-fallback-attempts: 1\r\nx-n4n-endpoint: e1\r\nx-n4n-usage-cost-usd: 0.01\r\n"
    assert lasting(own + lasts) == lasts
    assert lasting(b"") == b""


def test_pauses_grow_to_a_quarter_of_a_second_and_never_end() -> None:
    told = list(islice(pauses(lambda: 0.5), 8))
    assert told == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25])
    assert 0.2 <= min(islice(pauses(lambda: 0.0), 5, 9)) <= max(islice(pauses(lambda: 0.999), 5, 9)) <= 0.3
