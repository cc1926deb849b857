"""One answer: responses of Gemini's, parsed, as chunks of a chat, or one response as a whole completion."""

from __future__ import annotations

import hashlib
from datetime import datetime

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Comment, Usage
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.gemini.candidates import Choice, Object, blocked, candidates_of, logprobs_of, usage_of
from n4n.core.errors import Failure

_COMMENT = Comment()


class Answer:
    """What is known of an answer so far, beside what was asked."""

    __slots__ = ("_choices", "_head", "_request")

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._choices: dict[int, Choice] = {}
        self._head: Object | None = None  # id, object, created and model, from the first response on

    @property
    def complete(self) -> bool:
        """Every choice that was seen has finished."""
        return bool(self._choices) and all(choice.finished for choice in self._choices.values())

    def chunk(self, said: Object) -> Chunk | Comment | Failure:
        """What one response of a stream adds."""
        head = self._head or self._begun(said, "chat.completion.chunk")
        refused = blocked(said)
        if refused is not None:
            return refused
        choices: list[Object] = []
        size, content, finishes = 0, False, False
        for number, candidate in candidates_of(said):
            choice = self._choice(number, head)
            more = choice.read(candidate)
            finish = choice.finish(candidate)
            if isinstance(finish, Failure):
                return finish
            delta = more.members()
            if not choice.opened:
                delta = {"role": "assistant", **(delta or {"content": ""})}
                choice.opened = True
            size, content, finishes = size + more.size, content or more.something, finishes or finish is not None
            logprobs = logprobs_of(candidate)
            if delta or finish is not None or logprobs is not None:
                choices.append({"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": finish})
        usage = usage_of(said)
        if not choices and usage is None:
            return _COMMENT
        payload = json_bytes.dump({**head, "choices": choices})
        return Chunk(payload, content, finishes, bool(choices), usage, size, finishes and self._open())

    def completion(self, said: Object) -> Chunk | Failure:
        """One response that is the whole answer."""
        head = self._begun(said, "chat.completion")
        refused = blocked(said)
        if refused is not None:
            return refused
        choices: list[Object] = []
        size, content = 0, False
        for number, candidate in candidates_of(said):
            choice = self._choice(number, head)
            spoken = choice.read(candidate)
            finish = choice.finish({"finishReason": "OTHER", **candidate})  # a whole answer without a reason has come to its end
            if isinstance(finish, Failure):
                return finish
            for call in spoken.calls:
                del call["index"]
            message = {"role": "assistant", "content": None, "refusal": None, **spoken.members()}
            size, content = size + spoken.size, content or spoken.something
            choices.append({"index": number, "message": message, "logprobs": logprobs_of(candidate), "finish_reason": finish})
        if not choices:
            return garbled("the provider's answer holds no completion")
        usage = usage_of(said)
        payload = json_bytes.dump({**head, "choices": choices, "usage": spelled(usage)})
        return Chunk(payload, content, finishes=True, usage=usage, output_bytes=size)

    def _choice(self, number: int, head: Object) -> Choice:
        if number not in self._choices:
            seed = hashlib.sha256(f"{head['id']}:{number}".encode(errors="replace")).hexdigest()[:16]
            self._choices[number] = Choice(seed)
        return self._choices[number]

    def _begun(self, said: Object, kind: str) -> Object:
        name, model = said.get("responseId"), said.get("modelVersion")
        if not isinstance(name, str) or not name:  # the same words in a later turn are another answer: the request has grown
            name = "gen-" + hashlib.sha256(b"%d %b" % (self._request.body_bytes, json_bytes.dump(said))).hexdigest()[:24]
        model = model if isinstance(model, str) and model else self._request.model
        self._head = {"id": name, "object": kind, "created": _seconds(said.get("createTime")), "model": model}
        return self._head

    def _open(self) -> bool:
        finished = sum(choice.finished for choice in self._choices.values())
        return finished < max(self._request.n, len(self._choices))


def spelled(usage: Usage | None) -> Object | None:
    """Usage in a chat's words."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _seconds(moment: object) -> int:
    """Vertex tells when an answer was made; AI Studio does not, and nothing here has a clock."""
    try:
        return int(datetime.fromisoformat(moment).timestamp()) if isinstance(moment, str) else 0
    except (ValueError, OverflowError):
        return 0
