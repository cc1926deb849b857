"""Stored versions as resources: one after the other they are what each is alone, and only what changed is read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane import stored
from control_plane.stored import Reading, StoredCatalog, Unreadable
from n4n.core.document import Document, Problem, Table, canonical_json, parse_document, read_entry
from n4n.runtime.wire import catalog_resources
from tests.support.catalogs import FULL, Raw, changed, documents

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def normal(raw: Raw) -> Document:
    document, problems = parse_document(raw)
    assert problems == []
    return document


def version(raw: Raw, **states: str) -> StoredCatalog:
    return StoredCatalog(1, NOW, canonical_json(normal(raw)), states)


@settings(max_examples=40, deadline=None)
@given(st.lists(documents(), min_size=1, max_size=3))
def test_versions_that_are_read_one_after_the_other_are_what_each_is_alone(history: list[Raw]) -> None:
    reading = Reading()
    for raw in [*history, *history]:
        states = dict.fromkeys(list(raw["endpoints"])[:1], "draining")

        assert reading.resources(version(raw, **states)) == catalog_resources(normal(raw), states)


def test_only_entries_that_are_spelled_differently_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(kind: str, name: str, raw: object, problems: list[Problem]) -> Table:
        read.append(f"{kind}.{name}")
        return read_entry(kind, name, raw, problems)

    monkeypatch.setattr(stored, "read_entry", counting)
    reading = Reading()
    reading.resources(version(FULL))
    assert len(read) == sum(map(len, FULL.values()))
    read.clear()
    reading.resources(version(changed(FULL, "endpoints", "acme-large", "body", to={"nested": {"a": [True, 1.5, None, 1]}})))
    assert read == ["endpoints.acme-large"], "1 and true are equal to Python, and are two spellings"


@pytest.mark.parametrize("text", ["", "[]", '{"planets": {}}', '{"models": {"m": 1}}', '{"models": [1]}', '{"models": ' + "[" * 100_000])
def test_what_a_newer_n4n_wrote_is_unreadable_and_forgets_nothing(text: str) -> None:
    reading = Reading()
    good = reading.resources(version(FULL))

    with pytest.raises(Unreadable):
        reading.resources(StoredCatalog(2, NOW, text, {}))

    assert reading.resources(version(FULL)) == good
