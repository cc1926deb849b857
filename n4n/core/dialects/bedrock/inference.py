"""`inferenceConfig`: how much may be written, how words are drawn, where to stop.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.dialects.bedrock.models import Traits
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.words import decoded

_STOP = msgspec.json.Decoder(str | list[str] | None)
_NUMBER = msgspec.json.Decoder(float | None)
_MOST_STOPS = 2500


def inference_config(
    fields: Mapping[str, bytes], request: ChatRequest, endpoint: Endpoint, traits: Traits, own: Mapping[str, object], notes: Notes
) -> bytes | None:
    """None: nothing is asked. `own` are the model's own fields, some of which exclude some of these. Raises MalformedRequest."""
    config: dict[str, object] = {}
    limit = _limit(request, endpoint, traits, notes)
    if limit is not None:
        config["maxTokens"] = limit
    config |= _sampling(fields, traits, own, notes)
    if _unbounded(traits, own) and config:
        for name in list(config):
            notes.left_out({"maxTokens": "max_tokens", "topP": "top_p"}.get(name, name), "takes none at its highest effort of reasoning")
        config = {}
    stops = _stops(fields, traits, notes)
    if stops:
        config["stopSequences"] = stops
    return json_bytes.dump(config) if config else None


def _limit(request: ChatRequest, endpoint: Endpoint, traits: Traits, notes: Notes) -> int | None:
    asked, most = request.max_output_tokens, endpoint.max_output_tokens
    if asked is None:
        return None
    if most is not None and asked > most:
        notes.changed(f"max_tokens was lowered to {most}", "writes no more")
        return most
    if asked < traits.least_max_tokens:
        notes.changed(f"max_tokens was raised to {traits.least_max_tokens}", "takes no less")
        return traits.least_max_tokens
    return asked


def _sampling(fields: Mapping[str, bytes], traits: Traits, own: Mapping[str, object], notes: Notes) -> dict[str, object]:
    temperature = decoded(fields.get("temperature"), _NUMBER, "temperature")
    top_p = decoded(fields.get("top_p"), _NUMBER, "top_p")
    said = {name: value for name, value in (("temperature", temperature), ("top_p", top_p)) if value is not None}
    why = None if traits.samples else "takes no sampling parameters"
    if why is None and thinks(own):
        said = {name: value for name, value in said.items() if value != 1}
        why = "takes none while it reasons"
    if why is not None:
        for name in said:
            notes.left_out(name, why)
        return {}
    config: dict[str, object] = {}
    if temperature is not None:
        config["temperature"] = min(temperature, 1.0)
        if temperature > 1:
            notes.changed("temperature was lowered to 1", "takes no more")
    if top_p is not None and traits.samples_one and temperature is not None:
        notes.left_out("top_p", "takes only one of temperature and top_p")
    elif top_p is not None:
        config["topP"] = top_p
    return config


def thinks(own: Mapping[str, object]) -> bool:
    """Whether Claude is asked to reason, which goes with no sampling."""
    thought = own.get("thinking")
    return isinstance(thought, dict) and thought.get("type") in ("enabled", "adaptive")


def _unbounded(traits: Traits, own: Mapping[str, object]) -> bool:
    config = own.get("reasoningConfig")
    return traits.most_effort_unbounded and isinstance(config, dict) and config.get("maxReasoningEffort") == "high"


def _stops(fields: Mapping[str, bytes], traits: Traits, notes: Notes) -> list[str]:
    said = decoded(fields.get("stop"), _STOP, "stop")
    words = [said] if isinstance(said, str) else said or []
    kept = [word for word in words if word.strip()]
    if kept and not traits.stops:
        notes.left_out("stop", "takes no stop sequences")
        return []
    if len(kept) < len(words):
        notes.left_out("a blank stop sequence", "takes none")
    if len(kept) > _MOST_STOPS:
        notes.changed(f"stop was shortened to {_MOST_STOPS} texts", "takes no more")
    return kept[:_MOST_STOPS]
