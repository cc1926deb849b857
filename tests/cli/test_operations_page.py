"""docs/operations.md tells every setting, with its default, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from n4n.runtime.settings import Settings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "operations.md"
ROW = re.compile(r"\| `(N4N_[A-Z_]+)` \| (?:`([^`]*)`)? ?\| \S")


def test_the_table_of_settings_is_complete_and_true() -> None:
    told = dict(ROW.findall(PAGE.read_text()))

    assert told == {f"N4N_{field.name.upper()}": str(field.default) for field in fields(Settings)}
