"""Deeper questions, asked rarely: does an endpoint obey a system prompt, and a JSON format? Fixed prompts, answers judged by rule.

A capability's score is a moving average over the last few checks of one endpoint: 1 while all pass. It is told beside the endpoint's
health and changes no weight: an endpoint that overlooks system prompts is well for all who send none.
"""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint, Model
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import missing_features, read_chat
from n4n.core.dialects.kinds import EMBEDDINGS

SYSTEM_PROMPT, JSON_OBJECT = "system_prompt", "json_object"  # capabilities that are checked
WEIGHT = 0.5  # of the newest check in a score
_WORD, _LURE = "kumquat", "paris"
_KEY, _NUMBER = "answer", 42
_QUESTIONS: dict[str, dict[str, object]] = {
    SYSTEM_PROMPT: {
        "messages": [
            {"role": "system", "content": f"Whatever you are asked, answer with the one word {_WORD} and nothing else."},
            {"role": "user", "content": "What is the capital of France?"},
        ]
    },
    JSON_OBJECT: {
        "messages": [{"role": "user", "content": f'Answer with one JSON object whose only member is "{_KEY}", of the value {_NUMBER}.'}],
        "response_format": {"type": "json_object"},
    },
}


class Check(msgspec.Struct, frozen=True):
    """One question to one endpoint."""

    capability: str
    request: ChatRequest


def checks_of(model: Model, endpoint: Endpoint) -> list[Check]:
    """What an endpoint is asked: a JSON format only where it claims one; nothing where it makes embeddings alone."""
    supports, policy = endpoint.supports, model.probe
    if supports is not None and EMBEDDINGS in supports:
        return []
    found = []
    for capability, question in _QUESTIONS.items():
        body: dict[str, object] = {"model": model.id, **question, policy.param: policy.checks_max_tokens}
        if policy.effort is not None:
            body["reasoning_effort"] = policy.effort
        request = read_chat(json_bytes.encode(body))
        if not missing_features(request.features, supports):
            found.append(Check(capability, request))
    return found


def passes(capability: str, answer: bytes) -> bool | None:
    """Whether a whole answer, in the shape of a chat completion, obeys. None: it was cut off before it said anything."""
    text = said(answer)
    if text is None or not text.strip():
        return None
    if capability == SYSTEM_PROMPT:
        return _WORD in text.lower() and _LURE not in text.lower()
    try:
        told = json_bytes.parse(text.strip().encode())
    except (json_bytes.NotJson, UnicodeEncodeError):
        return False
    return isinstance(told, dict) and told.get(_KEY) == _NUMBER


def said(answer: bytes) -> str | None:
    """The text of a completion's first choice; None: there is none."""
    match json_bytes.parse(answer):
        case {"choices": [{"message": {"content": str(text)}}, *_]}:
            return text
    return None


def scored(before: float | None, passed: bool) -> float:
    """The capability's score after one more check, in [0, 1]."""
    new = 1.0 if passed else 0.0
    return new if before is None else before + WEIGHT * (new - before)
