"""Choices of a chat as choices of a text completion, chunk by chunk: the text, why it ended, and the older shape of logprobs."""

from __future__ import annotations

from typing import cast

from n4n.core import json_bytes

Object = dict[str, object]
_FINISHES = {"tool_calls": "stop", "function_call": "stop"}


class TextChoices:
    """Of one answer: offsets of tokens count from the beginning of a choice's text."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[object, int] = {}

    def converted(self, payload: bytes) -> bytes:
        """A completion, or a chunk of one; its other members stay as they are."""
        try:
            known = json_bytes.loose_members(payload)
            choices = json_bytes.parse(known.get("choices", b"[]"))
        except json_bytes.NotJson:
            return payload
        told = [self._choice(one) for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
        return json_bytes.join({**known, "object": b'"text_completion"', "choices": json_bytes.dump(told)}.items())

    def _choice(self, choice: Object) -> Object:
        inner = choice.get("delta", choice.get("message"))
        said = cast(Object, inner) if isinstance(inner, dict) else {}
        text = "".join(words for words in (said.get("content"), said.get("refusal")) if isinstance(words, str))
        index, reason = choice.get("index"), choice.get("finish_reason")
        index = index if type(index) is int else 0
        begin = self._offsets.get(index, 0)
        self._offsets[index] = begin + len(text)
        return {
            "text": text,
            "index": index,
            "logprobs": _logprobs(choice.get("logprobs"), begin),
            "finish_reason": _FINISHES.get(reason, reason) if isinstance(reason, str) else None,
        }


def _logprobs(said: object, begin: int) -> Object | None:
    content = said.get("content") if isinstance(said, dict) else None
    entries = [cast(Object, one) for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    if not entries:
        return None
    tokens = [str(one.get("token", "")) for one in entries]
    offsets = [begin + sum(map(len, tokens[:place])) for place in range(len(tokens))]
    return {
        "tokens": tokens,
        "token_logprobs": [one.get("logprob") for one in entries],
        "top_logprobs": [_top(one.get("top_logprobs")) for one in entries],
        "text_offset": offsets,
    }


def _top(said: object) -> Object:
    found = [cast(Object, one) for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    return {str(one.get("token", "")): one.get("logprob") for one in found}
