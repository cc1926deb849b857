"""Charts of service levels: bars for a terminal, and a PNG file that any reader of PNG can read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from n4n.cli.picture import BLUE, GREY, RED, Picture, text_width
from n4n.cli.sla_chart import MOST_CHARTS, chart, png
from n4n.runtime.operations_calls import SlaHourLevels, SlaLevels

FIRST = 1_764_460_800_000  # 2025-11-30T00:00:00Z


def levels(model: str, p95: Callable[[int], float], *, drift: float | None = None, missing: range = range(0)) -> SlaLevels:
    hours = tuple(
        SlaHourLevels(FIRST + hour * 3_600_000, {"latency_p95_ms": p95(hour), "latency_p50_ms": p95(hour) / 2})
        for hour in range(336)
        if hour not in missing
    )
    baseline = None if drift is None else 800.0
    return SlaLevels("p", model, "eu", 100, 0.0, 800.0, baseline, drift, None, None, None, None, None, (drift or 0) > 1.5, hours)


def dots_of(file: bytes) -> list[bytes]:
    """A PNG's rows of palette numbers, its parts checked."""
    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    parts, at = {}, 8
    while at < len(file):
        size, name = struct.unpack(">I4s", file[at : at + 8])
        content = file[at + 8 : at + 8 + size]
        assert struct.unpack(">I", file[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + content)
        parts[name], at = content, at + 12 + size
    width, height, depth, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (list(parts), depth, kind) == ([b"IHDR", b"PLTE", b"IDAT", b"IEND"], 8, 3)
    rows = zlib.decompress(parts[b"IDAT"])
    assert len(rows) == height * (width + 1)
    return [rows[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]


def test_what_drifts_most_comes_first_and_is_red() -> None:
    rows = dots_of(png([levels("as-ever", lambda hour: 800.0, drift=1.0), levels("creeps", lambda hour: 800.0 + 6 * hour, drift=2.6)]))
    assert (len(rows), len(rows[0])) == (380, 1000)
    upper, lower = b"".join(rows[:190]), b"".join(rows[190:])
    assert (RED in upper, BLUE in upper) == (True, False)
    assert (RED in lower, BLUE in lower) == (False, True)


def test_a_creep_rises_and_nothing_is_drawn_where_nothing_was_asked() -> None:
    rows = dots_of(png([levels("creeps", lambda hour: 800.0 + 6 * hour, drift=2.6, missing=range(100, 200))]))
    lines = {
        x: min(y for y in range(34, 160) if rows[y][x] == RED) for x in range(70, 980) if any(rows[y][x] == RED for y in range(34, 160))
    }
    assert lines[80] - lines[970] > 60
    assert not set(range(350, 600)) & set(lines)
    assert any(rows[y][400] not in (0, RED) for y in range(34, 160)), "the grid goes on"


@pytest.mark.parametrize("found", [[], [SlaLevels("p", "m", "", 1, 1.0, None, None, None, None, None, None, None, None, False, ())]])
def test_without_any_hour_the_picture_says_so(found: list[SlaLevels]) -> None:
    rows = dots_of(png(found))
    assert len(rows) == 190
    assert any(any(row) for row in rows)


def test_a_file_has_so_many_charts_and_no_more() -> None:
    assert len(dots_of(png([levels("m", lambda hour: 1.0)] * (MOST_CHARTS + 5)))) == MOST_CHARTS * 190


def test_a_picture_draws_within_its_edges_alone() -> None:
    picture = Picture(10, 10)
    picture.fill(-5, -5, 100, 100, GREY)
    picture.fill(20, 20, 5, 5, RED)
    picture.path([(-3, 5), (30, 5)], BLUE)
    picture.text(8, 8, "é~", RED, 3)
    rows = dots_of(picture.png())
    assert set(rows[5]) == {BLUE}
    assert set(rows[0]) == {GREY}
    assert text_width("ab", 2) == 22


def test_every_letter_has_a_shape_of_its_own() -> None:
    shapes = set()
    for code in range(33, 127):
        picture = Picture(5, 7)
        picture.text(0, 0, chr(code))
        shapes.add(b"".join(dots_of(picture.png())))
    assert len(shapes) == 94


def test_the_terminal_has_a_bar_for_every_few_hours_and_a_gap() -> None:
    _, title, bars, axis = chart(levels("m", lambda hour: 100.0 + hour, missing=range(150, 200)))
    assert title == "m at p in eu: p95 of the latency, at most 435 ms"
    assert len(bars) <= 72
    assert (bars[0], bars[-1]) == ("▂", "█")
    assert " " in bars.strip()
    assert axis.startswith("2025-11-30T00") and axis.endswith("2025-12-13T23")
