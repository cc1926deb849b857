"""Whole answers of Converse: reading one, and the chat completion it is."""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Chunk
from n4n.core.dialects.bedrock import failures
from n4n.core.dialects.bedrock.chat_chunks import BROKEN_OFF, arguments_of, detail_of, finish_reason, made_id
from n4n.core.dialects.bedrock.counts import in_chat, reasoning_in, usage_of
from n4n.core.dialects.bedrock.events import Block, Object, Whole, read_whole, text_of, thought_of
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.completion import NOT_UTF8
from n4n.core.dialects.deltas import text_bytes
from n4n.core.errors import Failure


def read_answer(body: bytes) -> Whole | Failure:
    """A whole answer with status 200, read; a Failure where it is none."""
    body = body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    if not body:
        return garbled("the provider's answer was empty")
    if body[:1] == b"<":
        return garbled("the provider answered with a web page")
    whole = read_whole(body)
    if whole is None:
        return _why_not(body)
    if whole.stopReason in BROKEN_OFF:
        return garbled("the provider broke off its answer")
    return whole


def _why_not(body: bytes) -> Failure:
    try:
        body.decode()
        said = json_bytes.parse(body)
    except ValueError:
        return garbled(NOT_UTF8)
    return failures.failure_inside(said) or garbled("the provider's answer holds no message")


def as_chunk(whole: Whole, seed: bytes, model: str) -> Chunk:
    """A whole answer as the chunk that a chat's client gets; `model` is the client's word for it, `seed` makes its id."""
    message = _Message(whole.output.message.content)
    usage = usage_of(whole.usage, reasoning_in(whole.additionalModelResponseFields), whole.serviceTier)
    reason = finish_reason(whole.stopReason, calls=bool(message.calls))
    completion = {
        "id": made_id(seed),
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message.in_chat(), "logprobs": None, "finish_reason": reason}],
        "usage": None if usage is None else in_chat(usage),
    }
    payload = json_bytes.dump(completion)
    return Chunk(payload, content=message.speaks, finishes=True, usage=usage, output_bytes=message.size)


class _Message:
    """Blocks taken apart into what a chat's message holds."""

    def __init__(self, blocks: list[Block]) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[Object] = []
        self.calls: list[Object] = []
        self.size = 0
        self._place, self._last_kind = -1, ""
        for block in blocks:
            self._take(block)

    @property
    def speaks(self) -> bool:
        """Whether a client sees any output."""
        return bool(self._texts or self._thoughts or self._details or self.calls)

    def in_chat(self) -> Object:
        """The message of a chat completion."""
        extras = {"reasoning_content": "".join(self._thoughts), "reasoning_details": self._details, "tool_calls": self.calls}
        message: Object = {"role": "assistant", "content": "".join(self._texts) or None, "refusal": None}
        return message | {name: value for name, value in extras.items() if value}

    def _take(self, block: Block) -> None:
        if block.toolUse is not None:
            if block.toolUse.type is None:
                self._step("call")
                arguments = arguments_of(block.toolUse)
                function = {"name": block.toolUse.name or "", "arguments": arguments}
                self.calls.append({"id": block.toolUse.toolUseId or f"call_{len(self.calls)}", "type": "function", "function": function})
                self.size += text_bytes(arguments)
        elif block.reasoningContent is not None:
            text, signature = thought_of(block.reasoningContent)
            redacted = [block.reasoningContent.redactedContent] if block.reasoningContent.redactedContent else []
            detail = detail_of(text, signature, redacted, self._place + 1)
            if detail is not None:  # else it does not come back, and takes no place
                self._step("reasoning")
                self._details.append(detail)
            self._add(self._thoughts, text)
        elif text := text_of(block):
            self._step("text")
            self._add(self._texts, text)

    def _add(self, to: list[str], text: str) -> None:
        if text:
            to.append(text)
            self.size += text_bytes(text)

    def _step(self, kind: str) -> None:
        self._place += not (kind == self._last_kind == "text")
        self._last_kind = kind
