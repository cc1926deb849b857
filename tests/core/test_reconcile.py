"""A provider's own export, read and held against the ledger."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest

from n4n.core.provider_exports import NoExport, Stated, read_export
from n4n.core.reconcile import Difference, beyond, compared, family, totals

DAY = date(2026, 11, 29)
START = 1_795_910_400  # its first second


def page(*results: object, start: object = START) -> dict[str, object]:
    """One page of OpenAI's usage or costs API."""
    return {
        "object": "page",
        "data": [{"object": "bucket", "start_time": start, "end_time": START + 86_400, "results": results}],
        "has_more": False,
    }


def test_openais_usage_is_read_as_its_api_answers_it():
    told = {"object": "organization.usage.completions.result", "input_tokens": 1000, "output_tokens": 500, "input_cached_tokens": 800,
            "input_audio_tokens": 0, "num_model_requests": 5, "project_id": None, "model": "gpt-4o-2024-08-06", "batch": False}  # fmt: skip
    stated = Stated(DAY, "gpt-4o-2024-08-06", Decimal(5), Decimal(1000), Decimal(800), Decimal(500))

    assert read_export(json.dumps(page(told))) == [stated]
    assert read_export(json.dumps([page(told), page(told)])) == [stated, stated]
    assert read_export(json.dumps(page(told)["data"])) == [stated]


def test_openais_costs_are_read_by_model_where_they_are_told_by_line_item():
    by_item = {"amount": {"value": 0.06, "currency": "usd"}, "line_item": "gpt-4o-2024-08-06, cached input", "project_id": None}
    whole = {"amount": {"value": 1.25, "currency": "usd"}, "line_item": None}

    assert read_export(json.dumps(page(by_item, whole))) == [
        Stated(DAY, "gpt-4o-2024-08-06", cost_usd=Decimal("0.06")),
        Stated(DAY, None, cost_usd=Decimal("1.25")),
    ]


def test_openais_dashboard_files_are_read_and_days_without_anything_passed_over():
    usage = (
        "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens\n"
        f"{START},{START + 86_400},2026-11-29T00:00:00+00:00,2026-11-30T00:00:00+00:00,proj_1,10.0,gpt-4o,59200.0,10646.0,5760.0\n"
        f"{START + 86_400},,2026-11-30T00:00:00+00:00,,,,,,,\n,,,,,,,,,\n"
    )
    costs = (
        "start_time,end_time,amount_value,amount_currency,line_item\n"
        f'{START},{START + 86_400},0.8958740000000000,usd,\n{START},,0.1,usd,"gpt-5-mini, input"\n'
    )

    first, empty = read_export(usage)
    assert first == Stated(DAY, "gpt-4o", Decimal(10), Decimal(59_200), Decimal(5760), Decimal(10_646))
    assert empty == Stated(date(2026, 11, 30), None)
    assert read_export(costs) == [Stated(DAY, None, cost_usd=Decimal("0.895874")), Stated(DAY, "gpt-5-mini", cost_usd=Decimal("0.1"))]


def test_anthropics_reports_are_read_their_input_in_parts_and_their_costs_in_cents():
    used = {"uncached_input_tokens": 100, "cache_creation": {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 3},
            "cache_read_input_tokens": 4000, "output_tokens": 70, "server_tool_use": {"web_search_requests": 1},
            "model": "claude-sonnet-4-20250514"}  # fmt: skip
    cost = {
        "currency": "USD",
        "amount": "123.45",
        "model": "claude-sonnet-4-20250514",
        "description": "Claude Sonnet 4 Usage - Input Tokens",
    }

    def report(result: object) -> str:
        return json.dumps({"data": [{"starting_at": "2026-11-29T00:00:00Z", "ending_at": "2026-11-30T00:00:00Z", "results": [result]}]})

    assert read_export(report(used)) == [
        Stated(DAY, "claude-sonnet-4-20250514", None, Decimal(4123), Decimal(4000), Decimal(70)),
    ]
    assert read_export(report(cost)) == [Stated(DAY, "claude-sonnet-4-20250514", cost_usd=Decimal("1.2345"))]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("day", ["2026-11-29", "2026-11-29T23:59:59Z", "2026-11-30T01:00:00+02:00", str(START), f"{START}000", "20261129"])
