"""Flame graphs of a profile: `python -m bench.flame TITLE µs-per-request < STACKS > FILE.svg`.

STACKS is what `py-spy record --format raw` writes: a line for each stack, outermost first, its frames separated by semicolons, and how
often it was seen. A bar is as wide as its share of all; below it stands what it called. What takes less than a two-hundredth is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, LETTER = 1400, 17, 6.3  # pixels
LEAST = 1 / 200
OURS, THEIRS = "#f4a259", "#b8c4d6"  # n4n's own frames, all others
_HOUSE = ("n4n/", "data_plane/")


@dataclass(slots=True)
class Frame:
    """A function, called in one way. `seen`: samples in it and below."""

    name: str
    seen: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)

    def child(self, name: str) -> Frame:
        """The frame of what it calls."""
        return self.calls.setdefault(name, Frame(name))


def read(lines: Iterable[str]) -> Frame:
    """All stacks, merged from the event loop on. ValueError where a line is no stack."""
    root = Frame("all")
    for line in lines:
        stack, _, count = line.rstrip().rpartition(" ")
        frame, seen = root, int(count)
        frame.seen += seen
        for name in _named(stack.split(";")):
            if name != frame.name:
                frame = frame.child(name)
                frame.seen += seen
    return root


def _named(stack: list[str]) -> Iterator[str]:
    """Function and file, from the loop's own run on, whoever started it."""
    names = [frame.rpartition(":")[0].replace(" (", " ") or frame for frame in stack]
    start = next((at for at, name in enumerate(names) if name.startswith("Runner.run ")), 0)
    return iter(names[start:])


def svg(root: Frame, title: str, us: float) -> str:
    """As a picture. `us`: what the whole is, in microseconds."""
    bars = list(_bars(root, root.seen, 0.0, 0))
    height = (max(depth for _, _, depth in bars) + 3) * ROW
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10.5">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="4" y="13" font-size="12">{escape(title)}: {us:.0f} µs of CPU for a request</text>',
    ]
    for frame, left, depth in bars:
        wide, top, share = frame.seen / root.seen * WIDTH, (depth + 1) * ROW + 6, frame.seen / root.seen * us
        colour = OURS if any(f" {folder}" in frame.name for folder in _HOUSE) else THEIRS
        told = f"{frame.name} {share:.1f} µs"
        drawn.append(f'<rect x="{left:.1f}" y="{top}" width="{max(0.5, wide - 0.6):.1f}" height="{ROW - 1}" fill="{colour}">')
        drawn.append(f"<title>{escape(told)}</title></rect>")
        if (room := int((wide - 4) / LETTER)) > 3:
            drawn.append(f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(told[:room])}</text>')
    return "\n".join([*drawn, "</svg>", ""])


def _bars(frame: Frame, whole: int, left: float, depth: int) -> Iterator[tuple[Frame, float, int]]:
    if depth:
        yield frame, left, depth - 1
    for one in sorted(frame.calls.values(), key=lambda call: -call.seen):
        if one.seen / whole >= LEAST:
            yield from _bars(one, whole, left, depth + 1)
            left += one.seen / whole * WIDTH


if __name__ == "__main__":
    print(svg(read(sys.stdin), sys.argv[1], float(sys.argv[2])), end="")
