"""Where a usual request takes a short way, the long way says the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import FEATURE_FIELDS, OWN_FIELDS, read_chat, read_closely
from n4n.core.errors import MalformedRequest

_PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "input_audio", "file", "[", '"file"'])})
_CONTENT = st.one_of(st.text(max_size=9), st.sampled_from(['"image_url"', "[file]", "[1]"]), st.lists(_PARTS, max_size=3))
_MESSAGES: st.SearchStrategy[object] = st.one_of(
    st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": _CONTENT}), max_size=3),
    st.sampled_from([None, "x", [], [1], {}]),
)
_VALUES = st.sampled_from([None, True, False, 0, 1, 7, -1, 10**12, "auto", "none", "", [], {}, [1], {"type": "json_object"}, 0.5])
_OTHERS = ("stream", "max_tokens", "max_completion_tokens", "n", "user", "api_key", "store")
_NAMES = st.sampled_from(sorted({name for names in FEATURE_FIELDS.values() for name in names} | OWN_FIELDS | set(_OTHERS)))
_BODIES = st.builds(
    lambda model, messages, more, order: dict(
        sorted(({**model, **messages, **more}).items(), key=lambda item: hash((order, item[0])))  # any order
    ),
    st.one_of(st.just({"model": "m"}), st.fixed_dictionaries({}, optional={"model": st.one_of(st.text(max_size=4), _VALUES)})),
    st.fixed_dictionaries({}, optional={"messages": _MESSAGES}),
    st.dictionaries(_NAMES, _VALUES, max_size=4),
    st.integers(0, 9),
)


def _either(body: bytes, *, closely: bool) -> ChatRequest | MalformedRequest:
    try:
        return read_closely(json_bytes.members(body), body, OWN_FIELDS) if closely else read_chat(body)
    except MalformedRequest as error:
        return error


@given(_BODIES, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_chat_request_reads_the_same_by_the_short_way(body: dict[str, object], separators: tuple[str, str]) -> None:
    """Given any body, when it is read both ways, then the request is the same, or both refuse it (a body with two faults for either)."""
    raw = json.dumps(body, separators=separators).encode()
    short, closely = _either(raw, closely=False), _either(raw, closely=True)
    if isinstance(short, MalformedRequest) or isinstance(closely, MalformedRequest):
        assert isinstance(short, MalformedRequest)
        assert isinstance(closely, MalformedRequest)
    else:
        assert short == closely
