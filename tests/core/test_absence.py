"""Who is gone: told by words that change, and by our own clock."""

from __future__ import annotations

from n4n.core.absence import Sighting, absent, looked


def test_gone_is_whose_word_stays_the_same_for_as_long_as_we_look():
    seen = looked({}, {"a": 1.0, "b": 7.0, "c": 3.0}, 100.0)
    seen = looked(seen, {"a": 2.0, "b": 7.0, "c": 3.0}, 150.0)
    seen = looked(seen, {"a": 2.0, "b": 7.0, "d": 3.0}, 190.0)

    assert seen == {"a": Sighting(2.0, 150.0), "b": Sighting(7.0, 100.0), "d": Sighting(3.0, 190.0)}
    assert absent(seen, 190.0, 90.0) == ["b"]
    assert absent(seen, 189.9, 90.0) == []
    assert absent(seen, 250.0, 90.0) == ["b", "a"]


def test_a_word_that_goes_back_is_a_word_all_the_same():
    """Clocks are set; a router whose time stepped back lives."""
    seen = looked(looked({}, {"a": 5.0}, 0.0), {"a": 4.0}, 80.0)

    assert absent(seen, 100.0, 90.0) == []
