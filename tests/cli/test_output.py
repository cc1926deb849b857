"""What is printed: tables, JSON, and errors in one line each."""

from __future__ import annotations

import json

import pytest

from n4n.cli import output
from n4n.cli.catalog import change_lines
from n4n.runtime.control_client import Change

ROWS = [
    {"name": "a", "price": 2.5, "at": "2027-01-01T10:00:00.000Z", "on": True},
    {"name": "long", "price": 1e-06, "at": None, "on": False},
]


def test_a_table_is_aligned_and_for_the_eye(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(ROWS, {"name": "NAME", "price": "USD", "at": "AT", "on": "ON"}, "table", empty="nothing")

    assert capsys.readouterr().out.splitlines() == [
        "NAME  USD       AT                   ON",
        "a     2.5       2027-01-01 10:00:00  yes",
        "long  0.000001  -                    no",
    ]


def test_json_holds_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(ROWS, {"name": "NAME"}, "json", empty="nothing")

    assert json.loads(capsys.readouterr().out) == ROWS


def test_an_empty_list_says_so_to_people_and_is_empty_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([], {"name": "NAME"}, "table", empty="nothing yet")
    output.print_rows([], {"name": "NAME"}, "json", empty="nothing yet")

    assert capsys.readouterr().out == "nothing yet\n[]\n"


def test_an_error_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain("models.\x1b[31m\nx: is wrong")

    assert capsys.readouterr().err == "n4n: models. [31m x: is wrong\n"


def test_a_cell_never_moves_the_cursor() -> None:
    assert output.cell("a\nb\x1b") == "a b "
    assert output.cell(["x", "y"]) == "x, y"
    assert output.cell([]) == "-"


def test_times_are_iso_8601_in_utc() -> None:
    assert output.iso(0) is None
    assert output.iso(1_800_000_000_123) == "2027-01-15T08:00:00.123Z"


def test_money_is_a_plain_json_number() -> None:
    assert json.dumps([output.number("10"), output.number("2.50"), output.number(""), output.number(None)]) == "[10, 2.5, null, null]"


@pytest.mark.parametrize("text", ["\x1b[2J-\x1b[31mTime, or not? Z", "\x9b31m", "\u202egnp.exe", "\x7f", "\u2028"])
def test_no_name_gives_orders_to_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert output.cell(text).isprintable()
    assert output.cell([text, text]).isprintable()
    output.print_json({"name": text})
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"name": text}


def test_half_a_pair_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": "\ud800"})
    assert json.loads(capsys.readouterr().out) == {"name": "\ud800"}


def test_changes_of_a_catalog_give_no_orders_either() -> None:
    assert [line.isprintable() for line in change_lines([Change("models.m.x", '"\\u001b[2J"', '"\\u001b[31m"')])] == [True]
