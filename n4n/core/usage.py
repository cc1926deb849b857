"""Usage: what a provider reports as tokens in one shape, whether to believe it, and a count of ours for when not.

Every dialect reads its numbers by `Told`, which remembers the first that cannot be a count, and fits them together by `fitted`.
What is doubted bears the reason; what cannot be believed at all is replaced by `settled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, cast

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import Usage

BYTES_PER_TOKEN = 4  # English prose in JSON, before anything was counted
ABSURD = 100_000_000  # tokens: far above every context window that exists
MISSING, ZERO, NEGATIVE, NO_NUMBER = "missing", "zero", "negative", "not_a_number"
ABSURDLY_MANY, INCONSISTENT = "absurd", "inconsistent"
DOUBTS: Final = (MISSING, ZERO, NEGATIVE, NO_NUMBER, ABSURDLY_MANY, INCONSISTENT)
_NOTHING: Mapping[str, object] = {}
_Tokens = Annotated[int, msgspec.Meta(ge=0)]


class Told:
    """Reads counts. `doubt`: why the first of them that was none is none; '': all were fine."""

    __slots__ = ("doubt",)

    def __init__(self, doubt: str = "") -> None:
        self.doubt = doubt

    def __repr__(self) -> str:
        return f"<Told {self.doubt or 'fine'}>"

    def count(self, value: object) -> int | None:
        """A number of tokens; None: it says none."""
        if type(value) is int and value >= 0:
            return value
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15  # neither NaN nor infinite
        if not number or value != int(cast(float, value)):
            self._doubted(NO_NUMBER)
        if not number:
            return None
        if cast(float, value) < 0:
            self._doubted(NEGATIVE)
            return None
        return int(cast(float, value))

    def some(self, value: object) -> int:
        """The same, 0 where it says none."""
        return self.count(value) or 0

    def within(self, part: int, whole: int) -> int:
        """A part, no larger than what it is a part of."""
        if part > whole:
            self._doubted(INCONSISTENT)
            return whole
        return part

    def adds_up(self, total: int | None, parts: int) -> None:
        """The total that was told beside the parts."""
        if total is not None and total != parts:
            self._doubted(INCONSISTENT)

    def _doubted(self, why: str) -> None:
        self.doubt = self.doubt or why


class Media(msgspec.Struct, frozen=True, gc=False):
    """Tokens of sounds and pictures in input and output; those of the input without what a cache kept of them."""

    audio_input: int = 0
    audio_output: int = 0
    image_input: int = 0
    image_output: int = 0


NO_MEDIA = Media()


def fitted(
    told: Told,
    prompt: int,
    completion: int,
    *,
    cached: int = 0,
    written: int = 0,
    hourly: int = 0,
    reasoning: int = 0,
    media: Media = NO_MEDIA,
    tier: str = "",
) -> Usage:
    """Parts that fit into their wholes, those that do not cut down and doubted. `hourly`: of what was written, the long-lived."""
    cached = told.within(cached, prompt)
    written = told.within(written, prompt - cached)
    hourly, reasoning = told.within(hourly, written), told.within(reasoning, completion)
    if media is NO_MEDIA:
        return Usage(prompt, completion, cached, written, reasoning, bool(told.doubt), hourly, told.doubt, tier)
    fresh, spoken = prompt - cached - written, completion - reasoning
    # How much of the media was cached is not always told, so that these may overlap with what was; no fault of who reports.
    audio_input = min(media.audio_input, fresh)
    image_input = min(media.image_input, fresh - audio_input)
    audio_output = told.within(media.audio_output, spoken)
    image_output = told.within(media.image_output, spoken - audio_output)
    return Usage(
        prompt,
        completion,
        cached,
        written,
        reasoning,
        bool(told.doubt),
        hourly,
        told.doubt,
        tier,
        audio_input,
        audio_output,
        image_input,
        image_output,
    )


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Tokens | None = None
    cache_write_tokens: _Tokens | None = None
    reasoning_tokens: _Tokens | None = None
    audio_tokens: object = None
    image_tokens: object = None
    cache_write_tokens_details: object = None


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


def read(raw: msgspec.Raw, tier: str = "") -> Usage | None:
    """As `normalise`, from the bytes, b'' where there are none; the usual shape is read at once."""
    if not raw:
        return None
    try:
        said = _READ(raw)
    except msgspec.DecodeError:
        return _read_loosely(raw, tier)
    prompt, completion, total = said.prompt_tokens, said.completion_tokens, said.total_tokens
    if said.prompt_cache_hit_tokens or said.cached_tokens or said.cache_write_tokens or total not in (None, prompt + completion):
        return _read_loosely(raw, tier)
    inner, outer = said.prompt_tokens_details, said.completion_tokens_details
    cached = written = reasoning = 0
    if inner is not None:
        if inner.audio_tokens or inner.image_tokens or inner.cache_write_tokens_details is not None:
            return _read_loosely(raw, tier)
        cached, written = inner.cached_tokens or 0, inner.cache_write_tokens or 0
    if outer is not None:
        if outer.audio_tokens or outer.image_tokens:
            return _read_loosely(raw, tier)
        reasoning = outer.reasoning_tokens or 0
    if cached + written > prompt or reasoning > completion:
        return _read_loosely(raw, tier)
    return Usage(prompt, completion, cached, written, reasoning, service_tier=tier)


def _read_loosely(raw: msgspec.Raw, tier: str) -> Usage | None:
    try:
        return normalise(json_bytes.parse(bytes(raw)), tier)
    except json_bytes.NotJson:
        return None


def normalise(raw: object, tier: str = "") -> Usage | None:
    """OpenAI's `usage` and its relatives' (DeepSeek's, Together's, OpenRouter's, xAI's); None where no count can be read.

    The parts fit together: nothing is negative, cached + written <= prompt, reasoning <= completion.
    """
    if not isinstance(raw, Mapping):
        return None
    told = Told()
    prompt, completion = told.count(raw.get("prompt_tokens")), told.count(raw.get("completion_tokens"))
    total = told.count(raw.get("total_tokens"))
    if prompt is None and completion is None:
        return None
    if prompt is None or completion is None:
        prompt = max(0, (total or 0) - (completion or 0)) if prompt is None else prompt
        completion = max(0, (total or 0) - prompt) if completion is None else completion
        if total is None:
            told.doubt = told.doubt or MISSING
    inner, outer = _inner(raw, "prompt_tokens_details"), _inner(raw, "completion_tokens_details")
    reasoning = told.some(outer.get("reasoning_tokens"))
    if reasoning and total == prompt + completion + reasoning:  # xAI counts reasoning beside the output, not inside
        completion += reasoning
    told.adds_up(total, prompt + completion)
    lifetimes = _inner(inner, "cache_write_tokens_details")
    return fitted(
        told,
        prompt,
        completion,
        cached=_first(told, inner.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cached_tokens")),
        written=_first(told, inner.get("cache_write_tokens"), raw.get("cache_write_tokens")),
        hourly=told.some(lifetimes.get("ttl_12h_tokens")),  # the longer of OpenAI's two lifetimes has the price of the longer one
        reasoning=reasoning,
        media=_media(told, inner, outer),
        tier=tier,
    )


def _media(told: Told, inner: Mapping[str, object], outer: Mapping[str, object]) -> Media:
    cached = _inner(inner, "cached_tokens_details")
    audio, image = told.some(inner.get("audio_tokens")), told.some(inner.get("image_tokens"))
    spoken, drawn = told.some(outer.get("audio_tokens")), told.some(outer.get("image_tokens"))
    if not (audio or image or spoken or drawn):
        return NO_MEDIA
    kept, shown = told.some(cached.get("audio_tokens")), told.some(cached.get("image_tokens"))
    return Media(max(0, audio - kept), spoken, max(0, image - shown), drawn)


def _first(told: Told, *places: object) -> int:
    for place in places:
        if count := told.count(place):
            return count
    return 0


def _inner(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    inner = raw.get(name)
    return cast(Mapping[str, object], inner) if isinstance(inner, Mapping) else _NOTHING


def estimate(body_bytes: int, output_bytes: int, input_ratio: float = BYTES_PER_TOKEN, output_ratio: float = BYTES_PER_TOKEN) -> Usage:
    """A guess from sizes: of the request's body, and of the output's text; the ratios are bytes to a token."""
    prompt, completion = -int(-body_bytes // input_ratio), -int(-output_bytes // output_ratio)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, estimated=True)


def settled(reported: Usage | None, counted: Usage, has_output: bool) -> Usage:
    """The provider's count where it can be believed, ours where not: a stream that broke off has told its input, but not its output."""
    if reported is None:
        return msgspec.structs.replace(counted, estimated=True, doubt=MISSING)
    why = doubt(reported, has_output)
    if not why:
        return reported
    believed_input = 0 < reported.prompt_tokens <= ABSURD
    believed_output = reported.completion_tokens <= ABSURD and (reported.completion_tokens > 0 or not has_output)
    if believed_input and believed_output:
        return msgspec.structs.replace(reported, estimated=True, doubt=why)
    if believed_input:
        return msgspec.structs.replace(
            reported,
            completion_tokens=counted.completion_tokens,
            reasoning_tokens=0,
            audio_output_tokens=0,
            image_output_tokens=0,
            estimated=True,
            doubt=why,
        )
    tier = reported.service_tier
    if believed_output:
        return Usage(
            counted.prompt_tokens,
            reported.completion_tokens,
            reasoning_tokens=reported.reasoning_tokens,
            estimated=True,
            doubt=why,
            service_tier=tier,
            audio_output_tokens=reported.audio_output_tokens,
            image_output_tokens=reported.image_output_tokens,
        )
    return msgspec.structs.replace(counted, estimated=True, doubt=why, service_tier=tier)


def suspect(usage: Usage | None, has_output: bool) -> bool:
    """Whether a reported usage is missing, does not add up, is zero beside output that we saw, or beyond what any model can do."""
    return usage is None or doubt(usage, has_output) != ""


def doubt(usage: Usage, has_output: bool) -> str:
    """Why it is suspect, a word of DOUBTS; '': it is not."""
    if usage.doubt:
        return usage.doubt
    if usage.completion_tokens == 0 and has_output:
        return ZERO
    if usage.completion_tokens > 0 and usage.prompt_tokens == 0:
        return ZERO
    return ABSURDLY_MANY if usage.prompt_tokens > ABSURD or usage.completion_tokens > ABSURD else ""