def test_any_file_with_a_day_a_model_and_counts_will_do(separator: str, day: str):
    text = "\n".join(
        separator.join(row) for row in (("Date", "Model", "Prompt Tokens", "completion_tokens", "Cost"), (day, "m", "12", "3", "$1.5"))
    )

    assert read_export(text) == [Stated(DAY, "m", None, Decimal(12), None, Decimal(3), Decimal("1.5"))]


def test_a_day_of_which_nothing_is_told_says_nothing():
    (short, whole) = read_export("day,model,cost\n2026-11-29\n2026-11-29,m,0\n")

    assert not short.says_something
    assert whole.says_something


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no column for the day"),
        ("model,input_tokens\nm,1\n", "no column for the day"),
        ("day,model\n2026-11-29,m\n", "neither tokens nor a cost"),
        ("day,input_tokens\n2026-11-29,many\n", "line 2: input_tokens must be a number, not 'many'"),
        ("day,cost\n2026-11-29,NaN\n", "line 2: cost_usd must be a number"),
        ("day,cost\nyesterday,1\n", "line 2: 'yesterday' is no day"),
        ("day,cost\n99999999999999999999,1\n", "is no day"),
        ("day,cost\n9999-12-31,1\n", "line 2: '9999-12-31' is no day"),
        ("day,cost\n0001-01-01,1\n", "line 2: '0001-01-01' is no day"),
        ("day,cost\n2026-11-29,1e999\n", "line 2: cost_usd must be a number, not '1e999'"),
        ("day,model,cost\n2026-11-29," + "m" * 200_000 + ",1\n", "it is no CSV: field larger than field limit"),
        ("day,cost,currency\n2026-11-29,1,eur\n", "line 2: the amount is in 'eur'"),
        ("{", "it is no JSON"),
        ("[1, {}]", "holds no `data`"),
        (json.dumps(page({"amount": {"value": True}})), "data[0]: cost_usd must be a number"),
        (json.dumps(page({"input_tokens": 1}, start=None)), "data[0]: 'None' is no day"),
    ],
)
def test_what_is_no_export_is_told_in_a_line(text: str, why: str):
    with pytest.raises(NoExport) as refused:
        read_export(text)

    assert why in str(refused.value)


def test_results_that_are_none_are_passed_over():
    assert read_export(json.dumps(page("result"))) == []


def test_a_model_is_compared_with_its_snapshots():
    assert family("gpt-4o-2024-08-06") == family("GPT-4o") == "gpt-4o"
    assert family("claude-sonnet-4-20250514") == family("claude-sonnet-4@20250514") == "claude-sonnet-4"
    assert family("gpt-4o-mini") == "gpt-4o-mini"


def test_what_differs_by_more_than_the_tolerance_is_found_by_day_and_model():
    ours = [
        Stated(DAY, "gpt-4o", input_tokens=Decimal(1000), output_tokens=Decimal(90), cost_usd=Decimal("2")),
        Stated(DAY, "gpt-4o-2024-08-06", input_tokens=Decimal(1000), output_tokens=Decimal(10), cost_usd=Decimal("1")),
        Stated(date(2026, 11, 28), "gpt-4o", input_tokens=Decimal(5)),  # of a day that the export does not tell
    ]
    theirs = [
        Stated(DAY, "gpt-4o-2024-08-06", input_tokens=Decimal(2010), output_tokens=Decimal(110)),
        Stated(DAY, "o3", input_tokens=Decimal(7), output_tokens=Decimal(0)),
        Stated(DAY, None, cost_usd=Decimal("3")),
    ]

    found = compared(ours, theirs)

    assert [(one.model, one.measure, one.ours, one.theirs) for one in found] == [
        ("gpt-4o", "input_tokens", 2000, 2010),
        ("gpt-4o", "output_tokens", 100, 110),
        ("o3", "input_tokens", 0, 7),
        ("o3", "output_tokens", 0, 0),
        ("*", "cost_usd", 3, 3),
    ]
    assert [(one.model, one.measure) for one in beyond(found, Decimal("0.01"))] == [("gpt-4o", "output_tokens"), ("o3", "input_tokens")]
    assert totals(found) == [
        Difference(DAY, "", "input_tokens", Decimal(2000), Decimal(2017)),
        Difference(DAY, "", "output_tokens", Decimal(100), Decimal(110)),
        Difference(DAY, "", "cost_usd", Decimal(3), Decimal(3)),
    ]
    assert found[2].share == 1 and found[3].share == 0
