"""The readers that turn untrusted values into normal form: what they take, what they say when they do not."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from n4n.core import schema
from n4n.core.errors import Problem
from n4n.core.schema import Field, Reader


def read(reader: Reader, value: object) -> tuple[object, list[str]]:
    """What a reader makes of a value at path `x`, and its problems as text."""
    problems: list[Problem] = []
    return reader(value, "x", problems), [str(problem) for problem in problems]


@pytest.mark.parametrize(("value", "normal"), [
    (0, 0), (128000, 128000), (128000.0, 128000), ("128000", 128000), ("128k", 128000), ("128K", 128000),
    ("1.5k", 1500), ("1m", 10**6), ("0.25M", 250000),
])  # fmt: skip
def test_a_whole_number_has_many_spellings(value: object, normal: int) -> None:
    assert read(schema.whole(0, 10**9), value) == (normal, [])


@pytest.mark.parametrize("value", [
    True, None, 1.5, float("nan"), float("inf"), "1.5", "1.2345k", "k", "", "-1", "１２",
    "12 k", "9" * 19, "9" * 18 + "k", [1], -1, 10**9 + 1, 10**400,
])  # fmt: skip
def test_what_is_no_whole_number_in_range_is_refused_with_the_range(value: object) -> None:
    normal, problems = read(schema.whole(0, 10**9, " of tokens"), value)

    assert normal is None
    assert problems == [f"x: must be a whole number of tokens from 0 to 1000000000, not {schema.shown(value)}"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1, True, "0.5", None, 10**400])
def test_a_number_must_be_finite_and_in_range(value: object) -> None:
    normal, problems = read(schema.number(0, 1), value)

    assert normal is None and problems[0].startswith("x: must be a number from 0 to 1, not ")


def test_a_number_is_read_as_a_float() -> None:
    assert repr(read(schema.number(0, 1), 1)[0]) == "1.0"


@pytest.mark.parametrize(("value", "normal"), [
    (2.5, "2.5"), (10, "10"), ("2.50", "2.5"), ("0.000001", "0.000001"), (0, "0"), ("-0", "0"), ("-0.00", "0"),
    ("1e2", "100"), (1e-06, "0.000001"),
    (Decimal("3.10"), "3.1"), ("999999999.999999", "999999999.999999"), (".5", "0.5"), ("5.", "5"),
])  # fmt: skip
def test_money_has_one_spelling(value: object, normal: str) -> None:
    assert read(schema.money, value) == (normal, [])


@pytest.mark.parametrize("value", [
    -1, "-0.01", "NaN", float("nan"), float("inf"), Decimal("Infinity"), Decimal("NaN"), "1_000", "١", " 1", "", "$1",
    True, None, [], 10**9, 10**400, "1e300",
    "1e30", 1e40, "0" * 80,
])  # fmt: skip
def test_what_is_no_amount_is_refused(value: object) -> None:
    normal, problems = read(schema.money, value)

    assert normal is None and problems[0].startswith("x: must be an amount of USD, 0 or more, not ")


@pytest.mark.parametrize("value", [0.0000001, "1.1234567", 0.1 + 0.2, "1e-29"])
def test_money_has_at_most_six_decimals(value: object) -> None:
    assert read(schema.money, value)[1][0].startswith("x: must have at most 6 decimals")


@pytest.mark.parametrize(("value", "words"), [
    ("", "must not be empty"), ("a\nb", "must not hold control characters"), ("a\x7f", "must not hold control characters"),
    ("\ud800", "must not hold control characters"), (5, "must be text, not a number"),
    (datetime.date(2026, 1, 1), "must be text, not date"),
    ([], "must be text, not a list"), ({}, "must be text, not a map"), (True, "must be text, not true/false"),
])  # fmt: skip
def test_text_is_not_empty_and_plain(value: object, words: str) -> None:
    assert read(schema.text, value) == (None, [f"x: {words}"])


def test_text_may_hold_any_letter() -> None:
    assert read(schema.text, "Zürich 東京 🙂") == ("Zürich 東京 🙂", [])


def test_a_flag_is_true_or_false_and_nothing_like_it() -> None:
    assert read(schema.flag, True) == (True, [])
    assert read(schema.flag, "yes") == (None, ["x: must be true or false, not 'yes'"])


def test_a_choice_names_the_known_words_and_the_nearest() -> None:
    reader = schema.choice("drop", "reject", "429")

    assert read(reader, "drop") == ("drop", [])
    assert read(reader, 429) == ("429", [])
    assert read(reader, "rejct") == (None, ["x: must be one of drop, reject, 429, not 'rejct' (did you mean reject?)"])
    assert read(reader, True) == (None, ["x: must be one of drop, reject, 429, not True"])


def test_a_refused_value_is_repeated_on_one_line_and_short() -> None:
    _, problems = read(schema.flag, "line\n" * 1000)

    assert len(problems[0]) < 120 and "\n" not in problems[0]
    assert schema.shown(10**5000) == "a huge number"


def test_a_list_refuses_repetition_and_says_where() -> None:
    reader = schema.listed(schema.text)

    assert read(reader, ["a", "b"]) == (["a", "b"], [])
    assert read(reader, ("a",)) == (["a"], [])
    assert read(reader, ["a", "b", "a"]) == (None, ["x[2]: 'a' stands twice in the list"])
    assert read(reader, ["a", 5, ""]) == (None, ["x[1]: must be text, not a number", "x[2]: must not be empty"])


@pytest.mark.parametrize(("value", "words"), [("ab", "text"), (b"ab", "bytes"), ({"a": 1}, "a map"), (5, "a number")])
def test_what_is_no_list_is_named(value: object, words: str) -> None:
    assert read(schema.listed(schema.text), value) == (None, [f"x: must be a list, not {words}"])


def test_a_list_may_have_to_name_something() -> None:
    assert read(schema.listed(schema.text, least=1), []) == (None, ["x: must name at least 1"])


def test_a_map_reads_each_value_and_each_key() -> None:
    reader = schema.map_of(schema.text)

    assert read(reader, {"a": "b"}) == ({"a": "b"}, [])
    assert read(reader, {"a": 1, 2: "c", "d\n": "e"}) == (
        None,
        ["x.a: must be text, not a number", "x.2: must be text, not a number", r"x.'d\n': must not hold control characters"],
    )
    assert read(reader, ["a"]) == (None, ["x: must be a map, not a list"])


def test_a_table_takes_known_fields_only_and_names_what_is_missing() -> None:
    fields = {"name": Field(schema.text, required=True), "weight": Field(schema.number(0, 1)), "429": Field(schema.flag)}
    problems: list[Problem] = []

    table = schema.read_table({"wieght": 1, "weight": None, 429: True, None: 1, "a\nb": 2}, "", problems, fields)

    assert table == {"429": True}
    assert [str(problem) for problem in problems] == [
        "wieght: unknown field (did you mean weight?); known: name, weight, 429",
        "None: unknown field; known: name, weight, 429",
        r"'a\nb': unknown field; known: name, weight, 429",
        "name: is missing; it is required",
    ]


def test_a_bad_field_of_a_table_is_left_out_and_a_nested_table_is_whole_or_nothing() -> None:
    inner = schema.table({"a": Field(schema.flag), "b": Field(schema.flag, required=True)})

    assert read(inner, {"a": True, "b": False}) == ({"a": True, "b": False}, [])
    assert read(inner, {"a": True}) == (None, ["x.b: is missing; it is required"])
    assert read(inner, []) == (None, ["x: must be a map of fields, not a list"])


def test_names_are_checked_and_the_good_ones_kept() -> None:
    problems: list[Problem] = []

    found = schema.named({"good-1": 1, "bad name": 2, 3: 3, "": 4, "x" * 300 + "é": 5}, "models", problems)

    assert found == {"good-1": 1}
    assert [problem.field for problem in problems] == ["models.bad name", "models.3", "models.", "models." + repr("x" * 300)[:60] + "…"]
    assert {problem.message for problem in problems} == {"is not a name; use letters, digits, dot, underscore and hyphen"}
    assert schema.named(None, "models", problems) == {}
    assert schema.named([1], "models", []) == {}


def test_a_section_that_is_no_map_is_a_problem() -> None:
    problems: list[Problem] = []

    schema.named("gpt", "models", problems)

    assert [str(problem) for problem in problems] == ["models: must be a map from names, not text"]


def test_the_nearest_name_is_offered_only_when_it_is_near() -> None:
    assert schema.nearest("gpt-4", ["gpt-4o", "claude"]) == " (did you mean gpt-4o?)"
    assert schema.nearest("zzz", ["gpt-4o"]) == ""
