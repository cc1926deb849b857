"""Whether an endpoint can do what a request asks: the features it lacks, and whether the input is surely longer than its window."""

from __future__ import annotations

from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import missing_features
from n4n.core.dialects import Speech

# What nobody can leave out of a question: it is part of what is asked. All other features are wishes about the answer.
CONTENT = frozenset(("vision", "pdf_input", "audio_input"))
# Prose and code have 3 to 5 bytes in a token, deeply indented code 6 or 7. A request is kept from an endpoint only where it cannot
# fit; what this lets pass, the provider refuses at no cost, and a larger window is tried.
MOST_BYTES_PER_TOKEN = 8
_LONG_ESCAPE, _ESCAPE = 5, b"\\u"  # bytes that an escape takes beyond one of a character's own
_OPAQUE = (b'"signature"', b'"encrypted_content"', b'"reasoning_details"')  # long, and a model reads little or nothing of it


def lacking(request: ChatRequest, endpoint: Endpoint, speech: Speech) -> frozenset[str]:
    """The features that a request uses and the endpoint has not, or that are lost on the way into its words."""
    missing = missing_features(request.features, endpoint.supports)
    if request.native is not None and request.native.dialect == speech.shape:
        return missing
    lost = request.features & speech.cannot
    return missing | lost if lost else missing


def most_bytes(endpoint: Endpoint) -> int | None:
    """The size of a body that may still fit whatever is in it; None: the window is not known."""
    return None if endpoint.context_window is None else endpoint.context_window * MOST_BYTES_PER_TOKEN


def least_tokens(request: ChatRequest) -> int:
    """Fewer tokens than any provider counts in a request; 0 where its size says nothing: it holds pictures, or sealed reasoning."""
    if request.least_tokens is not None:
        return request.least_tokens
    fields = request.fields if request.native is None else request.native.fields
    if not CONTENT.isdisjoint(request.features) or any(mark in bytes(raw) for raw in fields.values() for mark in _OPAQUE):
        return 0
    escapes = sum(bytes(raw).count(_ESCAPE) for raw in fields.values())
    return max(0, request.body_bytes - escapes * _LONG_ESCAPE) // MOST_BYTES_PER_TOKEN
