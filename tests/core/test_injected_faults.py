"""Faults that the catalog injects: what its field means, which attempts are struck, and what those are told by each dialect."""

from __future__ import annotations

import random

import pytest

from n4n.core.catalog import compile_snapshot
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import parse_document
from n4n.core.errors import FailureClass
from n4n.core.faults import Fault, Strike, answer, fault_of, injected, told
from n4n.runtime import wire
from tests.support.catalogs import SMALL, changed

MANY = 20_000


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (None, None),
        ({}, None),
        ({"abort_status": 429}, Fault(abort=1.0, status=429)),
        ({"abort_percent": 25.0}, Fault(abort=0.25, status=503)),
        ({"abort_percent": 25.0, "abort_status": 500}, Fault(abort=0.25, status=500)),
        ({"abort_percent": 0.0, "abort_status": 500}, None),
        ({"delay_ms": 250}, Fault(delay=1.0, delay_s=0.25)),
        ({"delay_percent": 10.0, "delay_ms": 250}, Fault(delay=0.1, delay_s=0.25)),
        ({"delay_percent": 10.0}, None),
        ({"delay_percent": 0.0, "delay_ms": 250}, None),
        ({"delay_ms": 0}, None),
        ({"abort_percent": 50.0, "delay_ms": 10}, Fault(abort=0.5, delay=1.0, delay_s=0.01)),
        ({"abort_percent": 50.0, "delay_ms": 10, "delay_percent": 0.0}, Fault(abort=0.5)),
    ],
)
def test_a_kind_whose_share_is_not_said_strikes_every_attempt_and_nothing_said_strikes_none(raw, fault) -> None:
    assert fault_of(raw) == fault


@pytest.mark.parametrize(
    ("fault", "delayed", "aborted"),
    [
        (Fault(abort=0.25, status=500, delay=0.1, delay_s=1.0), 0.1, 0.25),
        (Fault(abort=0.005), 0.0, 0.005),
        (Fault(delay=0.5, delay_s=0.1), 0.5, 0.0),
        (Fault(abort=1.0, delay=1.0, delay_s=0.1), 1.0, 1.0),
    ],
)
def test_of_20_000_attempts_the_share_is_struck_that_the_catalog_says(fault: Fault, delayed: float, aborted: float) -> None:
    draw = random.Random(7).random

    struck = [fault.strike(draw) for _ in range(MANY)]

    slow, gone = sum(one.delay_s > 0 for one in struck), sum(one.status is not None for one in struck)
    both = sum(one.delay_s > 0 and one.status is not None for one in struck)
    for seen, share in ((slow, delayed), (gone, aborted), (both, delayed * aborted)):
        assert abs(seen / MANY - share) <= 4 * (share * (1 - share) / MANY) ** 0.5
    assert {one.delay_s for one in struck} <= {0.0, fault.delay_s} and {one.status for one in struck} <= {None, fault.status}


def test_the_same_draws_strike_the_same_attempts_and_two_are_drawn_whatever_the_shares_are() -> None:
    for fault in (Fault(abort=1.0), Fault(delay=1.0, delay_s=1.0), Fault(abort=0.5, delay=0.5, delay_s=1.0)):
        one, other, drawn = random.Random(3), random.Random(3), random.Random(3)

        assert [fault.strike(one.random) for _ in range(50)] == [fault.strike(other.random) for _ in range(50)]
        assert [drawn.random() for _ in range(100)] and one.random() == drawn.random()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("status", "means"),
    [
        (429, FailureClass.RATE_LIMITED),
        (500, FailureClass.SERVER_ERROR),
        (503, FailureClass.OVERLOADED),
        (504, FailureClass.TIMEOUT),
        (401, FailureClass.AUTH),
        (400, FailureClass.BAD_REQUEST),
    ],
)
def test_an_aborted_attempt_fails_as_the_dialect_says_of_the_status_and_says_who_injected_it(dialect, status, means) -> None:
    failure = answer(status, DIALECTS[dialect], 1.7e9)

    assert failure.failure_class is DIALECTS[dialect].failure(status, {}, b"", 1.7e9).failure_class is means
    assert (failure.status, failure.retry_after_s) == (status, None)
    assert failure.message == f"injected by the catalog, for a rehearsal: status {status}"


def test_what_people_read_tells_the_shares_and_the_strike() -> None:
    assert told(Fault(abort=0.333, status=429)) == "a fault is injected: 33.3 % of attempts are answered with status 429"
    assert str(Fault(delay=1.0, delay_s=2.5)) == "100 % of attempts are delayed by 2500 ms"
    assert str(Fault(abort=0.5, delay=0.1, delay_s=0.2)) == (
        "50 % of attempts are answered with status 503, 10 % of attempts are delayed by 200 ms"
    )
    assert [str(one) for one in (Strike(0.0, None), Strike(0.2, None), Strike(0.0, 500), Strike(0.2, 500))] == [
        "", "delay 200 ms", "abort 500", "delay 200 ms, abort 500",
    ]  # fmt: skip


def test_a_document_tells_where_it_injects() -> None:
    endpoints = {"b": {"fault": {"abort_status": 500}}, "a": {"fault": {"delay_ms": 5}}, "c": {}, "d": {"fault": {"abort_percent": 0.0}}}

    assert injected(endpoints) == [
        "endpoint a: a fault is injected: 100 % of attempts are delayed by 5 ms",
        "endpoint b: a fault is injected: 100 % of attempts are answered with status 500",
    ]


def test_a_fault_arrives_over_the_wire_and_leaves_with_the_version_that_takes_it_out() -> None:
    name = "acme-small"
    with_fault = changed(SMALL, "endpoints", name, "fault", to={"abort_percent": 40, "delay_ms": 30})
    document, problems = parse_document(with_fault)
    assert problems == []
    resources = wire.catalog_resources(document, {})

    build = wire.build_catalog(resources, version=2, checksum="c")

    assert build.snapshot.endpoints[name].fault == Fault(abort=0.4, delay=1.0, delay_s=0.03)
    plain, _ = parse_document(SMALL)
    after = compile_snapshot(plain, version=3, checksum="d", before=(document, build.snapshot))
    assert after.endpoints[name].fault is None
