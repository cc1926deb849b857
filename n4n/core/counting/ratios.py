"""Bytes to a token, learned per model from exact counts: the estimate of all that is not counted.

They learn from our own counts and never from what providers report, or a provider that reports too much would not be noticed.
"""

from __future__ import annotations

from n4n.core.usage import BYTES_PER_TOKEN

_SMOOTHING = 0.1  # of one answer
_LEAST_TOKENS = 8  # of a side that tells anything
_LEAST, _MOST = 0.5, 64.0  # bytes to a token that can be


class Ratios:
    """Of one model: of requests' bodies, and of the text of answers."""

    __slots__ = ("input", "output")

    def __init__(self) -> None:
        self.input = self.output = float(BYTES_PER_TOKEN)

    def __repr__(self) -> str:
        return f"<Ratios {self.input:.2f} bytes to a token in, {self.output:.2f} out>"

    def learn(self, body_bytes: int, prompt: int | None, output_bytes: int, output: int | None) -> None:
        """One answer was counted; None: that side was not, or not exactly."""
        if prompt is not None and prompt >= _LEAST_TOKENS:
            self.input = _nearer(self.input, body_bytes / prompt)
        if output is not None and output >= _LEAST_TOKENS:
            self.output = _nearer(self.output, output_bytes / output)


def _nearer(known: float, seen: float) -> float:
    return known + _SMOOTHING * (min(_MOST, max(_LEAST, seen)) - known)
