"""Any bytes as directives: read, or refused in one printable line; what is read reads back as the same.

By hand, endlessly: `python -m tests.fuzz.directives -max_len=4096 CORPUS`, with atheris (https://github.com/google/atheris).
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from n4n.core.directives import combine, from_provider_object, parse, parse_simple
from n4n.core.errors import InvalidDirective

SEEDS = (
    b"region=eu,only=provider:a|endpoint:b,max_cost_per_1k=0.015,min_context=128k,capability=tools|vision,min_reasoning=0.7",
    b"data=no_training|zero_retention,prefer=a|b,sort=latency,fallback=off,max_attempts=2,consistency=strict,max_ttft_ms=800",
    b"prefer:a, require:b",
    b'{"order":["a"],"max_price":{"prompt":1,"completion":"2.5"},"allow_fallbacks":false,"quantizations":["fp8"],"sort":"price"}',
    "région=été,\x00,=,|,\ud7ff".encode(),
)


def one_input(raw: bytes) -> None:
    """Fails where anything but InvalidDirective comes out, or a canonical spelling means something else."""
    text = raw.decode("utf-8", "surrogateescape")
    for read in (parse, parse_simple):
        try:
            found = read(text)
        except InvalidDirective as refusal:
            said = refusal.message
        else:
            said = ",".join(found.applied)
            assert parse(said) == found == combine(found, found)
        assert said.isprintable() and len(said) < 10_000, said
    with suppress(InvalidDirective, ValueError, RecursionError):
        from_provider_object(json.loads(raw))


if __name__ == "__main__":
    import atheris  # type: ignore[import-not-found]

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
