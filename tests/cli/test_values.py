"""Values of flags: what is read, and that everything else is refused with what to write instead."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from n4n.cli import values

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def test_a_span_counts_from_now() -> None:
    noon_ms = round(NOON.timestamp() * 1000)

    assert values.instant("90s", NOON) == noon_ms + 90_000
    assert values.instant("12h", NOON) == noon_ms + 12 * 3_600_000
    assert values.instant("30d", NOON) == noon_ms + 30 * 86_400_000


def test_a_date_is_its_first_moment_in_utc() -> None:
    assert values.instant("2027-12-31", NOON) == round(datetime(2027, 12, 31, tzinfo=UTC).timestamp() * 1000)
    assert values.instant("2027-12-31T10:00:00+02:00", NOON) == round(datetime(2027, 12, 31, 8, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "30", "30 d", "-1d", "0d", "soon", "2027-02-30", "2026-01-01", "9999-12-31", "1e3d", "９０s"])
def test_a_malformed_or_past_expiry_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="30d, 12h, 90s"):
        values.instant(text, NOON)


def test_a_tag_is_one_name_and_value() -> None:
    assert values.tag("team=search") == ("team", "search")
    for text in ("team", "", "a=1,b=2", "te am=1", "team="):
        with pytest.raises(ArgumentTypeError):
            values.tag(text)


def test_a_budget_is_an_amount_per_window() -> None:
    assert values.budget_usd("50/month") == values.Budget("usd", "50", "month")
    assert values.budget_usd("0.50/day/soft") == values.Budget("usd", "0.5", "day", soft=True)
    assert values.budget_usd("10/24h") == values.Budget("usd", "10", "24h")
    assert values.budget_tokens("1000000/day") == values.Budget("tokens", "1000000", "day")
    assert values.budget_tokens("5m/30d") == values.Budget("tokens", "5000000", "30d")
    assert values.provider_cap("openai=600/month") == ("openai", values.Budget("usd", "600", "month"))
    assert values.provider_cap("openai=none") == ("openai", None)


@pytest.mark.parametrize(
    "text",
    ["50", "50/year", "50/", "/month", "-1/day", "0/day", "1e400/day", "nan/day", "inf/month", "50/month/day", "50 EUR/day", "1/93d",
     "1/30m", "1/0h", "9000001/day", "1/day/hard"],
)  # fmt: skip
def test_a_malformed_budget_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="50/month"):
        values.budget_usd(text)


@pytest.mark.parametrize("text", ["1.5/day", "0/day", "1000", "-1/day", "1k/fortnight", "1e3/day"])
def test_a_malformed_budget_of_tokens_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="1000000/day"):
        values.budget_tokens(text)


@pytest.mark.parametrize("text", ["openai", "openai=", "=5/day", "open ai=5/day", "openai=5/30d", "openai=5/day/soft", "openai=x/day"])
def test_a_malformed_cap_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="openai=600/month"):
        values.provider_cap(text)


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("600", 600), ("200k", 200_000), ("2m", 2_000_000)])
def test_a_count_may_be_written_in_thousands(text: str, number: int) -> None:
    assert values.count(text) == number


@pytest.mark.parametrize("read", [values.count, values.version, values.port])
@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "1_000", "٣", "99999999999999999999", "0x10"])
def test_a_malformed_number_is_refused(read: Callable[[str], int], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(text)


@pytest.mark.parametrize("text", ["regoin=eu", "region", "region=", "=eu", "", "max_cost_per_1k=cheap", "a b"])
def test_a_malformed_directive_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.directive(text)


def test_a_directive_is_kept_as_it_was_written() -> None:
    assert values.directive("region=eu|us") == "region=eu|us"
    assert values.directive_name("region") == "region"
    with pytest.raises(ArgumentTypeError, match="did you mean region"):
        values.directive_name("regoin")


def test_the_word_none_takes_a_rule_away() -> None:
    assert values.or_none(values.count)("none") is None
    assert values.or_none(values.count)("5") == 5
