"""Events of ConverseStream in the words of chat completions: text, calls, reasoning and what signs it, the finish reason, usage.

Reasoning that has to come back unchanged rides in `reasoning_details` beside its text, one whole entry per block when the block
has ended; `index` is its place among the blocks that will come back, consecutive text counted once. Converse tells no id and no
model: the id is made of the first frame's bytes, which hold random padding, the model is the client's word for it.
"""

from __future__ import annotations

import hashlib

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.bedrock.counts import in_chat
from n4n.core.dialects.bedrock.events import CLAUDES, OWN, Block, Said, Thought, ToolUse, joined_base64, text_of, thought_of
from n4n.core.dialects.deltas import text_bytes

_FINISHES = {
    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "guardrail_intervened": "content_filter", "content_filtered": "content_filter",
}  # fmt: skip
BROKEN_OFF = frozenset(("malformed_model_output", "malformed_tool_use"))  # stop reasons that are failures


def finish_reason(stop_reason: str | None, *, calls: bool) -> str:
    """OpenAI's word; a reason nobody knows is a stop, and a stop with calls is a call."""
    reason = _FINISHES.get(stop_reason or "", "stop")
    return "tool_calls" if calls and reason == "stop" else reason


def detail_of(text: str, signature: str, redacted: list[str], place: int) -> dict[str, object] | None:
    """The entry of `reasoning_details` that a block of reasoning becomes; None: nothing of it has to come back.

    Only Claude signs, and its signatures hold at Anthropic and on every cloud alike ("`signature` values are compatible across
    platforms", https://platform.claude.com/docs/en/build-with-claude/extended-thinking), so they bear Anthropic's format. Of what
    is encrypted nobody says that, and other vendors' models send it too: it comes back to Bedrock alone.
    """
    if signature:
        return {"type": "reasoning.text", "text": text, "signature": signature, "format": CLAUDES, "index": place}
    if redacted:
        return {"type": "reasoning.encrypted", "data": joined_base64(redacted), "format": OWN, "index": place}
    return None


def arguments_of(call: ToolUse) -> str:
    """The arguments of a whole call: JSON as it came."""
    raw = bytes(call.input)
    return "{}" if raw == b"null" else raw.decode()


def made_id(seed: bytes) -> str:
    """An id for an answer that has none."""
    return f"chatcmpl-{hashlib.sha256(seed).hexdigest()[:24]}"


class _Open:
    """One block while it is told."""

    __slots__ = ("before", "call", "place", "redacted", "signature", "spoke", "thought")

    def __init__(self, place: int, before: str | None = None) -> None:
        self.place = place
        self.before = before  # of reasoning: the kind of block before it; it takes a place only if it has to come back
        self.call: int | None = None
        self.thought: list[str] = []
        self.signature: list[str] = []
        self.redacted: list[str] = []
        self.spoke = False  # some of the call's arguments have come


