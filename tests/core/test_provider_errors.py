"""What every error of OpenAI and its likes means: the body's code before its type, its type before the status, the text last."""

from __future__ import annotations

import pytest

from n4n.core.dialects.classify import failure_of
from n4n.core.errors import FailureClass
from n4n.core.verdicts import class_of, hint_s
from tests.support.provider_errors import ERRORS, ProviderError, nested
from tests.support.script import compact

NOW = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.name)
def test_every_situation_is_told_from_its_neighbours(row: ProviderError) -> None:
    failure = failure_of(row.status, row.headers, row.body, NOW)

    assert class_of(failure) is row.means
    assert "<" not in failure.message and "http" not in failure.message


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_a_code_in_the_body_decides_whatever_the_status(status: int) -> None:
    for code, means in (("context_length_exceeded", FailureClass.CONTEXT_LENGTH), ("insufficient_quota", FailureClass.QUOTA_EXHAUSTED)):
        row = nested(status, means, "any", code=code, kind="server_error")

        assert failure_of(row.status, {}, row.body, NOW).failure_class is means


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, b"", 7.0),
        ({"retry-after": "0"}, b"", 0.0),
        ({"retry-after": "1.5"}, b"", 1.5),
        ({"retry-after": "90s"}, b"", 90.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:20 GMT"}, b"", 20.0),
        ({"retry-after": "Wed, 31 Dec 2025 23:00:00 GMT"}, b"", 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, b"", 0.25),
        ({}, compact({"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13s"}]}}), 13.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, b"", 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, b"", 0.12),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "-3"}, b"", None),
        ({"retry-after": "1e9"}, b"", None),
        ({}, b"", None),
    ],
)
def test_every_form_of_a_hint_is_read(headers: dict[str, str], body: bytes, seconds: float | None) -> None:
    assert hint_s(failure_of(429, headers, body, NOW)) == seconds


@pytest.mark.parametrize(("said", "repeatable"), [("false", False), ("False ", False), ("true", True), (None, True), ("no", True)])
def test_a_provider_may_say_that_another_try_cannot_help(said: str | None, repeatable: bool) -> None:
    headers = {} if said is None else {"x-should-retry": said}

    assert failure_of(500, headers, b"{}", NOW).repeatable is repeatable
