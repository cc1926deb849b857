"""docs/catalog.md tells every field of the document, docs/routing.md every directive; what they show is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from n4n.core import directives
from n4n.core.document import DIALECTS, FEATURES, FIELDS, QUIRKS, SCORES, STRATEGIES, parse_document

DOCS = Path(__file__).resolve().parents[2] / "docs"
CATALOG, ROUTING = ((DOCS / name).read_text() for name in ("catalog.md", "routing.md"))
OPERATIONS = (DOCS / "operations.md").read_text()


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_of_a_catalog_is_told(kind: str) -> None:
    section = CATALOG.split(f"## {kind.capitalize()}\n")[1].split("\n## ")[0] + CATALOG.rpartition("\n## ")[2]
    untold = {name for name in FIELDS[kind] if f"`{name}`" not in section}

    assert untold == set()


def test_every_word_that_a_catalog_may_hold_is_told() -> None:
    assert {word for word in (*DIALECTS, *FEATURES, *SCORES, *STRATEGIES) if f"`{word}`" not in CATALOG} == set()
    assert {quirk for quirk in QUIRKS if f"`{quirk}`" not in OPERATIONS} == set()


def test_the_catalog_shown_is_valid() -> None:
    found = re.search(r"```yaml\n(.*?)```", CATALOG, re.S)
    assert found is not None

    document, problems = parse_document(yaml.safe_load(found[1]))

    assert problems == []
    assert all(document.values())


def test_every_directive_is_told() -> None:
    assert {key for key in directives.KEYS if f"`{key}`" not in ROUTING} == set()
