"""Where a request is plain nobody asks for its headers: held against asking."""

from __future__ import annotations

import hashlib
import time

from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from data_plane.callers import Asked, authenticate
from n4n.core.access import AccessSnapshot, Key
from n4n.core.chat import ChatRequest
from n4n.core.directives import NONE
from n4n.core.errors import GatewayError

_OURS = ("x-request-id", "cache-control", "x-n4n-timeout-ms", "x-n4n-priority", "x-n4n-routing", "x-routing-directive")
_OTHERS = ("user-agent", "accept", "content-type", "traceparent", "x-n4n", "cache", "x-request-id-too")
_VALUES = st.sampled_from(["", "no-store", "1000", "0", "interactive", "soon", "region=eu", "cost", "req_1", "x y", "a\tb"])
_NAMES = st.sampled_from([*_OURS, *_OTHERS]).flatmap(lambda name: st.sampled_from([name, name.title(), name.upper()]))
_HEADERS = st.lists(st.tuples(_NAMES, _VALUES), max_size=5)
_QUERIES = st.one_of(st.just(""), st.tuples(st.sampled_from([*_OURS, "other"]), _VALUES).map(lambda pair: f"?{pair[0]}={pair[1].strip()}"))
_SECRET, _ID = "s" * 43, "testtesttest"
_TOKEN = f"sk-n4n-{_ID}-{_SECRET}"
_KEY = Key(_ID, "acme", hashlib.sha256(_SECRET.encode()).digest())


def _asked(headers: list[tuple[str, str]], query: str = "") -> Asked:
    return Asked(make_mocked_request("POST", f"/v1/chat/completions{query}", CIMultiDict(headers)))


@given(_HEADERS, _QUERIES)
def test_a_plain_request_asks_for_nothing_and_only_ours_keep_one_from_being_plain(headers: list[tuple[str, str]], query: str) -> None:
    """Given any headers and query, when the request is plain, then asking finds nothing; without ours, and a query, it is plain."""
    asked = _asked(headers, query)
    assert asked.plain or query or any(name.lower() in _OURS for name, _ in headers)
    if asked.plain:
        asked.check_priority()
        assert (asked.request_id, asked.no_store, asked.timeout_s) == (None, False, None)
        assert all(asked.get(name) is None and asked.query(name) is None for name in _OURS)
        asked.plain = False
        assert asked.directives(_KEY, ChatRequest({}, "m")) == NONE


def _who(access: AccessSnapshot, asked: Asked, *, recalls: bool) -> Key | str:
    try:
        return authenticate(access, asked) if recalls else access.authenticate(asked.api_key, time.time())
    except GatewayError as error:
        return error.message


_CREDENTIALS = st.builds(
    lambda before, token, after: before + token + after,
    st.sampled_from(["Bearer ", "bearer ", "BEARER ", "Bearer  ", "Bearer", "Basic ", ""]),
    st.sampled_from([_TOKEN, _TOKEN[:-1] + "t", "sk-n4n-x", ""]),
    st.sampled_from(["", " ", "x"]),
)


@given(st.lists(_CREDENTIALS, max_size=2), st.sampled_from([None, _TOKEN, "other"]))
def test_a_caller_that_is_recalled_is_who_a_look_at_its_key_finds(presented: list[str], other: str | None) -> None:
    """Given any credentials, when a caller is known already, then it is the same as for somebody who looks closely."""
    headers = [("authorization", one) for one in presented] + ([] if other is None else [("x-api-key", other)])
    known, fresh = AccessSnapshot(1, "c", {_ID: _KEY}), AccessSnapshot(1, "c", {_ID: _KEY})
    known.authenticate(_TOKEN, time.time())
    assert _who(known, _asked(headers), recalls=True) == _who(fresh, _asked(headers), recalls=False)
