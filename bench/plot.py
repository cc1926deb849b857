"""Lines over time as an SVG file: what the bench needs of a plot, and no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 230, 60, 20, 40, 34
_INK, _FAINT, _LINE, _MARK = "#444", "#ddd", "#1f6feb", "#d1242f"


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve: its title with the unit, and (seconds, value) in order of time."""

    title: str
    points: Sequence[tuple[float, float]]


def svg(panels: Sequence[Panel], marks: Sequence[tuple[float, str]]) -> str:
    """The panels under one another over the same seconds; `marks`: instants with what happened then."""
    last = max((at for panel in panels for at, _ in panel.points), default=1.0) or 1.0
    body = "".join(_panel(panel, index * HEIGHT, last, marks) for index, panel in enumerate(panels))
    height = HEIGHT * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="{_INK}">\n<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{body}</svg>\n'
    )


def _panel(panel: Panel, top: int, last: float, marks: Sequence[tuple[float, str]]) -> str:
    most = _round_up(max((value for _, value in panel.points), default=1.0))
    bottom, right = top + HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(at: float) -> float:
        return LEFT + (right - LEFT) * at / last

    def y(value: float) -> float:
        return bottom - (bottom - top - TOP) * value / most

    parts = [f'<text x="{LEFT}" y="{top + 14}" font-size="13">{escape(panel.title)}</text>']
    for step in range(5):
        value = most * step / 4
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{_FAINT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
        parts.append(f'<text x="{x(last * step / 4):.1f}" y="{bottom + 16}" text-anchor="middle">{last * step / 4:.0f} s</text>')
    for number, (at, said) in enumerate(marks):
        anchor, beside = ("end", -3) if x(at) > 0.75 * WIDTH else ("start", 3)
        parts.append(f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top + TOP}" y2="{bottom}" stroke="{_MARK}" stroke-dasharray="3 3"/>')
        place = f'x="{x(at) + beside:.1f}" y="{top + TOP - 15 + 12 * (number % 3)}" text-anchor="{anchor}"'
        parts.append(f'<text {place} fill="{_MARK}">{escape(said)}</text>')
    path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in panel.points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>')
    return "\n".join(parts) + "\n"


def _round_up(value: float) -> float:
    """1, 2, 4, 8 or 10 times a power of ten: a quarter of it can be written."""
    scale = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(scale * step for step in (1, 2, 4, 8, 10) if scale * step >= value)
