"""JSON as bytes: what is not changed is not touched, and what is not JSON is said to be so."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core import json_bytes
from n4n.core.json_bytes import NotJson

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=5))
def test_taking_apart_and_joining_keeps_every_value_as_it_was_written(value: dict[str, object]) -> None:
    raw = json.dumps(value, indent=1).encode()

    parts = json_bytes.members(raw)

    assert json.loads(json_bytes.join(parts.items())) == value
    assert list(parts) == list(value)
    assert all(bytes(part) in raw for part in parts.values())


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"a":NaN}', b"{}x", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(NotJson):
        json_bytes.loose_members(raw)


def test_half_a_surrogate_pair_is_let_through_where_asked() -> None:
    raw = b'{"a":"\\ud83d","b":1}'

    with pytest.raises(NotJson):
        json_bytes.members(raw)
    assert {name: bytes(value) for name, value in json_bytes.loose_members(raw).items()} == {"a": b'"\\ud83d"', "b": b"1"}
    assert json_bytes.dump(json_bytes.parse(raw)) == raw


@pytest.mark.parametrize("raw", [b"\xff", b'"\xed\xa0\x80"', b"[NaN]", b"[Infinity]", b"[1,]", b"[" * 100_000])
def test_what_is_no_json_in_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(NotJson):
        json_bytes.parse(raw)


def test_raw_json_stays_what_it_is_also_beside_half_a_pair() -> None:
    assert json_bytes.dump({"a": msgspec.Raw(b'{"b": 1}')}) == b'{"a":{"b": 1}}'
    assert json_bytes.dump({"a": msgspec.Raw(b'{"b": 1}'), "c": "\ud83d"}) == b'{"a":{"b":1},"c":"\\ud83d"}'
