"""Reasoning that comes sealed, where only who sealed it can open it: it is marked with its origin on the way out, and goes back there
alone.

OpenAI's Responses seal for one organisation, so for an account; what is encrypted on Bedrock is for one model. The mark stands in front of
what is sealed, which clients keep and send back unread: `n4n.o1.` and eight digits of the origin's name. Nothing is remembered. Claude's
signatures hold wherever Claude is served (https://platform.claude.com/docs/en/build-with-claude/extended-thinking) and bear none.

At another origin such reasoning is left out, with a warning; what bears no mark goes as it came. What else a conversation cannot go on
without (a compaction) is part of the question, and keeps the endpoint out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from n4n.core import json_bytes
from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import ChatRequest, Chunk, Event, Native, UpstreamRequest
from n4n.core.dialects import Dialect, Speech, StreamDecoder
from n4n.core.errors import Failure, Untellable
from n4n.core.origin import IN_TEXT, MARK, digits

_SEALED = re.compile(rb'("encrypted_content"\s*:\s*"|"type":"reasoning\.encrypted","data":")(?=[^"])')
_GEOGRAPHY = re.compile(r"(?:us|eu|apac|global|jp|au|us-gov)\.(?=\w+\.)")  # of an inference profile's id
_FORMAT = re.compile(rb'"format"\s*:\s*"([a-z0-9.-]{1,40})"')
_FORMATS = frozenset(("anthropic-claude-v1", "bedrock-converse-v1", "google-gemini-v1", "openai-responses-v1"))
_WRAPPED = b'"n4n.v1.'  # in place of a maker's own seal: see the skins' `sealed`


def origin_of(speech: Speech, endpoint: Endpoint, account: Account) -> str:
    """Where what is sealed by this endpoint can be opened again; '' where that is no question."""
    match speech.binds:
        case "account":
            return digits(account.name)
        case "model":
            return digits(_GEOGRAPHY.sub("", endpoint.upstream_model, count=1))
    return ""


def unread(request: ChatRequest, endpoint: Endpoint, speech: Speech) -> str | None:
    """The warning where an endpoint does not read reasoning that the conversation bears; None: it reads it all."""
    words = request.native
    if words is not None and words.dialect == speech.shape:
        lost = any(_WRAPPED in bytes(raw) for name, raw in words.fields.items() if name in ("messages", "input"))
    elif "marks" in endpoint.provider.quirks:
        lost = False
    else:
        found = {name.decode() for name in _FORMAT.findall(memoryview(request.fields["messages"]))}
        lost = not found.isdisjoint(_FORMATS - speech.reads)
    return _warning(endpoint) if lost else None


def _warning(endpoint: Endpoint) -> str:
    return f"reasoning of an earlier answer was left out: endpoint {endpoint.id} did not make it and cannot read it"


class Bound:
    """A dialect whose sealed reasoning is bound to an origin; `request.origin` names it, and '' means that it does not matter."""

    def __init__(self, inner: Dialect, binds: str) -> None:
        self.name, self._inner, self._binds = inner.name, inner, binds
        self._speech: dict[Speech, Speech] = {}

    def speech(self, model: str) -> Speech:
        """With what binds its reasoning."""
        plain = self._inner.speech(model)
        known = self._speech.get(plain)
        if known is None:
            known = self._speech[plain] = replace(plain, binds=self._binds)
        return known

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """Without marks, and without what another origin sealed. Untellable: it cannot be told without it."""
        known, warnings = _recalled(request, endpoint, self._inner.speech(endpoint.upstream_model))
        sent = self._inner.encode(known, endpoint, secret)
        return replace(sent, warnings=(*sent.warnings, *warnings)) if warnings else sent

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """Marked."""
        came = self._inner.decode(body, content_type, request)
        return _marked(came, request.origin.encode()) if isinstance(came, Chunk) and request.origin else came

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """Marks what is sealed."""
        inner = self._inner.decoder(request)
        return _Marking(inner, request.origin.encode()) if request.origin else inner

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """As the dialect says."""
        return self._inner.failure(status, headers, body, now)


class _Marking:
    """A decoder whose chunks are marked."""

    __slots__ = ("_inner", "_origin")

    def __init__(self, inner: StreamDecoder, origin: bytes) -> None:
        self._inner, self._origin = inner, origin

    def feed(self, piece: bytes) -> list[Event]:
        """What the piece completed."""
        return [_marked(event, self._origin) if isinstance(event, Chunk) else event for event in self._inner.feed(piece)]

    def end(self) -> list[Event]:
        """The rest."""
        return [_marked(event, self._origin) if isinstance(event, Chunk) else event for event in self._inner.end()]


def _marked(chunk: Chunk, origin: bytes) -> Chunk:
    """A key in quotes stands nowhere but where it is a key: within a text its quotes are escaped."""
    if b"encrypted" not in chunk.payload:
        return chunk
    return replace(chunk, payload=_SEALED.sub(rb"\1%b%b." % (MARK, origin), chunk.payload))


def _recalled(request: ChatRequest, endpoint: Endpoint, speech: Speech) -> tuple[ChatRequest, tuple[str, ...]]:
    """The request as its origin gave it out."""
    words = request.native
    native = words is not None and words.dialect == speech.shape
    fields: Mapping[str, msgspec.Raw] = words.fields if words is not None and native else request.fields
    name = "input" if native else "messages"
    raw = bytes(fields.get(name, b""))
    if MARK not in raw:
        return request, ()
    said = json_bytes.parse(raw)
    if not isinstance(said, list):
        return request, ()
    opening = _Opening(request.origin, endpoint)
    made = [opening.item(one, name) for one in said] if native else [opening.message(one) for one in said]
    changed = {**fields, name: msgspec.Raw(json_bytes.dump([one for one in made if one is not None]))}
    if words is not None and native:
        return replace(request, native=Native(words.dialect, changed)), opening.warnings
    return replace(request, fields=changed), opening.warnings


class _Opening:
    """Takes marks off."""

    def __init__(self, origin: str, endpoint: Endpoint) -> None:
        self._origin, self._endpoint = origin, endpoint
        self.warnings: tuple[str, ...] = ()

    def item(self, item: object, path: str) -> object:
        """An item of Responses; None: reasoning of somebody else's."""
        if not isinstance(item, dict) or not isinstance(sealed := item.get("encrypted_content"), str):
            return item
        opened = self._opened(sealed)
        if opened is not None:
            return {**item, "encrypted_content": opened}
        if item.get("type") != "reasoning":
            kind = str(item.get("type"))[:40]
            raise Untellable(f"{path}: endpoint {self._endpoint.id} cannot open a {kind} that another account made", param=path)
        self._leave_out()
        return None

    def message(self, message: object) -> object:
        """A message of a chat."""
        details = message.get("reasoning_details") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(details, list):
            return message
        found = [self._entry(entry) for entry in details]
        return {**message, "reasoning_details": [entry for entry in found if entry is not None]}

    def _entry(self, entry: object) -> object:
        if not isinstance(entry, dict) or not isinstance(sealed := entry.get("data"), str):
            return entry
        opened = self._opened(sealed)
        if opened is None:
            self._leave_out()
            return None
        return {**entry, "data": opened}

    def _opened(self, sealed: str) -> str | None:
        """Without its mark; None: another origin's."""
        found = IN_TEXT.match(sealed)
        if found is None:
            return sealed
        return sealed[found.end() :] if self._origin in ("", found[1]) else None

    def _leave_out(self) -> None:
        self.warnings = (_warning(self._endpoint),)
