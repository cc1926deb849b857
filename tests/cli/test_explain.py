"""What `n4n explain` prints of the router's answer."""

from __future__ import annotations

from n4n.cli.explain import explained


def test_weights_are_shown_to_three_figures_however_small() -> None:
    weights = {"a": 2.7181852615875974, "b": 2.0, "c": 0.00012345, "d": None}
    candidates = [{"endpoint": name, "kept": weight is not None, "weight": weight} for name, weight in weights.items()]

    _, _, _, heading, *rows = explained({"model": "m", "catalog_version": 1, "directives": [], "candidates": candidates})

    column = heading.split().index("WEIGHT")
    assert [row.split()[column] for row in rows] == ["2.72", "2", "0.000123", "-"]
