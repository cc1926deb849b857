"""A request to Messages: the client's own members where it speaks Messages, else its chat translated; then what the endpoint wants.

https://platform.claude.com/docs/en/api/messages. Nothing is left out silently: every member that does not go out is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import FEATURE_FIELDS, missing_features
from n4n.core.dialects.anthropic import native, thinking
from n4n.core.dialects.anthropic.chat_words import Format, Schema, decoded, given
from n4n.core.dialects.anthropic.events import SHAPE
from n4n.core.dialects.anthropic.native import DEFAULT_MAX_TOKENS
from n4n.core.dialects.anthropic.parts import Block, Notes, mark_for, thinned
from n4n.core.dialects.anthropic.schema import closed
from n4n.core.dialects.anthropic.tools import choice, is_forced, tools
from n4n.core.dialects.anthropic.turns import Talk, talk
from n4n.core.dialects.overlay import lay_over

Fields = dict[str, bytes]
BETAS = "anthropic_beta"  # how clouds spell the header of that name inside a body
CANNOT = frozenset(("n", "seed", "logprobs", "logit_bias", "penalties", "audio_input", "audio_output", "web_search"))  # of a chat
MOST_MARKS = 4
_NOTHING = (b"null", b"false", b"[]", b"{}", b'""', b"0", b"0.0")
_READ = frozenset(
    ("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "tools", "functions", "tool_choice",
     "function_call", "parallel_tool_calls", "stop", "temperature", "top_p", "top_k", "response_format", "reasoning_effort", "reasoning",
     "include_reasoning", "thinking", "user", "safety_identifier", "metadata", "service_tier", "cache_control", "prompt_cache_key",
     "prompt_cache_options", "prompt_cache_retention")
)  # fmt: skip
_STOP = msgspec.json.Decoder(str | list[str] | None)
_NUMBER = msgspec.json.Decoder(float | None)
_WORD = msgspec.json.Decoder(str | None)
_FORMAT = msgspec.json.Decoder(Format | None)
_SCHEMA = msgspec.json.Decoder(Schema)
_OBJECT = msgspec.json.Decoder(dict[str, object] | None)
_TIERS = {"auto": "auto", "priority": "auto", "default": "standard_only", "standard_only": "standard_only"}
_IN_WORDS = frozenset(("json_object", "json_schema"))  # features that can be asked for in the prompt, if not better
_ONLY_JSON = "Answer with one JSON object and nothing else."
_JSON_LIKE = "Answer with JSON and nothing else. It has to conform to this JSON schema: "


def members(request: ChatRequest, endpoint: Endpoint) -> tuple[Fields, list[str]]:
    """The members of the body for this endpoint, and what a client should know. Raises MalformedRequest for a chat nobody can read."""
    notes = Notes(endpoint.id)
    if request.native is not None and request.native.dialect == SHAPE:
        fields = native.members(request, request.native, endpoint, notes)
    else:
        fields = _Chat(request, endpoint, notes).members()
    fields["model"] = json_bytes.encode(endpoint.upstream_model)
    lay_over(fields, endpoint.body)
    return fields, notes.warnings


class _Chat:
    """One chat on its way into Messages."""

    def __init__(self, request: ChatRequest, endpoint: Endpoint, notes: Notes) -> None:
        self._request, self._endpoint, self._notes = request, endpoint, notes
        self._fields: Fields = dict(request.fields)

    def members(self) -> Fields:
        """Everything but the model."""
        self._leave_out()
        most = self._max_tokens()
        told = talk(self._fields["messages"], self._notes)
        chosen, offered = choice(self._fields, tools(self._fields, self._notes), self._notes)
        config: Block = {}
        self._format(told, config)
        thought = self._thinking(told, most, config, forced=is_forced(chosen))
        made: dict[str, object] = {
            "max_tokens": most,
            "system": _system(told),
            "messages": [{"role": turn.role, "content": _content(turn.content)} for turn in told.turns],
            "tools": offered or None,
            "tool_choice": chosen,
            "thinking": thought,
            "output_config": config or None,
            "stop_sequences": self._stop(),
            **self._sampling(thought),
            "metadata": self._user(),
            "service_tier": self._tier(),
            "cache_control": self._marks(told, offered),
            "stream": True if self._request.stream else None,
        }
        return {name: json_bytes.encode(value) for name, value in made.items() if value is not None}

    def _leave_out(self) -> None:
        endpoint, notes = self._endpoint, self._notes
        for feature in sorted(missing_features(self._request.features, endpoint.supports) - _IN_WORDS):
            for name in FEATURE_FIELDS.get(feature, ()):
                if self._fields.pop(name, None) is not None:
                    notes.left_out(name, f"does not support {feature}")
        for name, raw in self._fields.items():
            if name not in _READ and bytes(raw) not in _NOTHING and not (name == "n" and bytes(raw) == b"1"):
                notes.left_out(name)

    def _max_tokens(self) -> int:
        asked, most = self._request.max_output_tokens, self._endpoint.max_output_tokens
        if asked is None:
            if most is None:
                self._notes.say(f"max_tokens was set to {DEFAULT_MAX_TOKENS}: nothing says how much endpoint {self._endpoint.id} writes")
            return most or DEFAULT_MAX_TOKENS
        if most is not None and asked > most:
            self._notes.say(f"max_tokens was lowered to {most}, the most that endpoint {self._endpoint.id} writes")
            return most
        return asked

    def _format(self, told: Talk, config: Block) -> None:
        wanted = decoded(self._fields.get("response_format", b"null"), _FORMAT, "response_format")
        if wanted is None or wanted.type not in _IN_WORDS:
            return
        words = _ONLY_JSON
        if wanted.type == "json_schema":
            schema = closed(decoded(bytes(wanted.json_schema) or b"null", _SCHEMA, "response_format.json_schema").schema)
            if self._endpoint.supports is None or "json_schema" in self._endpoint.supports:
                config["format"] = {"type": "json_schema", "schema": schema}
                return
            words = _JSON_LIKE + json_bytes.encode(schema).decode()
        told.system.append({"type": "text", "text": words})
        self._notes.say(f"response_format is asked for in words: endpoint {self._endpoint.id} has no {wanted.type}")

    def _thinking(self, told: Talk, most: int, config: Block, *, forced: bool) -> object:
        """`thinking`; the client's own goes as it came. Reasoning yields where Claude refuses it beside something else."""
        own = self._fields.get("thinking", b"null")
        if bytes(own) != b"null":
            return msgspec.Raw(own)
        wish = thinking.wish(self._fields)
        adaptive = not takes_budgets(self._endpoint)
        if wish.wants and forced:
            self._notes.left_out("reasoning", "does not reason where a tool call is forced")
            return None
        if wish.wants and not adaptive and told.unsigned_calls:
            self._notes.left_out("reasoning", "does not reason on between calls that it did not make")
            return None
        thought, effort = thinking.thinking(wish, most, adaptive=adaptive)
        if effort is not None:
            config["effort"] = effort
        if wish.wants and thought is None:
            self._notes.left_out("reasoning", f"needs more than {thinking.LEAST_BUDGET} max_tokens for it")
        return thought

    def _sampling(self, thought: object) -> dict[str, object]:
        """Numbers that shape the choice of words, where the endpoint and the rest of the request admit them."""
        said = {name: decoded(self._fields.get(name, b"null"), _NUMBER, name) for name in ("temperature", "top_p", "top_k")}
        found: dict[str, object] = {name: number for name, number in said.items() if number is not None}
        if thought is not None and thought != {"type": "disabled"}:
            return self._without({name: number for name, number in found.items() if number != 1}, "takes none while it reasons")
        if said["temperature"] is not None:
            if said["temperature"] > 1:
                found["temperature"] = 1
                self._notes.say("temperature was lowered to 1, the most that Messages takes")
            if found.pop("top_p", 1) != 1:
                self._notes.left_out("top_p", "takes only one of temperature and top_p")
        return {name: int(cast(float, number)) if name == "top_k" else number for name, number in found.items()}

    def _without(self, found: Mapping[str, object], why: str) -> dict[str, object]:
        for name in found:
            self._notes.left_out(name, why)
        return {}

    def _stop(self) -> list[str] | None:
        said = decoded(self._fields.get("stop", b"null"), _STOP, "stop")
        words = [said] if isinstance(said, str) else said or []
        kept = [word for word in words if word.strip()]
        if len(kept) < len(words):
            self._notes.left_out("a blank stop sequence", "takes none")
        return kept or None

    def _user(self) -> Block | None:
        metadata = decoded(self._fields.get("metadata", b"null"), _OBJECT, "metadata") or {}
        words = [decoded(self._fields.get(name, b"null"), _WORD, name) for name in ("safety_identifier", "user")]
        user = next((word for word in (*words, metadata.pop("user_id", None)) if word), None)
        if metadata:
            self._notes.left_out("metadata")
        return None if user is None else {"user_id": user}

    def _tier(self) -> str | None:
        tier = decoded(self._fields.get("service_tier", b"null"), _WORD, "service_tier")
        if tier is not None and tier not in _TIERS:
            self._notes.left_out("service_tier", f"has no tier {tier[:40]}")
        return _TIERS.get(tier or "")

    def _marks(self, told: Talk, offered: list[Block]) -> msgspec.Raw | None:
        """The mark on the whole, and at most four in all; OpenAI's key asks for caching where nothing is marked."""
        marked = [*offered, *told.system, *(block for turn in told.turns for block in turn.content)]
        own = msgspec.Raw(self._fields.get("cache_control", b"null"))
        whole = own if given(own) else None
        surplus = thinned(marked, MOST_MARKS - (whole is not None))
        if surplus:
            self._notes.say(f"{surplus} cache_control marks were left out: Messages takes {MOST_MARKS}")
        keyed = any(bytes(self._fields.get(name, b"null")) not in _NOTHING for name in ("prompt_cache_key", "prompt_cache_retention"))
        if whole is None and keyed and not any("cache_control" in block for block in marked):
            return mark_for(decoded(self._fields.get("prompt_cache_retention", b"null"), _WORD, "prompt_cache_retention"))
        return whole


def takes_budgets(endpoint: Endpoint) -> bool:
    """Whether its model is told a budget for reasoning instead of deciding itself.

    The catalog has no word for this; it knows which models let an answer be begun for them, and those are the ones before
    adaptive thinking, which came when that went (Claude 4.6).
    """
    return endpoint.supports is not None and "assistant_prefill" in endpoint.supports


def _system(told: Talk) -> object:
    return _content(told.system) if told.system else None


def _content(blocks: list[Block]) -> object:
    """One plain text is a string, which is what it was."""
    only = blocks[0] if len(blocks) == 1 else {}
    return only["text"] if only.keys() == {"type", "text"} else blocks
