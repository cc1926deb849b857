"""Which catalog `n4n up` leaves in force."""

from __future__ import annotations

from n4n.cli.catalog_rule import AUTHOR, FILE_AUTHOR, Apply, Head, Keep, decide, stranded
from n4n.core.document import Document, parse_document


def catalog(port: int) -> Document:
    providers = {"sim-east": {"dialect": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "allow_private": True}}
    document, problems = parse_document({"providers": providers})
    assert problems == []
    return document


OURS, OTHER = catalog(20_001), catalog(20_002)


def test_the_first_start_applies() -> None:
    assert decide(None, OURS, asked_for=False) == Apply(allow_shrink=True)


def test_an_equal_catalog_is_kept_without_a_word() -> None:
    assert decide(Head(7, "ann@host", OURS), OURS, asked_for=True) == Keep()


def test_what_up_itself_wrote_is_replaced() -> None:
    assert decide(Head(7, AUTHOR, OTHER), OURS, asked_for=False) == Apply(allow_shrink=True)


def test_what_an_operator_wrote_is_kept_and_told() -> None:
    decision = decide(Head(7, "ann@host", OTHER), OURS, asked_for=False)

    assert isinstance(decision, Keep)
    assert "version 7, made by ann@host" in decision.note
    assert "`n4n catalog apply`, --catalog FILE, or another --data-dir" in decision.note


def test_a_file_named_by_the_operator_is_applied_with_the_shrink_guard_on() -> None:
    assert decide(Head(7, "ann@host", OTHER), OURS, asked_for=True) == Apply(allow_shrink=False)
    assert decide(Head(7, AUTHOR, OTHER), OURS, asked_for=True) == Apply(allow_shrink=True)
    assert decide(Head(7, FILE_AUTHOR, OTHER), OURS, asked_for=True) == Apply(allow_shrink=True)


def test_a_file_once_named_outlives_a_start_that_names_none() -> None:
    assert isinstance(decide(Head(7, FILE_AUTHOR, OTHER), OURS, asked_for=False), Keep)


def test_a_provider_is_stranded_when_the_catalog_names_its_old_port() -> None:
    assert stranded(OURS, {"sim-east": 20_001, "sim-west": 2000}) == ["sim-east"]
    assert stranded(OTHER, {"sim-east": 20_001}) == []
