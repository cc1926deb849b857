"""Who calls, and what the call asks for beside its body: key, directives, deadline, labels; from headers, else query."""

from __future__ import annotations

import re
import time

from aiohttp import web
from multidict import MultiDict, MultiMapping

from n4n.core import directives as grammar
from n4n.core.access import AccessSnapshot, Key
from n4n.core.chat import ChatRequest
from n4n.core.directives import Directives
from n4n.core.errors import MalformedRequest
from n4n.core.priced import priced

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NO_QUERY: MultiMapping[str] = MultiDict()
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}\Z")
PRIORITIES = ("interactive", "background", "best_effort")
MAX_TIMEOUT_MS = 24 * 3_600_000


_OURS = frozenset((  # headers that change what is done with a request; a request without them is plain
    b"x-request-id", b"cache-control", b"x-n4n-timeout-ms", b"x-n4n-priority", b"x-n4n-routing", b"x-routing-directive", b"idempotency-key",
    b"x-n4n-tags",
))  # fmt: skip
_MOST_SHAPES, _LONGEST_SHAPE = 512, 2048  # which headers a client sends, not what is in them, is the same in all its requests
_shapes: dict[tuple[bytes, ...], bool] = {}


def _is_plain(names: tuple[bytes, ...]) -> bool:
    """Whether these names of headers hold none of ours."""
    plain = _shapes.get(names)
    if plain is None:
        plain = _OURS.isdisjoint([name.lower() for name in names])
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        if sum(map(len, names)) <= _LONGEST_SHAPE:
            _shapes[names] = plain
    return plain


class Asked:
    """Reads the request headers of §2.2, each of which may also be a query parameter of the same name; the header wins.

    `plain`: none of those that change what is done was sent, in neither place. So it is nearly always, and then nobody need ask.
    """

    __slots__ = ("_headers", "_query", "plain")

    def __init__(self, request: web.BaseRequest) -> None:
        self._headers = request.headers
        self._query: MultiMapping[str] = _NO_QUERY
        if "?" in request.raw_path or "#" in request.raw_path:
            self._query = request.query
        self.plain = self._query is _NO_QUERY and _is_plain(tuple([name for name, _ in request.raw_headers]))

    def get(self, name: str) -> str | None:
        """The header, else the query parameter, else None. MalformedRequest: sent twice, or with control characters in it."""
        values = self._headers.getall(name, None) or self._query.getall(name, None)
        if values is None:
            return None
        if len(values) > 1:
            raise MalformedRequest(f"{name} was sent {len(values)} times; send it once", param=name)
        if _CONTROL.search(values[0]):
            raise MalformedRequest(f"{name} holds control characters", param=name)
        return values[0]

    def query(self, name: str) -> str | None:
        """The query parameter, the first where it was sent twice; None: it was not sent."""
        return self._query.get(name)

    @property
    def request_id(self) -> str | None:
        """The caller's label; None where it sent none, or one that is no label: 1 to 128 visible ASCII characters."""
        given = self.get("x-request-id")
        return given if given is not None and _REQUEST_ID.match(given) else None

    @property
    def api_key(self) -> str | None:
        """What was presented as key, None where that is not one thing; never from the query, which ends up in logs."""
        presented = self._headers.getall("authorization", ())
        if len(presented) > 1:
            return None
        scheme, _, token = (presented[0] if presented else "").partition(" ")
        if scheme.lower() == "bearer":
            return token.strip()
        return self._headers.get("x-api-key")

    @property
    def bearer(self) -> str:
        """What stands after `Bearer ` in the one authorization header, as it came; where it stands otherwise, '' or something else."""
        presented = self._headers.getall("authorization", ())
        return presented[0][7:] if len(presented) == 1 and presented[0].startswith("Bearer ") else ""

    @property
    def no_store(self) -> bool:
        """Whether the caller wants no gateway cache."""
        return "no-store" in (self.get("cache-control") or "").lower()

    @property
    def timeout_s(self) -> float | None:
        """The caller's own deadline."""
        text = self.get("x-n4n-timeout-ms")
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) <= MAX_TIMEOUT_MS:
            raise MalformedRequest("x-n4n-timeout-ms must be a whole number of milliseconds above 0", param="x-n4n-timeout-ms")
        return int(text) / 1000

    def check_priority(self) -> None:
        """Refuses a priority that does not exist."""
        given = self.get("x-n4n-priority")
        if given is not None and given not in PRIORITIES:
            raise MalformedRequest(f"x-n4n-priority must be one of {', '.join(PRIORITIES)}", param="x-n4n-priority")

    def directives(self, key: Key, chat: ChatRequest) -> Directives:
        """The key's own directives, narrowed by what the request asks in header, query and body."""
        if self.plain and not (key.directives or key.require_directives or key.require_pricing) and chat.provider_object is None:
            return grammar.NONE
        found = grammar.parse(",".join(key.directives), source="the key's directives") if key.directives else grammar.parse("")
        routing = self.get("x-n4n-routing")
        asked = grammar.parse(routing) if routing else grammar.parse("")
        simple = self.get("x-routing-directive")
        if simple:
            asked = grammar.combine(asked, grammar.parse_simple(simple))
        if chat.provider_object is not None:
            asked = grammar.combine(asked, grammar.from_provider_object(chat.provider_object))
        missing = [name for name in key.require_directives if not asked.names_key(name)]
        if missing:
            raise MalformedRequest(
                f"this API key requires the directive {missing[0]}; send it as x-n4n-routing: {missing[0]}=…", param="x-n4n-routing"
            )
        return grammar.combine(grammar.combine(found, asked), priced(chat)) if key.require_pricing else grammar.combine(found, asked)


def authenticate(access: AccessSnapshot, asked: Asked) -> Key:
    """The key behind the request; one uniform Unauthenticated otherwise."""
    key = access.recalled(asked.bearer)
    return access.authenticate(asked.api_key, time.time()) if key is None else key
