"""The neutral shape: what is translated only when somebody needs it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core.chat import Translated


def test_a_translation_is_made_once_and_only_when_it_is_needed() -> None:
    made: list[str] = []

    def make() -> Mapping[str, msgspec.Raw]:
        made.append("made")
        return {"model": msgspec.Raw(b'"m"'), "n": msgspec.Raw(b"1")}

    fields = Translated(make)
    assert made == []
    assert list(fields) == ["model", "n"]
    assert bytes(fields["model"]) == b'"m"'
    assert len(fields) == 2
    assert made == ["made"]
