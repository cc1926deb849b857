"""The sum over a collection: it sees every change, in whatever order, and can be carried from one version to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.checksum import checksum_after, collection_checksum

_names = st.tuples(st.integers(1, 7), st.sampled_from(["a", "b", "ä", "a b"]))
_collections = st.dictionaries(_names, st.binary(max_size=4), max_size=6)


@given(_collections, _collections)
def test_a_sum_that_is_carried_on_is_the_sum_of_the_whole(
    before: dict[tuple[int, str], bytes], after: dict[tuple[int, str], bytes]
) -> None:
    changes = [(name, before.get(name), after.get(name)) for name in {*before, *after}]

    assert checksum_after(collection_checksum(before), changes) == collection_checksum(after)
    assert (collection_checksum(before) == collection_checksum(after)) == (before == after)


def test_it_is_64_hex_digits_and_that_of_nothing_is_not_zero() -> None:
    assert len(collection_checksum({})) == 64 and int(collection_checksum({}), 16) != 0


def test_what_is_no_checksum_cannot_be_carried_on() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        checksum_after("none", [])
