"""Candidates of an answer as choices of a chat: texts, thoughts, calls, finish reasons, log probabilities; and what tokens they took.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse. Works on parsed JSON of any shape: what is not as
documented counts as absent.
"""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Usage
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.gemini import signatures
from n4n.core.errors import Failure, FailureClass
from n4n.core.service_tiers import tier_of
from n4n.core.usage import NO_MEDIA, Media, Told, fitted

Object = dict[str, object]

_FINISHES = {
    "STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length", "SAFETY": "content_filter", "RECITATION": "content_filter",
    "LANGUAGE": "content_filter", "BLOCKLIST": "content_filter", "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter", "ESCALATION": "content_filter", "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter", "IMAGE_RECITATION": "content_filter",
}  # fmt: skip
_BROKEN = frozenset(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "UNEXPECTED_TOOL_CALL"))
_NOT_YET = "FINISH_REASON_UNSPECIFIED"
_ACCOUNT_OFF = "PUP_LIMITED_DISABLED"  # for violations of the prohibited use policy


class Said:
    """What one candidate says in one event."""

    __slots__ = ("calls", "details", "size", "text", "thought")

    def __init__(self) -> None:
        self.text = self.thought = ""
        self.calls: list[Object] = []
        self.details: list[Object] = []
        self.size = 0  # bytes of text, thoughts and arguments

    @property
    def something(self) -> bool:
        """Whether a client would see output."""
        return bool(self.text or self.thought or self.calls)

    def members(self) -> Object:
        """The members of a delta; of calls without their indexes."""
        made: Object = {}
        if self.thought:
            made["reasoning_content"] = self.thought
        if self.text:
            made["content"] = self.text
        if self.calls:
            made["tool_calls"] = self.calls
        if self.details:
            made["reasoning_details"] = self.details
        return made


class Choice:
    """One choice over the events of an answer: it numbers its calls and signatures, and knows whether it has said anything."""

    __slots__ = ("_calls", "_details", "_seed", "finished", "opened", "spoke")

    def __init__(self, seed: str) -> None:
        self._seed = seed  # for ids of calls, which Gemini does not always give
        self._calls = self._details = 0
        self.opened = self.finished = self.spoke = False

    def read(self, candidate: Object) -> Said:
        """What this event adds."""
        said = Said()
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict):
                self._part(part, said)
        self.spoke |= said.something
        return said

    def _part(self, part: Object, said: Said) -> None:
        call, text, signature = part.get("functionCall"), part.get("text"), part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) and signature else None
        if isinstance(call, dict):
            self._call(call, signature, said)
            return
        text = text if isinstance(text, str) else ""
        said.size += text_bytes(text)
        if part.get("thought") is True:
            said.thought += text
        else:
            said.text += text
        if signature is not None:
            thought = part.get("thought") is True
            made = signatures.of_thought(text, signature, self._details) if thought else signatures.of_text(signature, self._details)
            self._detail(made, said)

    def _call(self, call: Object, signature: str | None, said: Said) -> None:
        args, name, given = call.get("args"), call.get("name"), call.get("id")
        arguments = json_bytes.dump(args).decode() if isinstance(args, dict) else "{}"
        call_id = given if isinstance(given, str) and given else f"call_{self._seed}_{self._calls}"
        function = {"name": name if isinstance(name, str) else "", "arguments": arguments}
        said.calls.append({"index": self._calls, "id": call_id, "type": "function", "function": function})
        said.size += len(arguments.encode())
        self._calls += 1
        if signature is not None:
            self._detail(signatures.of_call(signature, call_id, self._details), said)

    def _detail(self, made: Object, said: Said) -> None:
        said.details.append(made)
        self._details += 1

    def finish(self, candidate: Object) -> str | Failure | None:
        """The finish reason in a chat's words; None: it goes on. A Failure: the model broke off."""
        reason = candidate.get("finishReason")
        if not isinstance(reason, str) or not reason or reason == _NOT_YET or self.finished:
            return None
        if reason == _ACCOUNT_OFF:
            return garbled("the provider has disabled the account", FailureClass.AUTH)
        finish = _FINISHES.get(reason, "stop")
        if reason in _BROKEN or (reason not in _FINISHES and not self.spoke):
            return garbled("the provider broke off its answer")
        self.finished = True
        return "tool_calls" if finish == "stop" and self._calls else finish


