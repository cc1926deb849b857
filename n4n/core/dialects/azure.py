"""OpenAI's chat completions at Azure: other addresses, another header, and what its content filter adds to an answer.

https://learn.microsoft.com/azure/ai-services/openai/reference. A base URL that ends in `/v1` is the v1 API, where the deployment is
the body's `model`; any other is the dated API, where it stands in the path. `vars.api_version` of the provider is the query's
`api-version`: the v1 API needs none (or `preview`), the dated one always has one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Comment, Event, UpstreamRequest
from n4n.core.dialects import Speech, StreamDecoder, classify
from n4n.core.dialects.classify import Told
from n4n.core.dialects.openai import OpenAI
from n4n.core.errors import Failure

API_VERSION = "2024-10-21"  # of the dated API, where the catalog names none: the latest that is no preview
_PATH = "/chat/completions"
_CHAT = OpenAI()
_COMMENT = Comment()
_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.")  # a JWT of Entra ID; a resource's key has no dots
_NO_ANNOTATION = frozenset(("id", "object", "created", "model", "choices", "usage", "system_fingerprint"))
_LIMITED = frozenset(("429", "ratelimitreached", "too_many_requests"))


class Azure:
    """The dialect `azure`."""

    name = "azure"

    def speech(self, model: str) -> Speech:
        """As OpenAI's."""
        return _CHAT.speech(model)

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """The request as OpenAI wants it, at Azure's address; `secret` is a resource's key, or an Entra token."""
        sent = _CHAT.encode(request, endpoint, None)
        return UpstreamRequest(_url(endpoint), (*_credential(secret), *sent.headers), sent.body, sent.warnings, sent.allow_private)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        return _CHAT.decode(body, content_type, request)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return AnnotationDecoder(_CHAT.decoder(request))

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return classify.failure_of(status, headers, body, now, read=_read_error)


def _url(endpoint: Endpoint) -> str:
    base, version = endpoint.provider.base_url, endpoint.provider.vars.get("api_version")
    if not base.endswith("/v1"):
        base = base if base.endswith("/openai") else base + "/openai"
        base = f"{base}/deployments/{quote(endpoint.upstream_model, safe='')}"
        version = version or API_VERSION
    return base + _PATH + (f"?{urlencode({'api-version': version})}" if version else "")


def _credential(secret: str | None) -> tuple[tuple[str, str], ...]:
    if not secret:
        return ()
    return (("authorization", f"Bearer {secret}"),) if _TOKEN.match(secret) else (("api-key", secret),)


def _read_error(body: object) -> Told | None:
    """One status and code for four situations: only the text tells a full platform, and a request that never fits, from a used limit."""
    told = classify.read_error(body)
    if told is None or (told.code or "").lower() not in _LIMITED:
        return told
    text = told.message.lower()
    if "high demand" in text:
        return Told(told.message, "overloaded", told.kind, told.param)
    if "request parameters" in text and "exceed" in text:
        return Told(told.message, "context_length_exceeded", told.kind, told.param)
    return told


class AnnotationDecoder:
    """What the filter says of the prompt comes on a chunk without choices, ahead of all others; clients of chat ask
    `choices[0]` of every chunk but the one with usage. It rides on the chunk that follows instead."""

    __slots__ = ("_annotations", "_inner")

    def __init__(self, inner: StreamDecoder) -> None:
        self._inner = inner
        self._annotations: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<AnnotationDecoder of {self._inner!r}>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed."""
        return [self._moved(event) for event in self._inner.feed(piece)]

    def end(self) -> list[Event]:
        """The input ended."""
        return [self._moved(event) for event in self._inner.end()]

    def _moved(self, event: Event) -> Event:
        if not isinstance(event, Chunk) or event.usage is not None:
            return event
        if not event.choices:
            known = json_bytes.loose_members(event.payload)
            self._annotations.update((name, raw) for name, raw in known.items() if name not in _NO_ANNOTATION)
            return _COMMENT
        if not self._annotations:
            return event
        known = json_bytes.loose_members(event.payload)
        added, self._annotations = {name: raw for name, raw in self._annotations.items() if name not in known}, {}
        return replace(event, payload=json_bytes.join({**known, **added}.items()))
