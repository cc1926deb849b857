"""A small picture, drawn by hand and written as PNG: lines, rectangles and text in a few colours. No library is needed for so little.

PNG by https://www.w3.org/TR/png-3/: one palette, eight bits a pixel, zlib. Letters are five dots wide and seven high.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

WHITE, BLACK, GREY, PALE, BLUE, RED = range(6)
_COLOURS: Final = bytes.fromhex("ffffff 1f2328 8b949e d8dee4 0969da cf222e")
_WIDE, _HIGH = 6, 7  # of a letter, the gap after it included
# Five columns of each letter from " " to "~", the lowest bit is the uppermost dot.
_DOTS: Final = bytes.fromhex(
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649552250 0005030000 001c224100 0041221c00 14083e0814 08083e0808"
    "0050300000 0808080808 0060600000 2010080402 3e5149453e 00427f4000 4261514946 2141454b31 1814127f10 2745454539 3c4a494930 0171090503"
    "3649494936 064949291e 0036360000 0056360000 0814224100 1414141414 0041221408 0201510906 324979413e 7e1111117e 7f49494936 3e41414122"
    "7f4141221c 7f49494941 7f09090901 3e4149497a 7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f020c027f 7f0408107f 3e4141413e"
    "7f09090906 3e4151215e 7f09192946 4649494931 01017f0101 3f4040403f 1f2040201f 3f4038403f 6314081463 0708700807 6151494543 007f414100"
    "0204081020 0041417f00 0402010204 4040404040 0001020400 2054545478 7f48444438 3844444420 384444487f 3854545418 087e090102 0c5252523e"
    "7f08040478 00447d4000 2040443d00 7f10284400 00417f4000 7c04180478 7c08040478 3844444438 7c14141408 081414187c 7c08040408 4854545420"
    "043f444020 3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c 4464544c44 0008364100 00007f0000 0041360800 1008081008"
)
Point = tuple[int, int]


class Picture:
    """White at first. What lies outside is not drawn."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = [bytearray(width) for _ in range(height)]

    def fill(self, left: int, top: int, width: int, height: int, colour: int) -> None:
        """A rectangle."""
        begin, end = max(0, left), min(self.width, left + width)
        if end > begin:
            for row in self._dots[max(0, top) : max(0, top + height)]:
                row[begin:end] = bytes((colour,)) * (end - begin)

    def path(self, points: Sequence[Point], colour: int, thick: int = 1) -> None:
        """From point to point; a lone point is a dot."""
        for (x0, y0), (x1, y1) in zip(points, points[1:] or points, strict=False):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self.fill(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps), thick, thick, colour)

    def dashes(self, left: int, right: int, y: int, colour: int) -> None:
        """A broken line across."""
        for x in range(left, right, 8):
            self.fill(x, y, min(4, right - x), 1, colour)

    def text(self, left: int, top: int, words: str, colour: int = BLACK, scale: int = 1) -> None:
        """One line; what is not ASCII is a question mark."""
        for place, letter in enumerate(words):
            code = ord(letter) - 32 if " " <= letter <= "~" else ord("?") - 32
            for x, column in enumerate(_DOTS[5 * code : 5 * code + 5]):
                for y in range(_HIGH):
                    if column >> y & 1:
                        self.fill(left + (_WIDE * place + x) * scale, top + y * scale, scale, scale, colour)

    def png(self) -> bytes:
        """The file."""
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)  # eight bits, by palette, not interlaced
        rows = b"".join(b"\0" + bytes(row) for row in self._dots)
        parts = ((b"IHDR", head), (b"PLTE", _COLOURS), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*parts, strict=True)))


def text_width(words: str, scale: int = 1) -> int:
    """Dots across, without the gap after the last letter."""
    return max(0, (_WIDE * len(words) - 1) * scale)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
