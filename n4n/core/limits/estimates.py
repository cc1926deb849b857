"""The tokens that a request will take, learned per model from those that came before.

Input: bytes of the body by the bytes per token that this model's answers told. Output: the least of what was asked for, what the model can
give, and what nine in ten answers stayed below. An estimate is reserved with a margin and the rest given back.
"""

from __future__ import annotations

from n4n.core.usage import BYTES_PER_TOKEN

MARGIN = 1.12
_SMOOTHING = 0.05  # of one answer in the bytes per token
_RARE, _LEAST_STEP = 0.1, 1.0  # one in ten answers is longer than the learned length
_FIRST_OUTPUT = 500.0  # tokens, before anything was learned
_LEAST_RATIO, _MOST_RATIO = 0.5, 64.0  # bytes per token that can be: images travel as long texts and cost little


class Estimates:
    """What was learned of one model."""

    __slots__ = ("_output", "_ratio")

    def __init__(self) -> None:
        self._ratio, self._output = float(BYTES_PER_TOKEN), _FIRST_OUTPUT

    def __repr__(self) -> str:
        return f"<Estimates {self._ratio:.2f} bytes per token, {self._output:.0f} tokens of output>"

    def expected(self, body_bytes: int, asked: int | None, most: int | None, choices: int = 1) -> tuple[float, float]:
        """The best guess for input and for output, without margin."""
        output = self._output
        if asked is not None and asked < output:
            output = asked
        if most is not None and most < output:
            output = most
        return body_bytes / self._ratio, output * choices

    def learn(self, body_bytes: int, prompt_tokens: int, completion_tokens: int) -> None:
        """An answer told what it took."""
        if prompt_tokens > 0 and body_bytes > 0:
            ratio = min(_MOST_RATIO, max(_LEAST_RATIO, body_bytes / prompt_tokens))
            self._ratio += _SMOOTHING * (ratio - self._ratio)
        step = max(_LEAST_STEP, self._output * _SMOOTHING)
        self._output = max(1.0, self._output + (step * (1 - _RARE) if completion_tokens > self._output else -step * _RARE))
