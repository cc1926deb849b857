"""Whether an endpoint can do what a request asks: the features it lacks, and whether the input is surely longer than its window."""

from __future__ import annotations

import re
from collections.abc import Iterable

from n4n.core.catalog import Endpoint
from n4n.core.chat import CHAT, ChatRequest
from n4n.core.chat_request import missing_features
from n4n.core.dialects import Speech

# What nobody can leave out of a question: it is part of what is asked. All other features are wishes about the answer.
CONTENT = frozenset(("vision", "pdf_input", "audio_input"))
# Prose and code have 3 to 5 bytes in a token, deeply indented code 6 or 7. A request is kept from an endpoint only where it cannot
# fit; what this lets pass, the provider refuses at no cost, and a larger window is tried.
MOST_BYTES_PER_TOKEN = 8
EMBEDDINGS = "embeddings"  # what is asked for at /v1/embeddings; of an endpoint: it makes these, and chats with nobody
_TEXTS, _TEXTS_ALONE = "openai_completions", frozenset(("text_completions",))  # the words of text completions; who takes nothing else
_PARALLEL = "parallel_tools"
WEB_SEARCH = "web_search"  # a feature of endpoints, and the one tool of an API that a chat has a word for
_ODD, _LONGEST_NAME, _MOST_NAMED = re.compile(r"[^A-Za-z0-9_.-]"), 40, 8
_LONG_ESCAPE, _ESCAPE = 5, b"\\u"  # bytes that an escape takes beyond one of a character's own
_OPAQUE = (b'"signature"', b'"encrypted_content"', b'"reasoning_details"')  # long, and a model reads little or nothing of it


def lacking(request: ChatRequest, endpoint: Endpoint, speech: Speech) -> frozenset[str]:
    """The features that a request uses and the endpoint has not, or that are lost on the way into its words."""
    missing = missing_features(request.features, endpoint.supports)
    if request.native is not None and request.native.dialect == speech.shape:
        return missing
    lost = request.features & speech.cannot
    if _PARALLEL in lost and not _wants_one_call(request):
        lost -= {_PARALLEL}
    return missing | lost if lost else missing


def _wants_one_call(request: ChatRequest) -> bool:
    """Whether calls may not be parallel; that they may is what everybody does by itself."""
    fields = request.fields if request.native is None else request.native.fields
    return "parallel_tool_calls" not in fields or bytes(fields["parallel_tool_calls"]) == b"false"  # Messages has only the one word


def untaken_tools(request: ChatRequest, endpoint: Endpoint, speech: Speech) -> tuple[str, ...]:
    """Of the tools that the client's own API runs or knows, those that this endpoint does not: all, where it speaks something else, but for
    the search of the web where it has one that a chat can ask for."""
    tools, supports = request.native_tools, endpoint.supports
    if request.native is not None and request.native.dialect == speech.shape:
        missing = missing_features(request.features, supports)
        return tools if "tools" in missing else tuple(name for name in tools if name in missing)
    searches = supports is not None and WEB_SEARCH in supports and WEB_SEARCH not in speech.cannot
    return tuple(name for name in tools if not (name == WEB_SEARCH and searches))


def tools_named(kinds: Iterable[str]) -> tuple[str, ...]:
    """The names of tools by their types, which may be anything: each once, a few, short and plain."""
    names = (WEB_SEARCH if kind.startswith(WEB_SEARCH) else _ODD.sub("?", kind[:_LONGEST_NAME]) for kind in kinds)
    return tuple(dict.fromkeys(names))[:_MOST_NAMED]


def barred_kind(request: ChatRequest, endpoint: Endpoint) -> str | None:
    """What an endpoint would have to serve and does not, where it makes something else alone: as the catalog names it, and `chat`."""
    supports = endpoint.supports
    if EMBEDDINGS in request.features:
        return None if supports is not None and EMBEDDINGS in supports else EMBEDDINGS
    if supports is None or (EMBEDDINGS not in supports and supports != _TEXTS_ALONE):
        return None
    asks_texts = request.native is not None and request.native.dialect == _TEXTS
    return None if asks_texts and EMBEDDINGS not in supports else CHAT


def most_bytes(endpoint: Endpoint) -> int | None:
    """The size of a body that may still fit whatever is in it; None: the window is not known."""
    return None if endpoint.context_window is None else endpoint.context_window * MOST_BYTES_PER_TOKEN


def least_tokens(request: ChatRequest) -> int:
    """Fewer tokens than any provider counts in a request; 0 where its size says nothing: it holds pictures, sealed reasoning or many texts
    to be embedded."""
    if request.least_tokens is not None:
        return request.least_tokens
    if EMBEDDINGS in request.features:  # each input has the window for itself
        return 0
    fields = request.fields if request.native is None else request.native.fields
    if not CONTENT.isdisjoint(request.features) or any(mark in bytes(raw) for raw in fields.values() for mark in _OPAQUE):
        return 0
    escapes = sum(bytes(raw).count(_ESCAPE) for raw in fields.values())
    return max(0, request.body_bytes - escapes * _LONG_ESCAPE) // MOST_BYTES_PER_TOKEN
