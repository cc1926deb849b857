"""One request, put together from its log line and the ledger."""

from __future__ import annotations

import json

import pytest

from n4n.cli.logs import story
from n4n.cli.request_log import Found, about
from n4n.runtime.operations_calls import AttemptInfo

LINE = {
    "timestamp": "2026-11-30T12:00:00.000Z", "request_id": "req_1", "model": "gpt", "tenant": "acme", "key_id": "k1", "stream": True,
    "routing": {
        "catalog_version": 4, "candidates_considered": 3, "selected": "e2", "directives_applied": ["region=eu"], "fallback_attempts": 1,
        "attempts": [
            {"attempt_id": "att_1", "endpoint": "e1", "outcome": "overloaded", "ms": 12.0, "message": "the provider is overloaded"},
            {"attempt_id": "att_2", "endpoint": "e2", "outcome": "ok", "ms": 812.0},
        ],
    },
    "latency_ms": 830.0, "ttft_ms": 310.0, "hold_ms": 4.0, "queue_ms": 0.0, "overhead_ms": 1.4, "status": 200, "outcome": "success",
    "error": None, "warnings": ["seed was left out"], "trace_id": "4bf9",
}  # fmt: skip


def a_row(attempt_id: str, endpoint: str, state: str, error_class: str = "", cost: str | None = "0.0064") -> AttemptInfo:
    return AttemptInfo(
        1, 0, endpoint, "acc", state, error_class, 200, 1200, 340, cost, 812.0, 310.0, False, attempt_id, "acme", "k1", "gpt"
    )


def test_the_story_ties_attempts_to_their_rows() -> None:
    rows = [a_row("att_1", "e1", "failed", "overloaded", "0"), a_row("att_2", "e2", "ok")]
    assert story("req_1", Found([LINE]), rows) == [
        "req_1: gpt for acme (key k1) at 2026-11-30T12:00:00.000Z",
        "  answered 200 success in 830.0 ms, of which n4n took 1.4 ms",
        "  first token 310.0 ms, held by the guard 4.0 ms",
        "  catalog version 4, 3 candidates, directives: region=eu, selected: e2",
        "  trace 4bf9",
        "  warning: seed was left out",
        "  1. e1 overloaded after 12.0 ms: the provider is overloaded",
        "     ledger: failed (overloaded), 1200 tokens in, 340 out, 0 USD, account acc",
        "  2. e2 ok after 812.0 ms",
        "     ledger: ok, 1200 tokens in, 340 out, 0.0064 USD, account acc",
    ]


def test_an_attempt_that_the_catalogs_fault_befell_is_told_so() -> None:
    routing = {**LINE["routing"], "attempts": [{"endpoint": "e1", "outcome": "timeout", "ms": 9.0, "injected": "delay 9 ms, abort 504"}]}  # type: ignore[dict-item]

    told = story("req_1", Found([{**LINE, "routing": routing}]), [], asked=False)

    assert told[-1] == "  1. e1 timeout after 9.0 ms (injected by the catalog: delay 9 ms, abort 504)"


def test_the_ledger_alone_is_told_where_no_line_is_found() -> None:
    assert story("req_1", Found(), [a_row("att_2", "e2", "ok", cost=None)]) == [
        "req_1: its log line was not found; what the ledger has:",
        "  1. e2, ledger: ok, 1200 tokens in, 340 out, no price, account acc",
    ]


def test_an_attempt_whose_row_is_on_its_way_is_told_so() -> None:
    assert story("req_1", Found([LINE]), [])[-1] == "     ledger: no row yet"


def test_the_line_is_found_among_others_and_among_what_is_no_json() -> None:
    other = json.dumps({**LINE, "request_id": "req_12"})
    quoting = json.dumps({"level": "info", "message": "request req_1 failed", "request_id": "req_1"})
    found = about("req_1", ["n4n up says req_1", other, quoting, "{req_1", json.dumps(LINE)])
    assert (found.lines, found.said, found.seen) == ([LINE], [json.loads(quoting)], 2)
    assert about("req_2", [other]).lines == []


def test_a_label_is_found_as_json_writes_it() -> None:
    line = {**LINE, "request_id": 'a"b\\c'}
    assert about('a"b\\c', [json.dumps(line)]).lines == [line]


def test_what_a_process_said_of_the_request_is_told_with_the_last_line_of_its_traceback() -> None:
    said = {"level": "error", "role": "data-plane", "message": "request req_1 failed", "exception": "Traceback\n  File x\nKeyError: 'e9'"}
    assert story("req_1", Found([LINE], [said]), [])[-1] == "  data-plane said (error): request req_1 failed: KeyError: 'e9'"


def test_a_log_that_was_asked_for_nothing_says_what_it_covers() -> None:
    later = {**LINE, "timestamp": "2026-11-30T13:30:00.000Z"}
    assert about("req_9", map(json.dumps, (LINE, later))).span == "2026-11-30T12:00:00 to 2026-11-30T13:30:00"


@pytest.mark.parametrize(
    "other",
    [
        {"timestamp": "yesterday"}, {"timestamp": 5}, {"routing": "10.0.0.0/8"}, {"routing": None}, {"routing": {"attempts": None}},
        {"warnings": 5}, {"eliminated": ["x"]}, {"status": "ok"},
    ],
    ids=str,
)  # fmt: skip
def test_a_line_of_another_program_about_the_same_request_is_passed_over(other: dict[str, object]) -> None:
    found = about("req_1", [json.dumps({**LINE, **other}), json.dumps({"routing": {}, "request_id": "req_1"}), json.dumps(LINE)])
    assert found.lines == [LINE]
