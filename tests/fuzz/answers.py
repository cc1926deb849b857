"""Any bytes as a provider's answer: whole, broken or open, never anything else, and the same however they are cut.

By hand, endlessly: `python -m tests.fuzz.answers -max_len=65536 CORPUS`, with atheris (https://github.com/google/atheris).
"""

from __future__ import annotations

import random
import sys

from n4n.runtime.upstream.answer import MOST_HEADERS, Answer
from n4n.runtime.upstream.decode import Inflate, NotDecodable

Outcome = tuple[int, list[tuple[bytes, bytes]], bytes, bool, bool]


def one_input(raw: bytes) -> None:
    """The first four bytes choose the cuts, the rest is the answer."""
    dice, raw = random.Random(raw[:4]), raw[4:]
    cuts = sorted(dice.randint(0, len(raw)) for _ in range(dice.randint(1, 5)))
    assert outcome(raw, cuts) == outcome(raw, []), cuts
    for encoding in (b"gzip", b"deflate"):
        assert inflated(encoding, raw, cuts) == inflated(encoding, raw, [])


def outcome(raw: bytes, cuts: list[int]) -> Outcome:
    """What comes of it."""
    answer, start = Answer(), 0
    for cut in [*cuts, len(raw)]:
        if raw[start:cut]:
            answer.feed(memoryview(raw[start:cut]))
        start = cut
    assert not answer.keep or answer.complete
    answer.end(in_order=True)
    assert answer.complete != answer.broken
    assert len(answer.headers) <= MOST_HEADERS + 1 and 0 <= answer.status <= 999
    return answer.status, answer.headers if answer.head_done else [], answer.take(), answer.complete, answer.broken


def inflated(encoding: bytes, raw: bytes, cuts: list[int]) -> tuple[bytes, bool]:
    """The same bytes as a compressed body, at most a MiB of it."""
    inflate, body, start = Inflate(encoding), b"", 0
    try:
        for cut in [*cuts, len(raw)]:
            if raw[start:cut]:
                inflate.give(raw[start:cut])
            start = cut
            while len(body) < 1 << 20 and (piece := inflate.take()):
                body += piece
        inflate.finish()
    except NotDecodable:
        return b"", False
    return body, True


if __name__ == "__main__":
    import atheris  # type: ignore[import-not-found]

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
