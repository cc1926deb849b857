"""Bars as an SVG file: one panel for each trial, a bar for each peer. No library is needed for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench.measured import Measured, calm, middle
from bench.pairs import NAME
from bench.trials import Load, Trial

WIDTH, NAMES, FIGURES, LINE, HEAD, GAP = 760, 130, 150, 22, 34, 16
_INK, _BAR, _OURS = "#444", "#b8c4d0", "#1f6feb"


@dataclass(frozen=True, slots=True)
class Panel:
    """(peer, value, what is written beside it)."""

    title: str
    bars: Sequence[tuple[str, float, str]]


def panels(measured: Measured, trials: Sequence[Trial]) -> list[Panel]:
    """The loads without the upstream itself, and what is added at low load."""
    made = []
    for trial in trials:
        if isinstance(trial, Load) and (runs := measured.loads.get(trial.name)):
            unit = "streams" if trial.stream else "requests"
            rates = {name: middle(calm(turns), lambda run: run.rate) or 0.0 for name, turns in runs.items() if name != "direct"}
            costs = {name: middle(calm(turns), lambda run: run.worker_us) or 0.0 for name, turns in runs.items()}
            bars = [(name, rate, f"{rate:,.0f} · {costs[name]:,.0f} µs") for name, rate in rates.items()]
            made.append(Panel(f"{trial.title}: {unit}/s on one CPU, CPU per {unit.rstrip('s')}", bars))
    if measured.low:
        added = {name: middle(turns, lambda low: low.added_p50) or 0.0 for name, turns in measured.low.items()}
        made.append(Panel("50 requests a second: added ms, median", [(name, max(0.0, one), f"{one:.2f}") for name, one in added.items()]))
    return made


def svg(shown: Sequence[Panel]) -> str:
    """The panels under one another; in each the longest bar fills the width."""
    heights = [HEAD + LINE * len(panel.bars) + GAP for panel in shown]
    tops = [sum(heights[:number]) for number in range(len(shown))]
    body = "\n".join(part for panel, top in zip(shown, tops, strict=True) for part in _panel(panel, top))
    height = sum(heights)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}">\n<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _panel(panel: Panel, top: int) -> Iterator[str]:
    yield f'<text x="10" y="{top + 22}" font-size="14">{escape(panel.title)}</text>'
    most = max((value for _, value, _ in panel.bars), default=0.0) or 1.0
    for number, (name, value, said) in enumerate(panel.bars):
        y = top + HEAD + LINE * number
        width = max(1.0, (WIDTH - NAMES - FIGURES) * value / most)
        yield f'<text x="{NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect x="{NAMES}" y="{y}" width="{width:.1f}" height="{LINE - 6}" fill="{_OURS if name == NAME else _BAR}"/>'
        yield f'<text x="{NAMES + width + 6:.1f}" y="{y + 13}">{escape(said)}</text>'
