"""The tree of errors: what each says by itself, and the status and code a client sees."""

from __future__ import annotations

import pytest

from n4n.core import errors
from n4n.core.errors import (
    AttemptsExhausted,
    CatalogRefused,
    FailedAttempt,
    Failure,
    FailureClass,
    GatewayError,
    NoEligibleEndpoint,
    NoEndpointNow,
    NoSnapshot,
    Problem,
    StoreRefused,
    StreamInterrupted,
    Unauthenticated,
)


def every(base: type[GatewayError]) -> list[type[GatewayError]]:
    """A class and all below it."""
    return [base, *(leaf for child in base.__subclasses__() for leaf in every(child))]


PLAIN = [error for error in every(GatewayError) if error.__module__ == errors.__name__ and error.__init__ is GatewayError.__init__]


@pytest.mark.parametrize("error", PLAIN)
def test_an_error_says_by_itself_what_happened_in_one_line(error: type[GatewayError]) -> None:
    raised = error()

    assert raised.message and "\n" not in raised.message and str(raised) == raised.message
    assert 400 <= raised.status <= 599 and raised.code.islower()


def test_an_error_may_say_more_and_name_a_field_and_a_time() -> None:
    raised = NoSnapshot("no catalog yet", param="model", retry_after_s=2.0)

    assert (raised.message, raised.param, raised.retry_after_s, raised.status, raised.code) == (
        "no catalog yet",
        "model",
        2.0,
        503,
        "no_catalog",
    )
    assert Unauthenticated().status == 401


def test_no_eligible_endpoint_counts_what_each_directive_removed() -> None:
    counts = {"region=eu": 3}

    raised = NoEligibleEndpoint("nothing is left", candidates=3, eliminated=counts)
    counts.clear()

    assert (raised.status, raised.code, raised.candidates, raised.eliminated) == (400, "no_eligible_endpoint", 3, {"region=eu": 3})


def test_exhausted_attempts_take_status_and_code_from_the_most_telling_one() -> None:
    failed = FailedAttempt("acme", Failure(FailureClass.TIMEOUT, "no first token in 8 s"), 8000.0)

    raised = AttemptsExhausted(
        "all failed", status=504, code="timeout", kind="server_error", attempts=[failed], candidates=2, retry_after_s=3.0
    )

    assert (raised.status, raised.code, raised.kind, raised.attempts, raised.candidates) == (504, "timeout", "server_error", (failed,), 2)
    assert raised.retry_after_s == 3.0
    assert AttemptsExhausted.status == GatewayError.status


def test_an_interrupted_stream_says_what_broke_it() -> None:
    failed = FailedAttempt("acme", Failure(FailureClass.SERVER_ERROR, "the stream ended without a finish reason"), 10.0)

    raised = StreamInterrupted(failed)

    assert (raised.message, raised.failed, raised.status) == ("the stream ended without a finish reason", failed, 502)


def test_a_refused_catalog_tells_every_problem_with_its_path() -> None:
    refused = CatalogRefused([Problem("models.a", "is odd"), Problem("", "the catalog is odd")])

    assert str(refused) == "models.a: is odd; the catalog is odd"
    assert len(refused.problems) == 2


def test_no_endpoint_now_counts_what_keeps_each_candidate_out() -> None:
    raised = NoEndpointNow("nothing serves this model now", candidates=2, eliminated={"credential": 2})

    assert (raised.candidates, raised.eliminated) == (2, {"credential": 2})
    assert raised.status == 503


def test_a_refusal_by_the_store_names_the_command_and_the_first_word_of_the_answer() -> None:
    raised = StoreRefused("WRONGTYPE", "reserve")

    assert (str(raised), raised.reply_code, raised.status) == ("Redis refused reserve with WRONGTYPE", "WRONGTYPE", 503)
