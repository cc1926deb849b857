"""A chat request as the body of generateContent (https://ai.google.dev/api/generate-content).

What a client wrote as a number goes out as it was written. Every field that Gemini has no place for is left out and named, unless
leaving it out changes nothing.
"""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import FEATURE_FIELDS, missing_features
from n4n.core.dialects.gemini.answer_schema import answer_schema
from n4n.core.dialects.gemini.contents import contents
from n4n.core.dialects.gemini.schemas import Allowance
from n4n.core.dialects.gemini.thinking import thinking_config
from n4n.core.dialects.gemini.tools import tool_config, tools
from n4n.core.dialects.overlay import lay_over
from n4n.core.errors import MalformedRequest

CANNOT = frozenset(("audio_output", "logit_bias", "web_search", "parallel_tools"))  # of a chat
_NUMBERS = {
    "temperature": "temperature", "top_p": "topP", "top_k": "topK", "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}  # fmt: skip
_ELSEWHERE = frozenset((
    *_NUMBERS, "model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "stop", "seed", "logprobs",
    "top_logprobs", "response_format", "tools", "tool_choice", "reasoning_effort", "reasoning", "thinking", "include_reasoning",
))  # fmt: skip
_MEANS_NOTHING = {
    "parallel_tool_calls": (b"true",), "store": (b"false",), "service_tier": (b'"auto"', b'"default"'), "modalities": (b'["text"]',),
    "tool_choice": (b'"auto"',), "function_call": (b'"auto"', b'"none"'),
}  # fmt: skip
_EMPTY = (b"null", b"[]", b"{}", b'""')
_MOST_STOPS = 5
_SEEDS = 2**31  # the API's seed is an int32
_STOPS = msgspec.json.Decoder(str | list[str] | None)
_WHOLE = msgspec.json.Decoder(int)


def body_of(request: ChatRequest, endpoint: Endpoint) -> tuple[bytes, list[str]]:
    """The body, and what was left out or changed for this endpoint. MalformedRequest: no provider could make sense of the request."""
    warnings: list[str] = []
    fields = {name: bytes(raw) for name, raw in request.fields.items() if name != "messages" and bytes(raw) not in _EMPTY}
    _leave_out(fields, request, endpoint, warnings)
    allowance = Allowance()
    made: dict[str, bytes] = dict(contents(request.fields["messages"], endpoint.upstream_model, warnings))
    declared = tools(fields["tools"], allowance, warnings) if "tools" in fields else None
    if declared is not None:
        made["tools"] = declared
        config = tool_config(fields["tool_choice"], warnings) if "tool_choice" in fields else None
        if config is not None:
            made["toolConfig"] = config
    generation = _generation(fields, request, endpoint, allowance, warnings)
    if generation:
        made["generationConfig"] = json_bytes.join(generation.items())
    lay_over(made, endpoint.body)
    return json_bytes.join(made.items()), list(dict.fromkeys(warnings))


def _leave_out(fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint, warnings: list[str]) -> None:
    """Take away what this endpoint lacks, and what Gemini has no place for."""
    for feature in sorted(missing_features(request.features, endpoint.supports)):
        for name in FEATURE_FIELDS.get(feature, ()):
            if fields.pop(name, None) is not None:
                warnings.append(f"{name} was left out: endpoint {endpoint.id} does not support {feature}")
    for name in [name for name in fields if name not in _ELSEWHERE]:
        if fields.pop(name) not in _MEANS_NOTHING.get(name, ()):
            warnings.append(f"{name[:64]} was left out: Gemini has no such field")


def _generation(
    fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint, allowance: Allowance, warnings: list[str]
) -> dict[str, bytes]:
    """`generationConfig`."""
    made = {theirs: fields[ours] for ours, theirs in _NUMBERS.items() if ours in fields}
    limit = _limit(request, endpoint, warnings)
    if limit is not None:
        made["maxOutputTokens"] = b"%d" % limit
    if request.n > 1 and "n" in fields:
        made["candidateCount"] = b"%d" % request.n
    if "stop" in fields:
        made["stopSequences"] = _stops(fields["stop"], warnings)
    if "seed" in fields:
        made["seed"] = _seed(fields["seed"], warnings)
    if fields.get("logprobs") == b"true":
        made["responseLogprobs"] = b"true"
        if "top_logprobs" in fields:
            made["logprobs"] = fields["top_logprobs"]
    if "response_format" in fields:
        made |= _format(fields["response_format"], allowance, warnings)
    thinking = thinking_config(fields, endpoint.upstream_model, warnings)
    if thinking is not None:
        made["thinkingConfig"] = json_bytes.dump(thinking)
    return made


def _limit(request: ChatRequest, endpoint: Endpoint, warnings: list[str]) -> int | None:
    """The most tokens of output. Gemini counts thinking into it, as OpenAI's max_completion_tokens does."""
    asked, most = request.max_output_tokens, endpoint.max_output_tokens
    if asked is None or most is None or asked <= most:
        return asked
    warnings.append(f"the output limit was lowered to {most}, the most that endpoint {endpoint.id} writes")
    return most


def _stops(raw: bytes, warnings: list[str]) -> bytes:
    try:
        read = _STOPS.decode(raw)
    except msgspec.DecodeError as error:
        raise MalformedRequest("stop must be a text or a list of texts", param="stop") from error
    stops = [stop for stop in ([read] if isinstance(read, str) else read or []) if stop]
    if len(stops) > _MOST_STOPS:
        warnings.append(f"stop was shortened to its first {_MOST_STOPS} texts, the most that Gemini takes")
    return json_bytes.dump(stops[:_MOST_STOPS])


def _seed(raw: bytes, warnings: list[str]) -> bytes:
    try:
        seed = _WHOLE.decode(raw)
    except msgspec.DecodeError as error:
        raise MalformedRequest("seed must be a whole number", param="seed") from error
    if -_SEEDS <= seed < _SEEDS:
        return raw
    warnings.append("seed was folded into 31 bits, the most that Gemini takes")
    return b"%d" % (seed % _SEEDS)


def _format(raw: bytes, allowance: Allowance, warnings: list[str]) -> dict[str, bytes]:
    """The form of the answer: any JSON, or JSON of a schema. (https://ai.google.dev/gemini-api/docs/structured-output)"""
    wanted = json_bytes.parse(raw)
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in ("json_object", "json_schema"):
        return {}
    made = {"responseMimeType": b'"application/json"'}
    named = wanted.get("json_schema") if isinstance(wanted, dict) and kind == "json_schema" else None
    if isinstance(named, dict) and isinstance(named.get("schema"), dict):
        schema, left_out = answer_schema(named["schema"], allowance)
        made["responseJsonSchema"] = json_bytes.dump(schema)
        if left_out:
            warnings.append(f"of response_format was left out: {', '.join(sorted(left_out))[:200]}")
    return made
