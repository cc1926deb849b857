"""Flame graphs: shares add up, and nothing but functions and their files is in the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from bench.flame import WIDTH, read, svg

_LOOP = "<module> (/somewhere/start.py:3);Runner.run (asyncio/runners.py:118)"
STACKS = f"""{_LOOP};serve (data_plane/request.py:40);plan (n4n/core/plan.py:9) 30
{_LOOP};serve (data_plane/request.py:44);feed (aiohttp/x.py:1) 60
{_LOOP} 10
"""


def test_a_bar_is_as_wide_as_its_share_and_calls_of_other_lines_are_the_same_call() -> None:
    root = read(STACKS.splitlines())
    loop = root.calls["Runner.run asyncio/runners.py"]
    (serve,) = loop.calls.values()
    assert (root.seen, loop.seen, serve.seen, sorted(one.seen for one in serve.calls.values())) == (100, 100, 90, [30, 60])
    picture = ET.fromstring(svg(root, "now", 165.0))
    widths = [float(one.attrib["width"]) for one in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert sorted(widths[1:]) == pytest.approx([share * WIDTH - 0.6 for share in (0.3, 0.6, 0.9, 1.0)], abs=0.1)


def test_where_the_profile_was_taken_is_not_in_the_picture() -> None:
    assert "somewhere" not in svg(read(STACKS.splitlines()), "now", 165.0)


def test_a_line_that_is_no_stack_is_an_error() -> None:
    with pytest.raises(ValueError, match="many"):
        read(["a;b many"])
