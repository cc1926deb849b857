"""The bench's translations say what they should, and their table tells ratios to the untranslated."""

from __future__ import annotations

import json

import pytest

from bench import payloads
from bench.measured import Measured, Translated
from bench.report import tables, translated_table
from bench.translate import OWN, Translation, pairs
from bench.trials import trials


@pytest.mark.parametrize(("names", "pair"), pairs().items(), ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_every_skin_tells_what_every_dialect_answers(names: tuple[str, str], pair: object) -> None:
    one = pairs()[names]
    whole, stream = one.whole(), one.stream()

    assert payloads.TEXT.encode() in whole and b'"n4n":{"cost_usd"' in whole
    assert b"word17" in stream and b'"n4n":{"cost_usd"' in stream
    assert len(one.answers.pieces) == payloads.EVENTS


def test_a_table_tells_costs_and_ratios() -> None:
    measured = Measured()
    told = Translation().measure(None, None, 0.3, measured)  # type: ignore[arg-type]
    (table,) = tables(measured, trials(quick=True).values())

    assert told == "15 pairs" and len(measured.translated) == 15
    assert all(f"| {skin} ▸ {dialect} | " in table for skin, dialect in OWN.items())
    made = {"chat ▸ openai": [Translated(10, 100)], "chat ▸ gemini": [Translated(25, 150)]}
    assert "| chat ▸ gemini | 25 | 2.50 | 150 | 1.50 |" in translated_table(made)
    assert json.dumps(list(measured.translated))
