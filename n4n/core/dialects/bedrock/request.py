"""A chat as the body of Converse and ConverseStream, which is the same.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. What a model takes beyond Converse goes among its
own fields (`additionalModelRequestFields`). Nothing is left out silently: every member that does not go out is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import FEATURE_FIELDS, missing_features
from n4n.core.dialects.bedrock import thinking
from n4n.core.dialects.bedrock.counts import REASONING_PATH
from n4n.core.dialects.bedrock.inference import inference_config, thinks
from n4n.core.dialects.bedrock.marks import MOST, mark, thinned
from n4n.core.dialects.bedrock.media import Media
from n4n.core.dialects.bedrock.models import Reasoning, traits_of
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.schema import closed
from n4n.core.dialects.bedrock.tools import Offer, has_marks, offer
from n4n.core.dialects.bedrock.turns import Talk, talk
from n4n.core.dialects.bedrock.words import Ending, Format, decoded, word
from n4n.core.dialects.overlay import lay_over

Fields = dict[str, bytes]
Object = dict[str, object]
# Features that no model on Bedrock can serve, whatever the catalog says of it.
CANNOT = frozenset(("n", "seed", "logprobs", "logit_bias", "penalties", "audio_output", "web_search"))
_NOTHING = (b"null", b"false", b"[]", b"{}", b'""', b"0", b"0.0")
_MEANS_NOTHING = {"n": (b"1",), "modalities": (b'["text"]',), "parallel_tool_calls": (b"true",), "logprobs": (b"false",)}
_PASSED = ("guardrailConfig", "performanceConfig")  # Converse's own names, which a client may use
_READ = frozenset(
    ("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "tools", "functions", "tool_choice",
     "function_call", "parallel_tool_calls", "stop", "temperature", "top_p", "top_k", "response_format", "reasoning_effort", "reasoning",
     "include_reasoning", "thinking", "metadata", "requestMetadata", "service_tier", "serviceTier", "cache_control", "prompt_cache_key",
     "prompt_cache_options", "prompt_cache_retention", "additionalModelRequestFields", *_PASSED)
)  # fmt: skip
_FORMAT = msgspec.json.Decoder(Format | None)
_OBJECT = msgspec.json.Decoder(dict[str, object] | None)
_NUMBER = msgspec.json.Decoder(float | None)
_MARK = msgspec.json.Decoder(Ending | None)
_IN_WORDS = frozenset(("json_object", "json_schema"))  # features that can be asked for in the prompt, if not better
_ONLY_JSON = "Answer with one JSON object and nothing else."
_JSON_LIKE = "Answer with JSON and nothing else. It has to conform to this JSON schema: "
_TIERS = {"default": "default", "standard": "default", "flex": "flex", "priority": "priority", "reserved": "reserved"}
_METADATUM = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}\Z")
_MOST_METADATA = 16


def body_of(request: ChatRequest, endpoint: Endpoint) -> tuple[bytes, tuple[str, ...]]:
    """The body for this endpoint, and what a client should know. Raises MalformedRequest for a chat nobody can read."""
    notes = Notes(endpoint.id)
    talk, fields = _Chat(request, endpoint, notes).told()
    lay_over(fields, endpoint.body)
    if "messages" in fields:  # the catalog's own word
        return json_bytes.join(fields.items()), notes.warnings
    pieces = [b'{"messages":[', *talk.pieces()]
    if fields:
        pieces += (b"],", json_bytes.join(fields.items())[1:])
    else:
        pieces.append(b"]}")
    return b"".join(pieces), notes.warnings


class _Chat:
    """One chat on its way into Converse."""

    def __init__(self, request: ChatRequest, endpoint: Endpoint, notes: Notes) -> None:
        self._request, self._endpoint, self._notes = request, endpoint, notes
        self._fields: Fields = {name: bytes(raw) for name, raw in request.fields.items() if name != "messages"}
        self._traits = traits_of(endpoint)

    def told(self) -> tuple[Talk, Fields]:
        """The messages, and every other member."""
        self._leave_out()
        offered = offer(self._fields, self._traits, self._notes)
        media = Media(self._notes)
        told = talk(self._request.fields["messages"], self._traits, media, self._notes, tools=bool(offered.blocks))
        output = self._output(told)
        own = self._own_fields(told, offered)
        inference = inference_config(self._fields, self._request, self._endpoint, self._traits, own, self._notes)
        self._marks(told, offered)
        made: dict[str, bytes | None] = {
            "system": _list(told.system) if told.system else None,
            "inferenceConfig": inference,
            "toolConfig": offered.config() if offered.blocks else None,
            "outputConfig": output,
            **{name: self._fields.get(name) for name in _PASSED},
            "requestMetadata": self._metadata(),
            "serviceTier": self._tier(),
            "additionalModelRequestFields": json_bytes.dump(own) if own else None,
            "additionalModelResponseFieldPaths": _list((json_bytes.encode(REASONING_PATH),)) if thinks(own) else None,
        }
        return told, {name: value for name, value in made.items() if value is not None and value not in _NOTHING}

    def _leave_out(self) -> None:
        """Take away what this endpoint lacks, and name what Converse has no place for."""
        for feature in sorted(missing_features(self._request.features, self._endpoint.supports) - _IN_WORDS):
            for name in FEATURE_FIELDS.get(feature, ()):
                if self._fields.pop(name, None) is not None:
                    self._notes.left_out(name, f"does not support {feature}")
        for name, raw in self._fields.items():
            if name not in _READ and raw not in _NOTHING and raw not in _MEANS_NOTHING.get(name, ()):
                self._notes.left_out(name[:64])
        guardrail = self._fields.get("guardrailConfig", b"null")
        if not self._request.stream and json_bytes.is_object(guardrail):  # only a stream has a mode
            told = json_bytes.members(guardrail)
            self._fields["guardrailConfig"] = json_bytes.join((k, v) for k, v in told.items() if k != "streamProcessingMode")

    def _output(self, told: Talk) -> bytes | None:
        """`outputConfig`; a form that this endpoint cannot be held to is asked for in words."""
        wanted = decoded(self._fields.get("response_format"), _FORMAT, "response_format")
        if wanted is None or wanted.type not in _IN_WORDS:
            return None
        words = _ONLY_JSON
        if wanted.type == "json_schema" and wanted.json_schema is not None:
            named = wanted.json_schema
            schema = json_bytes.dump(closed(named.schema if isinstance(named.schema, dict) else {"type": "object"})).decode()
            if self._endpoint.supports is None or "json_schema" in self._endpoint.supports:
                labels = {name: value for name, value in (("name", named.name), ("description", named.description)) if value}
                form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, **labels}}}
                return json_bytes.dump({"textFormat": form})
            words = _JSON_LIKE + schema
        told.system.append(b'{"text":%b}' % json_bytes.dump(words))
        self._notes.changed("response_format is asked for in words", f"has no {wanted.type}")
        return None

    def _own_fields(self, told: Talk, offered: Offer) -> Object:
        """`additionalModelRequestFields`: the client's own first, then what Converse has no word for."""
        name = "additionalModelRequestFields"
        own: Object | None = decoded(self._fields.get(name), _OBJECT, name)
        fields = self._reasoning(told, offered)
        if offered.own is not None:
            fields["tool_choice"] = offered.own
        top_k = decoded(self._fields.get("top_k"), _NUMBER, "top_k")
        if top_k is not None and thinks(fields):
            self._notes.left_out("top_k", "takes none while it reasons")
        elif top_k is not None and self._traits.top_k:
            value: object = int(top_k)
            for step in reversed(self._traits.top_k):
                value = {step: value}
            fields |= cast(Object, value)
        elif top_k is not None:
            self._notes.left_out("top_k", "has no word for it")
        return fields | (own or {})

    def _reasoning(self, told: Talk, offered: Offer) -> Object:
        wish = thinking.wish(self._fields)
        claude = self._traits.reasoning in (Reasoning.ADAPTIVE, Reasoning.BUDGET)
        if wish.wants and claude and offered.forced:
            self._notes.left_out("reasoning", "does not reason where a tool call is forced")
            return {}
        if wish.wants and self._traits.reasoning is Reasoning.BUDGET and told.awaits_unsigned:
            self._notes.left_out("reasoning", "does not reason on between calls that it did not make")
            return {}
        limits = [count for count in (self._request.max_output_tokens, self._endpoint.max_output_tokens) if count is not None]
        return thinking.reasoning_fields(wish, self._traits, min(limits, default=None), self._notes)

    def _marks(self, told: Talk, offered: Offer) -> None:
        """The mark on the whole goes behind the last words of the client; OpenAI's key asks for one where nothing is marked."""
        places = [offered.blocks, told.system, *(part for turn in told.turns for part in (turn.results, turn.blocks))]
        whole = decoded(self._fields.get("cache_control"), _MARK, "cache_control")
        keyed = any(self._fields.get(name, b"null") not in _NOTHING for name in ("prompt_cache_key", "prompt_cache_retention"))
        if whole is None and keyed and self._traits.caches and not any(map(has_marks, places)):
            whole = Ending(word(self._fields.get("prompt_cache_retention"), "prompt_cache_retention"))
        last = next(turn for turn in reversed(told.turns) if turn.role == "user")
        behind = last.blocks or last.results
        if not has_marks(behind[-1:]):
            behind += mark(whole, self._traits, self._notes)
        surplus = thinned(places)
        if surplus:
            self._notes.changed(f"{surplus} cache_control marks were left out", f"takes {MOST}")

    def _metadata(self) -> bytes | None:
        """`requestMetadata`: what AWS can filter its logs of invocations by."""
        name = "requestMetadata" if "requestMetadata" in self._fields else "metadata"
        found: Object | None = decoded(self._fields.get(name), _OBJECT, name)
        said = found or {}
        kept = {key: value for key, value in said.items() if key and _is_metadatum(key) and _is_metadatum(value)}
        kept = dict(list(kept.items())[:_MOST_METADATA])
        if len(kept) < len(said):
            self._notes.left_out(f"part of {name}", f"takes {_MOST_METADATA} short texts of plain characters")
        return json_bytes.dump(kept) if kept else None

    def _tier(self) -> bytes | None:
        if "serviceTier" in self._fields:
            return self._fields["serviceTier"]
        tier = word(self._fields.get("service_tier"), "service_tier")
        if tier is None or tier == "auto":
            return None
        if tier not in _TIERS:
            self._notes.left_out("service_tier", f"has no tier {tier[:40]}")
            return None
        return json_bytes.encode({"type": _TIERS[tier]})


def _list(items: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(items)


def _is_metadatum(value: object) -> bool:
    return isinstance(value, str) and _METADATUM.match(value) is not None
