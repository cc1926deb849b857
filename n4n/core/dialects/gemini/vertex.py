"""The dialect `vertex`: Google Cloud's Vertex AI, where Gemini stands beside the models of other publishers.

Gemini takes the same bodies as at AI Studio. Others take their own ones at `:rawPredict`, so their dialects are handed in; an answer
shows whose words it is in. The secret is an OAuth access token.
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/use-partner-models
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, UpstreamRequest
from n4n.core.dialects import Dialect, Speech, StreamDecoder
from n4n.core.dialects.gemini.dialect import Gemini, encoded
from n4n.core.dialects.gemini.listening import ANTHROPIC, GOOGLE, MISTRAL, Listening, publisher_in
from n4n.core.errors import Failure

_PREFIXES = {"claude": ANTHROPIC, "mistral": MISTRAL, "codestral": MISTRAL, "ministral": MISTRAL}
_CREDENTIALS = frozenset(("authorization", "x-api-key", "anthropic-version"))
_ANTHROPIC_VERSION = b'"vertex-2023-10-16"'


def publisher_of(model: str) -> tuple[str, str]:
    """Whose model it is, and its name: said as PUBLISHER/MODEL, else known by how the name begins, else Google's."""
    publisher, slash, name = model.removeprefix("publishers/").replace("/models/", "/", 1).partition("/")
    if slash:
        return publisher, name
    return next((whose for prefix, whose in _PREFIXES.items() if model.startswith(prefix)), GOOGLE), model


class Vertex:
    """The dialect `vertex`; `others` are the dialects of publishers that are not Google, by the publisher's name."""

    name = "vertex"

    def __init__(self, others: Mapping[str, Dialect]) -> None:
        self._google = Gemini()
        self._others = others

    def speech(self, model: str) -> Speech:
        """That of the model's publisher."""
        return self._speaker(publisher_of(model)[0]).speech(model)

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/publishers/PUBLISHER/models/MODEL:METHOD; base_url ends in /projects/PROJECT/locations/LOCATION."""
        publisher, model = publisher_of(endpoint.upstream_model)
        named = replace(endpoint, upstream_model=model)
        path = f"publishers/{publisher}/models/{model}"
        credential = ("authorization", f"Bearer {secret}") if secret else None
        other = self._others.get(publisher)
        if other is None:
            return encoded(request, named, path, credential)
        theirs = other.encode(request, named, None)
        headers = [header for header in theirs.headers if header[0].lower() not in _CREDENTIALS]
        method = "streamRawPredict" if request.stream else "rawPredict"
        url = f"{endpoint.provider.base_url}/{quote(path, safe='/@-._~:')}:{method}"
        headers += [credential] if credential else []
        return UpstreamRequest(url, tuple(headers), _raw(publisher, theirs.body), theirs.warnings, theirs.allow_private)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer, by whose words it is in."""
        return self._speaker(publisher_in(body)).decode(body, content_type, request)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder that listens to the first event before it decides whose words these are."""
        return Listening(lambda publisher: self._speaker(publisher).decoder(request))

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means; Google's own front speaks for the others too."""
        return self._speaker(publisher_in(body)).failure(status, headers, body, now)

    def _speaker(self, publisher: str) -> Dialect:
        return self._others.get(publisher, self._google)


def _raw(publisher: str, body: bytes) -> bytes:
    """A publisher's own body as Vertex takes it: Anthropic's model stands in the URL only; nobody knows `stream_options` there."""
    fields: dict[str, bytes] = dict(json_bytes.members(body))
    if publisher == ANTHROPIC:
        del fields["model"]
        fields = {"anthropic_version": _ANTHROPIC_VERSION, **fields}
    else:
        fields.pop("stream_options", None)
    return json_bytes.join(fields.items())
