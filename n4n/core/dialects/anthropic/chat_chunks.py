"""Events of a Messages stream in the words of chat completions: text, calls, reasoning and what signs it, the finish reason.

Reasoning that has to come back unchanged rides in `reasoning_details` beside its text, one whole entry per block, when the
block has ended; `index` is its place among the blocks, consecutive text counted once, so that it can be put back there.
"""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.anthropic.counts import in_chat
from n4n.core.dialects.anthropic.events import FORMAT, Block, Said, dump, refusal_of
from n4n.core.dialects.deltas import text_bytes

_FINISHES = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "refusal": "content_filter",
}  # fmt: skip
_KEPT = frozenset(("text", "thinking", "redacted_thinking", "tool_use"))  # blocks that chat has words for
_DELTA = b',"choices":[{"index":0,"delta":{'


def finish_reason(stop_reason: str | None, *, calls: bool) -> str:
    """OpenAI's word; a reason nobody knows is a stop, and a stop with calls is a call."""
    reason = _FINISHES.get(stop_reason or "", "stop")
    return "tool_calls" if calls and reason == "stop" else reason


def detail(kind: str, index: int, **members: str) -> dict[str, object]:
    """An entry of `reasoning_details` that only Claude can read."""
    return {"type": kind, **members, "format": FORMAT, "index": index}


def arguments_of(block: Block) -> str:
    """The arguments of a call that stand in its block: JSON as it came."""
    raw = bytes(block.input)
    return "{}" if raw == b"null" else raw.decode()


class Places:
    """Numbers the blocks of an answer as a chat can tell them apart: text that follows text is one with it."""

    __slots__ = ("_last", "_was_text")

    def __init__(self) -> None:
        self._last, self._was_text = -1, False

    def next(self, kind: str) -> int:
        """The place of the next block; one that chat has no words for takes none."""
        if kind in _KEPT:
            self._last += not (kind == "text" and self._was_text)
            self._was_text = kind == "text"
        return self._last


class _Open:
    """One block while it is told."""

    __slots__ = ("block", "call", "place", "signature", "spoke", "thought")

    def __init__(self, block: Block, place: int, call: int | None) -> None:
        self.block, self.place, self.call = block, place, call
        self.thought: list[str] = []
        self.signature = ""
        self.spoke = False  # some of the call's arguments have come


class ChatWriter:
    """Events in, payloads of `chat.completion.chunk` out, for one stream. The first event makes the chunk with the role."""

    __slots__ = ("_blocks", "_calls", "_head", "_places")

    def __init__(self) -> None:
        self._head = b""
        self._blocks: dict[int, _Open] = {}
        self._calls = 0
        self._places = Places()

    def write(self, said: Said, usage: Usage | None) -> list[Chunk]:
        """The chunks that one event makes; `usage` is what has been told so far, where this event told any."""
        opening: list[Chunk] = []
        if not self._head:
            self._head = _head(said)
            opening.append(Chunk(self._payload(b'"role":"assistant","content":""'), usage=usage))
        match said.type:
            case "content_block_start" if said.content_block is not None:
                return opening + self._start(said.index, said.content_block)
            case "content_block_delta" if said.delta is not None:
                return opening + self._delta(said)
            case "content_block_stop":
                return opening + self._stop(said.index)
            case "message_delta" if said.delta is not None and said.delta.stop_reason is not None:
                return opening + self._finish(said.delta.stop_reason, refusal_of(said.delta.stop_details))
        return opening

    def usage(self, usage: Usage) -> Chunk:
        """The chunk without choices that tells usage."""
        identity = self._head.removesuffix(_DELTA)
        return Chunk(b'%b,"choices":[],"usage":%b}' % (identity, json_bytes.encode(in_chat(usage))), choices=False, usage=usage)

    def _start(self, index: int, block: Block) -> list[Chunk]:
        opened = self._blocks[index] = _Open(block, self._places.next(block.type), self._calls if block.type == "tool_use" else None)
        match block.type:
            case "text" if block.text:
                return [self._text("content", block.text)]
            case "thinking":
                opened.signature = block.signature or ""
                return self._think(opened, block.thinking or "")
            case "redacted_thinking":
                return [self._details([detail("reasoning.encrypted", opened.place, data=block.data or "")])]
            case "tool_use":
                self._calls += 1
                call = {"index": opened.call, "id": block.id or f"call_{opened.call}", "type": "function"}
                return [self._call({**call, "function": {"name": block.name or "", "arguments": ""}})]
        return []

    def _delta(self, said: Said) -> list[Chunk]:
        delta, opened = said.delta, self._blocks.get(said.index)
        assert delta is not None
        if delta.text:
            return [self._text("content", delta.text)]
        if opened is None:
            return []
        if delta.thinking:
            return self._think(opened, delta.thinking)
        if delta.signature:
            opened.signature = delta.signature
        if delta.partial_json and opened.call is not None:
            opened.spoke = True
            return [self._arguments(opened.call, delta.partial_json)]
        return []

    def _stop(self, index: int) -> list[Chunk]:
        opened = self._blocks.pop(index, None)
        if opened is None:
            return []
        if opened.call is not None and not opened.spoke:  # all of them at once, or none at all
            return [self._arguments(opened.call, arguments_of(opened.block))]
        if opened.signature:
            return [self._details([detail("reasoning.text", opened.place, text="".join(opened.thought), signature=opened.signature)])]
        return []

    def _finish(self, stop_reason: str, refusal: str | None) -> list[Chunk]:
        chunks = [chunk for index in list(self._blocks) for chunk in self._stop(index)]
        if refusal is not None:
            chunks.append(self._text("refusal", refusal))
        reason = finish_reason(stop_reason, calls=self._calls > 0)
        return [*chunks, Chunk(self._payload(b"", json_bytes.encode(reason)), finishes=True)]

    # ── one chunk each

    def _think(self, opened: _Open, thought: str) -> list[Chunk]:
        if not thought:
            return []
        opened.thought.append(thought)
        return [self._text("reasoning_content", thought)]

    def _text(self, name: str, text: str) -> Chunk:
        return Chunk(self._payload(b'"%b":%b' % (name.encode(), dump(text))), content=True, output_bytes=text_bytes(text))

    def _details(self, details: list[dict[str, object]]) -> Chunk:
        return Chunk(self._payload(b'"reasoning_details":%b' % dump(details)), content=True)

    def _arguments(self, call: int, piece: str) -> Chunk:
        return self._call({"index": call, "function": {"arguments": piece}}, text_bytes(piece))

    def _call(self, call: dict[str, object], size: int = 0) -> Chunk:
        return Chunk(self._payload(b'"tool_calls":[%b]' % dump(call)), content=True, output_bytes=size)

    def _payload(self, delta: bytes, reason: bytes = b"null") -> bytes:
        return b"".join((self._head, delta, b'},"finish_reason":', reason, b"}]}"))


def _head(said: Said) -> bytes:
    """Everything up to the inside of the delta, the same for every chunk of a stream."""
    message = said.message
    name = dump((message and message.id) or "")
    model = dump((message and message.model) or "")
    return b'{"id":%b,"object":"chat.completion.chunk","created":0,"model":%b%b' % (name, model, _DELTA)