def candidates_of(said: Object) -> list[tuple[int, Object]]:
    """The candidates of an event with the number of the choice that each is of."""
    listed = said.get("candidates")
    found = [candidate for candidate in listed if isinstance(candidate, dict)] if isinstance(listed, list) else []
    numbers = (candidate.get("index") for candidate in found)
    return [
        (number if type(number) is int and 0 <= number < 1000 else place, candidate)
        for place, (number, candidate) in enumerate(zip(numbers, found, strict=True))
    ]


def blocked(said: Object) -> Failure | None:
    """The prompt was refused: nothing was made of it."""
    feedback = said.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
    if not isinstance(reason, str) or not reason or reason == "BLOCKED_REASON_UNSPECIFIED":
        return None
    return Failure(FailureClass.CONTENT_POLICY, "the provider's content policy refused the request", 200, reason[:100])


def usage_of(said: Object) -> Usage | None:
    """`usageMetadata`: the prompt counts what was cached, the candidates do not count what was thought."""
    raw = said.get("usageMetadata")
    if not isinstance(raw, dict) or not raw:
        return None
    told = Told()
    asked, spoken, total = (told.count(raw.get(f"{what}TokenCount")) for what in ("prompt", "candidates", "total"))
    thought = told.some(raw.get("thoughtsTokenCount"))
    prompt = (asked or 0) + told.some(raw.get("toolUsePromptTokenCount"))
    if asked is None and total is None and not thought and spoken is None:
        return None
    return fitted(
        told,
        prompt,
        (spoken or 0) + thought,
        cached=told.some(raw.get("cachedContentTokenCount")),
        reasoning=thought,
        media=_media(told, raw),
        tier=tier_of(raw.get("trafficType")) or tier_of(raw.get("serviceTier")),
    )


def _media(told: Told, raw: Object) -> Media:
    """Tokens by modality; a cache's are among the prompt's."""
    prompt, cached, spoken = (_by_modality(told, raw.get(f"{what}TokensDetails")) for what in ("prompt", "cache", "candidates"))
    if not (prompt or spoken):
        return NO_MEDIA
    audio, image = (max(0, prompt.get(kind, 0) - cached.get(kind, 0)) for kind in ("AUDIO", "IMAGE"))
    return Media(audio, spoken.get("AUDIO", 0), image, spoken.get("IMAGE", 0))


def _by_modality(told: Told, details: object) -> dict[str, int]:
    """Of sounds and pictures; what a video, a document or a text takes costs what text costs."""
    found: dict[str, int] = {}
    for one in details if isinstance(details, list) else ():
        kind = one.get("modality") if isinstance(one, dict) else None
        if kind in ("AUDIO", "IMAGE") and (count := told.some(one.get("tokenCount"))):
            found[kind] = found.get(kind, 0) + count
    return found


def logprobs_of(candidate: Object) -> Object | None:
    """`logprobsResult` as a chat's `logprobs`."""
    result = candidate.get("logprobsResult")
    chosen = result.get("chosenCandidates") if isinstance(result, dict) else None
    if not isinstance(chosen, list) or not isinstance(result, dict):
        return None
    listed = result.get("topCandidates")
    tops = listed if isinstance(listed, list) else []
    content = []
    for place, token in enumerate(chosen):
        top = tops[place] if place < len(tops) else None
        others = top.get("candidates") if isinstance(top, dict) else None
        likely = [made for other in (others if isinstance(others, list) else []) if (made := _token(other)) is not None]
        made = _token(token)
        if made is not None:
            content.append({**made, "top_logprobs": likely})
    return {"content": content, "refusal": None}


def _token(raw: object) -> Object | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("token"), str):
        return None
    token, probability = raw["token"], raw.get("logProbability")
    known = probability if isinstance(probability, int | float) and not isinstance(probability, bool) else 0.0
    return {"token": token, "logprob": known, "bytes": list(token.encode(errors="surrogatepass"))}
