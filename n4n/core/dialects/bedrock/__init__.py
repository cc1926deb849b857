"""AWS Bedrock's Converse (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html).

The model stands in the path: an id, the id of an inference profile, or an ARN. A Bedrock API key is sent as a bearer token; every
other credential signs the finished request, which the router does, since a signature needs a clock and keys that are renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Failed, Signing, UpstreamRequest
from n4n.core.dialects import Speech, StreamDecoder, completion
from n4n.core.dialects.bedrock import failures
from n4n.core.dialects.bedrock.answer import as_chunk, read_answer
from n4n.core.dialects.bedrock.events import CLAUDES, OWN
from n4n.core.dialects.bedrock.frames import looks_like_frames
from n4n.core.dialects.bedrock.identity import ApiKey, read_identity, region_of
from n4n.core.dialects.bedrock.models import traits_by_name
from n4n.core.dialects.bedrock.request import CANNOT, body_of
from n4n.core.dialects.bedrock.stream import ConverseDecoder
from n4n.core.errors import Failure

EVENT_STREAM = "application/vnd.amazon.eventstream"
SERVICE = "bedrock"  # the name that is signed for; the host has another one
_CONTENT = ("content-type", "application/json")
_WHOLE, _STREAM = ("accept", "application/json"), ("accept", EVENT_STREAM)
_MANY_CALLS = CANNOT | {"parallel_tools"}  # at models that cannot be held to one call at a time


class Bedrock:
    """The dialect `bedrock`."""

    name = "bedrock"

    def speech(self, model: str) -> Speech:
        """Converse."""
        return _speech(model)

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/model/ID/converse or …/converse-stream. Nothing of the client's headers."""
        body, warnings = body_of(request, endpoint)
        provider = endpoint.provider
        operation = "converse-stream" if request.stream else "converse"
        url = f"{provider.base_url}/model/{quote(endpoint.upstream_model, safe='')}/{operation}"
        identity = read_identity(secret)
        key: tuple[tuple[str, str], ...] = ()
        signing = None
        if isinstance(identity, ApiKey):
            key = (("authorization", f"Bearer {identity.value}"),)
        else:
            signing = Signing(SERVICE, region_of(provider.base_url, endpoint.region))
        headers = (_CONTENT, _STREAM if request.stream else _WHOLE, *key, *provider.headers.items())
        return UpstreamRequest(url, headers, body, warnings, provider.allow_private, signing)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        if looks_like_frames(body):
            return _of_stream(body, request)
        answer = read_answer(body)
        return answer if isinstance(answer, Failure) else as_chunk(answer, body, request.model)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return ConverseDecoder(request.model)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return failures.failure_of(status, headers, body, now)


@lru_cache(1024)
def _speech(model: str) -> Speech:
    reads = frozenset((OWN, CLAUDES)) if "claude" in model.lower() else frozenset((OWN,))
    return Speech("bedrock", CANNOT if traits_by_name(model).one_call_at_a_time else _MANY_CALLS, reads=reads)


def _of_stream(body: bytes, request: ChatRequest) -> Chunk | Failure:
    decoder = ConverseDecoder(request.model)
    events = decoder.feed(body) + decoder.end()
    for event in events:
        if isinstance(event, Failed):
            return event.failure
    payloads = [event.payload for event in events if isinstance(event, Chunk)]
    return completion.read_whole(json_bytes.dump(completion.joined(payloads)))
