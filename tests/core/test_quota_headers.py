"""What providers say about their limits: every spelling of a time, in the right order of trust."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.quota_headers import MAX_HINT_S, Quota, explicit_hint_s, read_quotas, retry_after_s

NOW = 1_772_445_600.0  # 2026-03-02T10:00:00Z


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "1540", "retry-after": "2"}, 1.54),
        ({"retry-after-ms": "soon", "retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "Mon, 02 Mar 2026 10:00:45 GMT"}, 45),
        ({"retry-after": "Mon, 02 Mar 2026 10:00:45"}, 45),
        ({"retry-after": "Mon, 02 Mar 2026 09:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 02 Mar 2099 09:00:00 GMT"}, MAX_HINT_S),
        ({"retry-after": "6m0s"}, 360),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "a while"}, None),
        ({"retry-after": "9" * 40}, None),
        ({"retry-after-ms": "99999999999999"}, MAX_HINT_S),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m26.4s"}, 86.4),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "1m26.4s"}, None),
        ({"x-ratelimit-remaining-tokens": "0"}, None),
        (
            {
                "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "347ms",
                "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3s",
            },
            3723,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "45", "x-ratelimit-limit": "60"}, 45),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int((NOW + 30) * 1000))}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW + 30))}, 30),
        ({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-03-02T10:00:12Z"}, 12),
    ],
)  # fmt: skip
def test_the_hint_is_found_in_its_order(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, b"", NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"error":{"details":[{"@type":"RetryInfo","retryDelay":"37s"}]}}', 37),
        (b'{"error":{"details":[{"retryDelay" : "1.5s"}]}}', 1.5),
        (b'{"error":{"details":[{"retryDelay":"s"}]}}', None),
        (b'{"error":{"details":[{"retryDelay":7}]}}', None),
        (b'{"error":{"details":[{"retryDelay":"37s"}', None),
    ],
)
def test_a_hint_in_the_body_counts_after_the_headers(body: bytes, seconds: float | None) -> None:
    assert explicit_hint_s({}, body, NOW) == seconds
    assert explicit_hint_s({"retry-after": "1"}, body, NOW) == 1


def test_a_bucket_is_no_explicit_hint() -> None:
    assert explicit_hint_s({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "45"}, b"", NOW) is None


def test_buckets_of_every_spelling_in_one_shape() -> None:
    openai = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "437", "x-ratelimit-reset-requests": "7.56s"}
    mistral = {"x-ratelimit-limit-tokens-minute": "100", "x-ratelimit-remaining-tokens-minute": "7"}

    assert read_quotas(openai, NOW) == {"requests": Quota(500, 437, 7.56)}
    assert read_quotas(mistral, NOW) == {"tokens": Quota(100, 7)}
    assert read_quotas({"x-tokenlimit-remaining": "-1"}, NOW) == {}
    assert read_quotas({"x-ratelimit-reset-tokens": "later"}, NOW) == {}
    assert read_quotas({"x-ratelimit-reset-tokens": "9" * 65}, NOW) == {}
    assert read_quotas({"x-ratelimit-reset-tokens": "2026-03-02T10:00:12"}, NOW) == {"tokens": Quota(reset_s=12)}


@given(st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"]), st.text(max_size=40))
def test_no_header_does_worse_than_say_nothing(name: str, text: str) -> None:
    hint = retry_after_s({name: text, "x-ratelimit-remaining-tokens": "0"}, text.encode(errors="replace"), NOW)

    assert hint is None or 0 <= hint <= MAX_HINT_S
