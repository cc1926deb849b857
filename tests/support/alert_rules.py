"""deploy/prometheus/n4n.rules.yml as the table of alerts makes it; run as a program, it writes the file."""

from __future__ import annotations

from pathlib import Path

import yaml

import n4n
from n4n.core.alerts.rules import prometheus_rules

FILE = Path(n4n.__file__).parent.parent / "deploy" / "prometheus" / "n4n.rules.yml"
HEAD = "# Made from n4n/core/alerts/rules.py by python -m tests.support.alert_rules; change it there.\n"


def text() -> str:
    """The whole file."""
    return HEAD + yaml.safe_dump(prometheus_rules(), sort_keys=False, width=1000, allow_unicode=True)


if __name__ == "__main__":
    FILE.write_text(text())
