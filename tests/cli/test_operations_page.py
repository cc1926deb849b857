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


METRIC = re.compile(r"`((?:llm|n4n|gen_ai)_[a-z0-9_]+)`")
MADE = re.compile(r'"((?:llm|n4n|gen_ai)_[a-z0-9_]+)",\s+"')
LABELS = {"gen_ai_operation_name", "gen_ai_provider_name"}


def test_the_tables_of_metrics_are_complete_and_true() -> None:
    made = {
        name
        for path in ("n4n/runtime/telemetry.py", "health_prober/instruments.py", "control_plane/gauges.py")
        for name in MADE.findall((PAGE.parent.parent / path).read_text())
    }
    section = PAGE.read_text().split("\n## Metrics\n")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]

    assert {name for row in rows for name in METRIC.findall(row)} == made - LABELS
