"""Catalog files: strict reading with line numbers, and printing that can be applied again unchanged."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from n4n.cli.documents import read_document, readable, to_json, to_yaml
from n4n.cli.output import Refused
from n4n.core.document import parse_document

CATALOG = {
    "providers": {"openai": {"dialect": "openai", "base_url": "https://api.openai.com/v1"}},
    "accounts": {"main": {"provider": "openai", "credential": "env:OPENAI_API_KEY", "limits": {"rpm": 500}}},
    "models": {"gpt-4o": {"context_window": 128000, "aliases": ["no", "4.10", "openai/gpt-4o"], "capabilities": {"tools": True}}},
    "endpoints": {
        "one": {
            "model": "gpt-4o",
            "account": "main",
            "region": "eu",
            "price": {
                "input_per_1m": "2.5",
                "output_per_1m": "10",
                "cached_input_per_1m": "0.000001",
                "tiers": [{"above_input_tokens": 200000, "input_per_1m": "5"}],
            },
            "body": {"price": {"input_per_1m": "text of the provider's own"}},
            "data": {"retention": "0d"},
        }
    },
    "tiers": {"fast": {"chain": ["gpt-4o"]}},
}


def normal(raw: object) -> object:
    document, problems = parse_document(raw)
    assert problems == []
    return document


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.yaml"


def test_what_is_shown_can_be_applied_again_unchanged(path: Path) -> None:
    document = parse_document(CATALOG)[0]

    path.write_text(to_yaml(document))

    assert normal(read_document(str(path))) == document
    assert normal(json.loads(json.dumps(readable(document)))) == document


def test_money_is_shown_as_plain_numbers() -> None:
    shown = to_yaml(parse_document(CATALOG)[0]).splitlines()

    assert "      input_per_1m: 2.5" in shown
    assert "      output_per_1m: 10" in shown
    assert "      cached_input_per_1m: 0.000001" in shown
    assert "        input_per_1m: 5" in shown


@given(st.decimals(min_value=0, max_value=999_999_999, places=6))
def test_no_price_changes_on_its_way_through_yaml(price: object) -> None:
    raw = {**CATALOG, "endpoints": {"one": {"model": "gpt-4o", "account": "main", "price": {"input_per_1m": str(price)}}}}
    document = parse_document(raw)[0]

    assert normal(yaml.safe_load(to_yaml(document))) == document


def test_an_empty_catalog_is_a_document_too(path: Path) -> None:
    path.write_text(to_yaml(parse_document({})[0]))

    assert normal(read_document(str(path))) == parse_document({})[0]


def test_a_key_that_stands_twice_is_refused_with_both_lines(path: Path) -> None:
    path.write_text("models:\n  a: {}\n  b: {}\n  a: {aliases: [x]}\n")

    with pytest.raises(Refused, match=r"catalog\.yaml, line 4, column 3: 'a' stands twice, first on line 2"):
        read_document(str(path))


def test_a_key_that_stands_twice_in_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text('{"models": {"a": {}, "a": {}}}')

    with pytest.raises(Refused, match="the key 'a' stands twice"):
        read_document(str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models:\n  a: [1, 2\n", "line 3"),
        ("models:\n\ta: 1\n", "line 2"),
        ("a: *nowhere\n", "line 1"),
        ("a: !!python/object:os.system {}\n", "line 1"),
        ("? [a]\n: b\n", "a key must be text"),
    ],
)
def test_a_fault_in_yaml_is_told_with_its_line(path: Path, text: str, told: str) -> None:
    path.write_text(text)

    with pytest.raises(Refused) as refused:
        read_document(str(path))

    (line,) = refused.value.lines
    assert str(path) in line
    assert told in line


def test_a_fault_in_json_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text('{"models":\n {"a": }}')

    with pytest.raises(Refused, match="line 2, column 8"):
        read_document(str(path))


def test_a_file_that_is_not_there_is_one_line_that_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"^-f .*nowhere\.yaml: no such file or directory"):
        read_document(str(tmp_path / "nowhere.yaml"))


def test_a_file_that_is_no_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(Refused, match="is not UTF-8 text"):
        read_document(str(path))


def test_a_hyphen_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"models: {a: {}}")))

    assert read_document("-") == {"models": {"a": {}}}


def test_words_that_yaml_takes_for_something_else_stay_words(path: Path) -> None:
    path.write_text("models:\n  4.10: {aliases: [no, on, 2027-01-01]}\n  true: {}\n")

    assert read_document(str(path)) == {"models": {"4.10": {"aliases": ["no", "on", "2027-01-01"]}, "true": {}}}


def test_a_number_that_json_cannot_say_is_refused_by_its_field_path(path: Path) -> None:
    path.write_text("endpoints: {one: {model: m, account: a, weight: .nan}}\nmodels: {m: {}}\naccounts: {a: {provider: p}}\n")

    with pytest.raises(Refused) as refused:
        to_json(read_document(str(path)))

    assert any(line.startswith("endpoints.one.weight: ") for line in refused.value.lines)
