"""A request to the Responses API: the client's own members where it speaks Responses, else its chat translated; then what the
endpoint wants.

https://platform.openai.com/docs/api-reference/responses/create. Nothing is kept at the provider: `store` is false, always. Nothing
is left out silently: every member that does not go out is named.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import FEATURE_FIELDS, missing_features
from n4n.core.dialects.overlay import lay_over
from n4n.core.dialects.responses import native
from n4n.core.dialects.responses.chat_words import Reasoning, decoded
from n4n.core.dialects.responses.items import input_items
from n4n.core.dialects.responses.notes import Notes
from n4n.core.dialects.responses.tools import choice, text, tools
from n4n.core.dialects.responses.words import SHAPE

Fields = dict[str, bytes]
CANNOT = frozenset(("n", "seed", "logit_bias", "penalties", "stop", "audio_output"))  # features of a chat that this API has no word for
LEAST_OUTPUT = 16  # the API refuses a lower `max_output_tokens`
SEALED_REASONING = "reasoning.encrypted_content"
TOKEN_LOGPROBS = "message.output_text.logprobs"  # noqa: S105  # the tokens are a model's
_NOTHING = (b"null", b"false", b"[]", b"{}", b'""', b"0", b"0.0")
_SAME = (
    "temperature", "top_p", "parallel_tool_calls", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "service_tier", "moderation", "top_logprobs",
)  # fmt: skip
_READ = frozenset(
    (*_SAME, "model", "messages", "stream", "stream_options", "store", "max_tokens", "max_completion_tokens", "tools", "functions",
     "tool_choice", "function_call", "web_search_options", "response_format", "verbosity", "reasoning_effort", "reasoning",
     "include_reasoning", "logprobs")
)  # fmt: skip
_WORD = msgspec.json.Decoder(str | None)
_REASONING = msgspec.json.Decoder(Reasoning | None)
_OPTIONS = msgspec.json.Decoder(dict[str, object] | None)


def members(request: ChatRequest, endpoint: Endpoint) -> tuple[Fields, list[str]]:
    """The members of the body for this endpoint, and what a client should know. Raises MalformedRequest for a chat nobody can read."""
    notes = Notes(endpoint.id)
    if request.native is not None and request.native.dialect == SHAPE:
        fields = native.members(request, request.native, endpoint, notes)
    else:
        fields = _translated(request, endpoint, notes)
    fields["model"] = json_bytes.encode(endpoint.upstream_model)
    fields["store"] = b"false"
    lay_over(fields, endpoint.body)
    return fields, notes.warnings


def _translated(request: ChatRequest, endpoint: Endpoint, notes: Notes) -> Fields:
    fields: Fields = dict(request.fields)
    _leave_out(fields, request, endpoint, notes)
    reasoning = _reasoning(fields)
    made: dict[str, object] = {
        "model": None,  # in the place where a reader looks first
        "input": input_items(fields["messages"], notes),
        "tools": tools(fields) or None,
        "tool_choice": choice(fields),
        "text": text(fields, notes),
        "reasoning": reasoning,
        "include": _include(fields, reasoning),
        "max_output_tokens": _most(request, endpoint, notes),
        **{name: msgspec.Raw(fields[name]) for name in _SAME if bytes(fields.get(name, b"null")) != b"null"},
        "stream": True if request.stream else None,
        "stream_options": _stream_options(fields),
    }
    return {name: json_bytes.encode(value) for name, value in made.items() if value is not None}


def _leave_out(fields: Fields, request: ChatRequest, endpoint: Endpoint, notes: Notes) -> None:
    for feature in sorted(missing_features(request.features, endpoint.supports)):
        for name in FEATURE_FIELDS.get(feature, ()):
            if fields.pop(name, None) is not None:
                notes.left_out(name, f"does not support {feature}")
    for name, raw in fields.items():
        if name not in _READ and bytes(raw) not in _NOTHING and not (name == "n" and bytes(raw) == b"1"):
            notes.left_out(name)


def _most(request: ChatRequest, endpoint: Endpoint, notes: Notes) -> int | None:
    asked, most = request.max_output_tokens, endpoint.max_output_tokens
    if asked is None:
        return None
    if most is not None and asked > most:
        notes.say(f"max_tokens was lowered to {most}, the most that endpoint {endpoint.id} writes")
        return most
    if asked < LEAST_OUTPUT:
        notes.say(f"max_tokens was raised to {LEAST_OUTPUT}, the least that endpoint {endpoint.id} accepts")
        return LEAST_OUTPUT
    return asked


def _reasoning(fields: Mapping[str, bytes]) -> dict[str, str] | None:
    """How hard to think, and whether to tell of it: a chat that says `include_reasoning`, or OpenRouter's `reasoning`, wants to read it."""
    said = decoded(fields.get("reasoning", b"null"), _REASONING, "reasoning") or Reasoning()
    effort = decoded(fields.get("reasoning_effort", b"null"), _WORD, "reasoning_effort") or said.effort
    if effort is None and said.enabled is not None:
        effort = "medium" if said.enabled else "none"
    summary = said.summary or ("auto" if bytes(fields.get("include_reasoning", b"")) == b"true" else None)
    told = {"effort": effort, "summary": summary}
    return {name: value for name, value in told.items() if value is not None} or None


def _include(fields: Mapping[str, bytes], reasoning: object) -> list[str] | None:
    """Reasoning comes sealed, to be sent back; asked for only where the model reasons, for others refuse the wish."""
    wanted = [SEALED_REASONING] if reasoning else []
    if bytes(fields.get("logprobs", b"")) == b"true":
        wanted.append(TOKEN_LOGPROBS)
    return wanted or None


def _stream_options(fields: Mapping[str, bytes]) -> object:
    options = decoded(fields.get("stream_options", b"null"), _OPTIONS, "stream_options") or {}
    return {"include_obfuscation": options["include_obfuscation"]} if "include_obfuscation" in options else None
