"""Service levels as charts: a row of bars for a terminal, lines in a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from n4n.cli.output import iso
from n4n.cli.picture import BLACK, BLUE, GREY, PALE, RED, Picture, text_width

if TYPE_CHECKING:
    from n4n.runtime.operations_calls import SlaLevels

_BARS = "▁▂▃▄▅▆▇█"
_ACROSS = 72
_WIDTH, _HEIGHT = 1000, 190  # of a chart in the file
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 34, 30  # around its lines
MOST_CHARTS = 24  # in one file: those that drift first
_DAY_H = 24


def chart(one: SlaLevels) -> list[str]:
    """The hours as a row of bars, as many hours to a bar as it takes; a gap where nothing was asked."""
    levels = _levels(one, "latency_p95_ms")
    if not levels:
        return []
    first, last = min(levels), max(levels)
    each = max(1, -(-(last - first + 1) // _ACROSS))
    bars: list[float | None] = []
    for begin in range(first, last + 1, each):
        told = [levels[hour] for hour in range(begin, begin + each) if hour in levels]
        bars.append(sum(told) / len(told) if told else None)
    most = max(value for value in bars if value is not None)
    drawn = "".join(" " if value is None else _BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))] for value in bars)
    left, right = (str(iso(hour * 3_600_000))[:13] for hour in (first, last))
    axis = f"{left}{right.rjust(max(len(right) + 1, len(drawn) - len(left)))}"
    return ["", f"{name_of(one)}: p95 of the latency, at most {most:.0f} ms", drawn, axis]


def name_of(one: SlaLevels) -> str:
    """As a heading."""
    return f"{one.model} at {one.provider}{f' in {one.region}' if one.region else ''}"


def png(found: Sequence[SlaLevels]) -> bytes:
    """A PNG file: for each (provider, model, region) its latency by hour, median in grey and 95th percentile in blue, red where it drifts.

    The broken line is the 95th percentile of the oldest week. At most 24, those that drift most first.
    """
    drawn = sorted((one for one in found if _levels(one, "latency_p95_ms")), key=lambda one: -(one.latency_drift or 0.0))[:MOST_CHARTS]
    picture = Picture(_WIDTH, max(1, len(drawn)) * _HEIGHT)
    if not drawn:
        picture.text(_LEFT, _HEIGHT // 2, "no traffic yet", scale=2)
    for number, one in enumerate(drawn):
        _draw(picture, one, number * _HEIGHT)
    return picture.png()


def _draw(picture: Picture, one: SlaLevels, top: int) -> None:
    p95, p50 = _levels(one, "latency_p95_ms"), _levels(one, "latency_p50_ms")
    first, last, most = min(p95), max(p95), max(p95.values()) * 1.05 or 1.0
    right, bottom = _WIDTH - _RIGHT, top + _HEIGHT - _BOTTOM

    def at(hour: int, value: float) -> tuple[int, int]:
        across = (hour - first) / max(1, last - first)
        return _LEFT + round(across * (right - _LEFT)), bottom - round(value / most * (bottom - top - _TOP))

    drift = "" if one.latency_drift is None else f", drift {one.latency_drift:.2f}{' (flagged)' if one.drifts else ''}"
    picture.text(_LEFT, top + 10, f"{name_of(one)}{drift}", RED if one.drifts else BLACK, 2)
    for part in range(5):
        y = at(first, most * part / 4)[1]
        label = f"{most * part / 4:.0f} ms"
        picture.fill(_LEFT, y, right - _LEFT, 1, PALE)
        picture.text(_LEFT - 8 - text_width(label), y - 3, label, GREY)
    days = range(first - first % _DAY_H, last + 1, max(1, -(-(last - first) // (_DAY_H * 10))) * _DAY_H)
    for hour in days:
        if hour >= first:
            x = at(hour, 0)[0]
            picture.fill(x, bottom, 1, 5, GREY)
            picture.text(min(x, right - text_width("2026-11-30")), bottom + 9, str(iso(hour * 3_600_000))[:10], GREY)
    if one.baseline_latency_p95_ms is not None:
        picture.dashes(_LEFT, right, at(first, one.baseline_latency_p95_ms)[1], BLACK)
    for levels, colour in ((p50, GREY), (p95, RED if one.drifts else BLUE)):
        for run in _runs(levels):
            picture.path([at(hour, levels[hour]) for hour in run], colour, 2)


def _runs(levels: dict[int, float]) -> list[list[int]]:
    """Hours without a gap between them: nothing is drawn where nothing was asked."""
    runs: list[list[int]] = []
    for hour in sorted(levels):
        if runs and runs[-1][-1] == hour - 1:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs


def _levels(one: SlaLevels, name: str) -> dict[int, float]:
    return {hour.hour_ms // 3_600_000: value for hour in one.hours if (value := hour.levels.get(name)) is not None}
