"""Usage: what a provider reports as tokens in one shape, whether to believe it, and an estimate for when not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import Usage

BYTES_PER_TOKEN = 4  # English prose in JSON; a calibrated ratio per model may replace it
_ABSURD = 100_000_000  # tokens: far above every context window that exists
_Tokens = Annotated[int, msgspec.Meta(ge=0)]
_NOTHING: Mapping[str, object] = {}


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Tokens | None = None
    cache_write_tokens: _Tokens | None = None
    reasoning_tokens: _Tokens | None = None


class _Reported(msgspec.Struct, gc=False):
    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    total_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: object = None
    cached_tokens: object = None
    cache_write_tokens: object = None


_READ = msgspec.json.Decoder(_Reported).decode


def read(raw: msgspec.Raw) -> Usage | None:
    """As `normalise`, from the bytes, b'' where there are none; the usual shape is read at once."""
    if not raw:
        return None
    try:
        said = _READ(raw)
    except msgspec.DecodeError:
        return _read_loosely(raw)
    if said.prompt_cache_hit_tokens or said.cached_tokens or said.cache_write_tokens:
        return _read_loosely(raw)
    prompt, completion = said.prompt_tokens, said.completion_tokens
    inner, outer = said.prompt_tokens_details, said.completion_tokens_details
    cached = written = reasoning = 0
    if inner is not None:
        cached = min(inner.cached_tokens or 0, prompt)
        written = min(inner.cache_write_tokens or 0, prompt - cached)
    if outer is not None and outer.reasoning_tokens:
        reasoning = outer.reasoning_tokens
        if said.total_tokens == prompt + completion + reasoning:  # see `normalise`
            completion += reasoning
        reasoning = min(reasoning, completion)
    return Usage(prompt, completion, cached, written, reasoning)


def _read_loosely(raw: msgspec.Raw) -> Usage | None:
    try:
        return normalise(json_bytes.parse(bytes(raw)))
    except json_bytes.NotJson:
        return None


def normalise(raw: object) -> Usage | None:
    """OpenAI's `usage` and its relatives' (DeepSeek's, Together's, OpenRouter's, xAI's); None where no count can be read.

    The parts fit together: nothing is negative, cached + written <= prompt, reasoning <= completion.
    """
    if not isinstance(raw, Mapping):
        return None
    prompt, completion = _count(raw.get("prompt_tokens")), _count(raw.get("completion_tokens"))
    total = _count(raw.get("total_tokens"))
    if prompt is None and completion is None:
        return None
    if prompt is None:
        prompt = max(0, (total or 0) - (completion or 0))
    if completion is None:
        completion = max(0, (total or 0) - prompt)
    reasoning = _count(_inner(raw, "completion_tokens_details").get("reasoning_tokens")) or 0
    if reasoning and total == prompt + completion + reasoning:  # xAI counts reasoning beside the output, not inside
        completion += reasoning
    cached, written = _cached(raw), _written(raw)
    cached = min(cached, prompt)
    return Usage(prompt, completion, cached, min(written, prompt - cached), min(reasoning, completion))


def _cached(raw: Mapping[str, object]) -> int:
    details = _inner(raw, "prompt_tokens_details")
    for place in (details.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cached_tokens")):
        if count := _count(place):
            return count
    return 0


def _written(raw: Mapping[str, object]) -> int:
    return _count(_inner(raw, "prompt_tokens_details").get("cache_write_tokens")) or _count(raw.get("cache_write_tokens")) or 0


def _inner(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    inner = raw.get(name)
    return cast(Mapping[str, object], inner) if isinstance(inner, Mapping) else _NOTHING


def _count(value: object) -> int | None:
    if type(value) is int:
        return max(0, value)
    if isinstance(value, float) and value == value and abs(value) < 1e15:  # not NaN, not infinite
        return max(0, int(value))
    return None


def estimate(body_bytes: int, output_bytes: int) -> Usage:
    """A guess from sizes: of the request's body, and of the output's text."""
    return Usage(prompt_tokens=-(-body_bytes // BYTES_PER_TOKEN), completion_tokens=-(-output_bytes // BYTES_PER_TOKEN), estimated=True)


def settled(reported: Usage | None, counted: Usage, has_output: bool) -> Usage:
    """The provider's count where it can be believed, ours where not: a stream that broke off has told its input, but not its output."""
    if reported is None or not suspect(reported, has_output):
        return counted if reported is None else reported
    if 0 < reported.prompt_tokens <= _ABSURD:
        return msgspec.structs.replace(reported, completion_tokens=counted.completion_tokens, reasoning_tokens=0, estimated=True)
    if 0 < reported.completion_tokens <= _ABSURD:
        output, reasoning = reported.completion_tokens, reported.reasoning_tokens
        return Usage(counted.prompt_tokens, output, reasoning_tokens=reasoning, estimated=True)
    return counted


def suspect(usage: Usage | None, has_output: bool) -> bool:
    """Whether a reported usage is missing, zero beside output that we saw, or beyond what any model can do."""
    if usage is None:
        return True
    if has_output and usage.completion_tokens == 0:
        return True
    if usage.completion_tokens > 0 and usage.prompt_tokens == 0:
        return True
    return usage.prompt_tokens > _ABSURD or usage.completion_tokens > _ABSURD
