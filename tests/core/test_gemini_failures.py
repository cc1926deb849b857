"""What every error of Google's means."""

from __future__ import annotations

import json

import pytest

from n4n.core.dialects.gemini import Gemini, Vertex
from n4n.core.dialects.gemini.failures import failure_within, read_status
from n4n.core.errors import Failure, FailureClass
from tests.support.provider_errors import AUTH, BAD, CONTEXT, GONE, OVERLOADED, POLICY, QUOTA, RATE, SERVER, TIMEOUT

GEMINI = Gemini()
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def status(code: object, word: object, message: str = "no", *details: object) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "status": word, "details": list(details)}}).encode()


def quota(name: str, value: str = "60", key: str = "quotaId") -> dict[str, object]:
    return {"@type": QUOTA_FAILURE, "violations": [{key: name, "quotaValue": value}, "x"]}


def retry(delay: str) -> dict[str, object]:
    return {"@type": RETRY_INFO, "retryDelay": delay}


def failure(http: int, body: bytes, **headers: str) -> Failure:
    return GEMINI.failure(http, headers, body, 0.0)


ROWS = [
    (400, status(400, "INVALID_ARGUMENT", "a field is wrong"), BAD),
    (400, status(400, "INVALID_ARGUMENT", "The input token count (5) exceeds the maximum number of tokens allowed (4)."), CONTEXT),
    (400, status(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."), CONTEXT),
    (400, status(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), AUTH),
    (400, status(400, "INVALID_ARGUMENT", "no", {"reason": "API_KEY_INVALID"}), AUTH),
    (400, status(400, "INVALID_ARGUMENT", "violates our usage guidelines"), POLICY),
    (400, status(400, "OUT_OF_RANGE"), BAD),
    (400, status(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), AUTH),
    (401, status(401, "UNAUTHENTICATED"), AUTH),
    (402, status(402, "RESOURCE_EXHAUSTED", "prepaid"), QUOTA),
    (403, status(403, "PERMISSION_DENIED", "no", {"reason": "SERVICE_DISABLED"}), AUTH),
    (404, status(404, "NOT_FOUND", "models/x is not found"), GONE),
    (409, status(409, "ABORTED"), SERVER),
    (413, status(413, None, "too large"), BAD),
    (429, status(429, "RESOURCE_EXHAUSTED", "see plan and billing", quota("RequestsPerMinutePerProjectPerModel"), retry("22s")), RATE),
    (429, status(429, "RESOURCE_EXHAUSTED", "no", quota("x.googleapis.com/requests", key="quotaMetric")), RATE),
    (429, status(429, "RESOURCE_EXHAUSTED", "no", quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")), QUOTA),
    (429, status(429, "RESOURCE_EXHAUSTED", "no", quota("RequestsPerMinute", "0")), QUOTA),
    (429, status(429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: x, limit: 0\nretry", quota("RequestsPerMinute", "")), QUOTA),
    (429, status(429, "RESOURCE_EXHAUSTED", "no", retry("90000s")), QUOTA),
    (429, status(429, "RESOURCE_EXHAUSTED", "your project has exceeded its spending cap", retry("22s")), QUOTA),
    (429, status(429, "RESOURCE_EXHAUSTED", "no", retry("3s")), RATE),
    (429, status(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later."), OVERLOADED),
    (429, status("rate_limit_exceeded", None), RATE),
    (429, status("quota_exceeded", None), QUOTA),
    (429, status("too_many_requests", None), RATE),
    (429, status(429, None), RATE),
    (499, status(499, "CANCELLED"), SERVER),
    (500, status(500, "INTERNAL"), SERVER),
    (500, status(500, "UNKNOWN"), SERVER),
    (501, status(501, "UNIMPLEMENTED"), GONE),
    (503, status(503, "UNAVAILABLE", "The model is overloaded."), OVERLOADED),
    (504, status(504, "DEADLINE_EXCEEDED"), TIMEOUT),
    (502, status(429, "RESOURCE_EXHAUSTED", "no", quota("PerMinute")), RATE),
    (500, status(None, None, "what"), SERVER),
    (503, b"<html><h1>503</h1></html>", OVERLOADED),
    (404, b"", GONE),
    (400, b'{"message": "flat"}', BAD),
]


@pytest.mark.parametrize(("http", "body", "means"), ROWS, ids=[f"{http} {body[:60]!r}" for http, body, _ in ROWS])
def test_every_situation_is_told_from_its_neighbours(http: int, body: bytes, means: FailureClass) -> None:
    for dialect in (GEMINI, Vertex({})):
        got = dialect.failure(http, {}, body, 0.0)
        assert got.failure_class is means
        assert got.status == http and "<" not in got.message
    listed = b"[" + body + b"]" if body.startswith(b'{"error') else body
    assert failure(http, listed).failure_class is means


def test_only_what_is_about_the_request_is_told_in_googles_words() -> None:
    bad = failure(400, status(400, "INVALID_ARGUMENT", "* GenerateContentRequest.contents: contents is not specified\n"))
    denied = failure(403, status(403, "PERMISSION_DENIED", "project secret-project may not"))

    assert (bad.message, bad.code) == ("* GenerateContentRequest.contents: contents is not specified", "INVALID_ARGUMENT")
    assert (denied.message, denied.code) == ("the provider refused the gateway's credential", "PERMISSION_DENIED")
    assert failure(400, status(400, "INVALID_ARGUMENT", "https://x.test/y")).message == "the provider refused the request as invalid"


@pytest.mark.parametrize(
    ("body", "headers", "hint"),
    [
        (status(429, "RESOURCE_EXHAUSTED", "no", quota("PerMinute"), retry("22.5s")), {}, 22.5),
        (status(429, "RESOURCE_EXHAUSTED", "no", retry("22s")), {"retry-after": "3"}, 3.0),
        (status(503, "UNAVAILABLE"), {"retry-after": "4"}, 4.0),
        (status(400, "INVALID_ARGUMENT"), {"retry-after": "4"}, None),
        (status(429, "RESOURCE_EXHAUSTED"), {}, None),
    ],
)
def test_the_hint_is_read_where_waiting_helps(body: bytes, headers: dict[str, str], hint: float | None) -> None:
    assert failure(429, body, **headers).retry_after_s == hint


def test_the_code_is_the_word_else_the_number() -> None:
    assert failure(500, status(500, None)).code == "500"
    assert failure(500, status(None, None)).code is None
    assert failure(429, status("quota_exceeded", None)).code == "QUOTA_EXCEEDED"


@pytest.mark.parametrize("body", [None, 5, [], [5], {}, {"error": "x"}, {"candidates": []}])
def test_what_is_no_status_is_none(body: object) -> None:
    assert read_status(body) is None


def test_an_error_inside_a_200_is_judged_by_its_own_code() -> None:
    for code, word, means in ((503, None, OVERLOADED), (None, None, SERVER), (429, "RESOURCE_EXHAUSTED", OVERLOADED), (200, None, SERVER)):
        raw = status(code, word)
        said = read_status(json.loads(raw))
        assert said is not None
        assert failure_within(said, raw).failure_class is means