class ChatWriter:
    """Events in, payloads of `chat.completion.chunk` out, for one stream. The first event makes the chunk with the role."""

    __slots__ = ("_blocks", "_calls", "_head", "_last_kind", "_model", "_places")

    def __init__(self, model: str) -> None:
        self._model = model
        self._head = b""
        self._blocks: dict[int, _Open] = {}
        self._calls = 0
        self._places = -1
        self._last_kind = ""

    def write(self, name: str, said: Said, seed: bytes) -> list[Chunk]:
        """The chunks that one event makes; `seed` are its bytes."""
        opening: list[Chunk] = []
        if not self._head:
            told = (made_id(seed), self._model)
            self._head = b'{"id":%b,"object":"chat.completion.chunk","created":0,"model":%b,"choices":[' % tuple(map(_dump, told))
            opening.append(Chunk(self._payload(b'"role":"assistant","content":""')))
        match name:
            case "contentBlockStart" if said.start is not None and said.start.toolUse is not None:
                return opening + self._start(said.contentBlockIndex, said.start.toolUse)
            case "contentBlockDelta" if said.delta is not None:
                return opening + self._delta(said.contentBlockIndex, said.delta)
            case "contentBlockStop":
                return opening + self._stop(said.contentBlockIndex)
            case "messageStop":
                return opening + self._finish(said.stopReason)
        return opening

    def usage(self, usage: Usage) -> Chunk:
        """The chunk without choices that tells usage."""
        return Chunk(b'%b],"usage":%b}' % (self._head, json_bytes.encode(in_chat(usage))), choices=False, usage=usage)

    def _start(self, index: int, call: ToolUse) -> list[Chunk]:
        if call.type is not None:  # the provider's own tool, which it has run itself
            self._blocks[index] = _Open(-1)
            return []
        opened = self._blocks[index] = self._opened("call")
        opened.call, self._calls = self._calls, self._calls + 1
        function = {"name": call.name or "", "arguments": ""}
        return [self._call({"index": opened.call, "id": call.toolUseId or f"call_{opened.call}", "type": "function", "function": function})]

    def _opened(self, kind: str) -> _Open:
        self._places += not (kind == self._last_kind == "text")
        opened = _Open(self._places, self._last_kind if kind == "reasoning" else None)
        self._last_kind = kind
        return opened

    def _delta(self, index: int, delta: Block) -> list[Chunk]:
        opened = self._blocks.get(index)
        if delta.toolUse is not None:
            piece = _piece(delta.toolUse)
            if opened is None or opened.call is None or not piece:
                return []
            opened.spoke = True
            return [self._call({"index": opened.call, "function": {"arguments": piece}}, text_bytes(piece))]
        text = text_of(delta)
        if opened is None and (text or delta.reasoningContent is not None):
            opened = self._blocks[index] = self._opened("text" if delta.reasoningContent is None else "reasoning")
        if opened is not None and delta.reasoningContent is not None:
            return self._think(opened, delta.reasoningContent)
        return [self._text("content", text)] if text else []

    def _think(self, opened: _Open, thought: Thought) -> list[Chunk]:
        text, signature = thought_of(thought)
        opened.thought.append(text)
        opened.signature.append(signature)
        if thought.redactedContent:
            opened.redacted.append(thought.redactedContent)
        return [self._text("reasoning_content", text)] if text else []

    def _stop(self, index: int) -> list[Chunk]:
        opened = self._blocks.pop(index, None)
        if opened is None:
            return []
        if opened.call is not None and not opened.spoke:
            return [self._call({"index": opened.call, "function": {"arguments": "{}"}}, 2)]
        if opened.before is None:
            return []
        detail = detail_of("".join(opened.thought), "".join(opened.signature), opened.redacted, opened.place)
        if detail is None:
            self._places, self._last_kind = self._places - 1, opened.before
            return []
        return [Chunk(self._payload(b'"reasoning_details":[%b]' % _dump(detail)), content=True)]

    def _finish(self, stop_reason: str | None) -> list[Chunk]:
        chunks = [chunk for index in list(self._blocks) for chunk in self._stop(index)]
        reason = json_bytes.encode(finish_reason(stop_reason, calls=self._calls > 0))
        return [*chunks, Chunk(self._payload(b"", reason), finishes=True)]

    # ── one chunk each

    def _text(self, name: str, text: str) -> Chunk:
        return Chunk(self._payload(b'"%b":%b' % (name.encode(), _dump(text))), content=True, output_bytes=text_bytes(text))

    def _call(self, call: dict[str, object], size: int = 0) -> Chunk:
        return Chunk(self._payload(b'"tool_calls":[%b]' % _dump(call)), content=True, output_bytes=size)

    def _payload(self, delta: bytes, reason: bytes = b"null") -> bytes:
        return b"".join((self._head, b'{"index":0,"delta":{', delta, b'},"finish_reason":', reason, b"}]}"))


def _piece(call: ToolUse) -> str:
    """A piece of a call's arguments: the text of them, or the arguments themselves where a model sends them at once."""
    said = json_bytes.parse(bytes(call.input))
    return said if isinstance(said, str) else bytes(call.input).decode() if said else ""


def _dump(value: object) -> bytes:
    return json_bytes.dump(value)
