"""`n4n usage`: what it prints of the sums that a control plane told."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from datetime import UTC, datetime

import pytest

from n4n.cli import usage
from n4n.cli.parser import Commands, Parser
from n4n.cli.values import past
from n4n.runtime.usage_calls import UsageTotal

TOTALS = (
    UsageTotal("acme", 3, 4, 1, 0, 0, 0, 1000, 200, 10, 110, 40, 100, 110, "1234567890.000000000001", (), 800, 816),
    UsageTotal("free", 1, 1, 0, 0, 1, 0, 5, 0, 0, 2, 0, 0, 0, None),
)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    parser = Parser()
    usage.add(Commands(parser))
    monkeypatch.setattr(usage, "ask", lambda *_: TOTALS)
    args = parser.parse_args(["usage", *arguments])
    assert args.run(args) == 0
    return capsys.readouterr()


def test_a_csv_holds_the_exact_cost_and_nothing_where_it_is_unknown(monkeypatch, capsys):
    out, _ = printed(monkeypatch, capsys, "-o", "csv")

    head, first, second = out.splitlines()
    assert head.startswith("tenant,requests,attempts,failed,") and head.endswith(",cost_usd,count_ratio,prompt_count_ratio")
    assert first == "acme,3,4,1,0,0,0,1000,200,10,110,40,1234567890.000000000001,1.1,1.02"
    assert second == "free,1,1,0,0,1,0,5,0,0,2,0,,,"


def test_the_table_says_what_is_not_in_the_cost(monkeypatch, capsys):
    out, err = printed(monkeypatch, capsys)

    assert out.splitlines()[0].split()[:3] == ["TENANT", "REQUESTS", "ATTEMPTS"]
    assert err == "1 of 5 attempts had no price and are not in the cost\n"


def test_json_names_the_group_as_it_was_asked_for(monkeypatch, capsys):
    out, err = printed(monkeypatch, capsys, "--by", "key", "--since", "2026-11-01", "-o", "json")

    first, second = json.loads(out)
    assert (first["key"], first["count_ratio"], second["cost_usd"], err) == ("acme", 1.1, None, "")


def test_a_span_is_counted_back_from_now_and_a_date_is_its_first_moment():
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)

    assert past("12h", now) == round(datetime(2026, 11, 30, tzinfo=UTC).timestamp() * 1000)
    assert past("2026-11-30") == past("2026-11-30T02:00+02:00") == past("12h", now)
    for text in ("yesterday", "", "-7d", "1900-01-01", "9999-12-31"):
        with pytest.raises(ArgumentTypeError):
            past(text)
