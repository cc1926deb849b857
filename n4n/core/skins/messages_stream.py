"""Streams of the Messages skin: a provider's own events as they came, or events made of a chat's chunks; n4n's block at the end.

    message_start · (content_block_start · content_block_delta* · content_block_stop)* · message_delta · message_stop

The block rides on `message_delta`, which waits for the usage, the stream's end or the shell's patience.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.anthropic.counts import spelled
from n4n.core.dialects.anthropic.events import SHAPE, dump
from n4n.core.skins.messages_answer import (
    Completion,
    Fragment,
    Speech,
    message_id,
    read,
    reasoning_block,
    refusal_details,
    stop_reason,
    with_usage,
)
from n4n.core.skins.messages_blocks import Blocks, Object, frame
from n4n.core.skins.messages_errors import envelope
from n4n.core.stream_tail import with_note

KEEP_ALIVE = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'{"type":"message_stop"}'


class MessagesStream:
    """Stands behind the guard; its bytes are whole frames. `input_tokens`: a first guess for clients that look at the beginning."""

    __slots__ = ("_began", "_blocks", "_finish", "_input", "_refusal", "_reported", "_stop", "_told", "over")

    def __init__(self, input_tokens: int = 0) -> None:
        self._input = input_tokens
        self._blocks = Blocks()
        self._began = False
        self._refusal: list[str] = []
        self._finish: bytes | None = None  # the waiting message_delta
        self._stop = _STOP
        self._reported: Usage | None = None
        self._told: Usage | None = None  # in the waiting event
        self.over = False

    @property
    def waiting(self) -> bool:
        """The answer is whole and nothing but usage is to come: be patient for 2 s, no longer."""
        return self._finish is not None

    @property
    def complete(self) -> bool:
        """The usage has come too: `finish` need not wait for the stream's end."""
        return self.waiting and self._reported is not None

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The frames that may go out now; after `finish` none."""
        if self.over:
            return ()
        return self._native(chunk) if chunk.shape == SHAPE else tuple(self._made(chunk))

    def finish(self, usage: Usage | None, note: bytes) -> tuple[bytes, ...]:
        """The remaining frames. `usage` is the truth (the provider's, or ours where that was suspect), `note` JSON for `n4n`."""
        self.over = True
        if self._finish is None:
            return ()
        payload, self._finish = self._finish, None
        if usage is not None and usage != self._told:
            payload = with_usage(payload, usage)
        return frame("message_delta", with_note(payload, note)), frame("message_stop", self._stop)

    def error(self, body: Mapping[str, object]) -> bytes:
        """The last event of a stream that broke; `body` is the error in OpenAI's shape. No message_stop follows."""
        self.over = True
        return frame("error", json_bytes.dump(envelope(body)))

    # ── a provider's own events

    def _native(self, chunk: Chunk) -> tuple[bytes, ...]:
        if chunk.event == b"message_stop":
            self._stop = chunk.payload
            return ()
        if chunk.finishes:
            held, self._finish = self._finish, chunk.payload
            self._told = self._reported = chunk.usage
            return () if held is None else (frame("message_delta", held),)
        if not chunk.event:
            return (b"data: %b\n\n" % chunk.payload,)
        return (b"event: %b\ndata: %b\n\n" % (chunk.event, chunk.payload),)

    # ── events made of a chat's chunks

    def _made(self, chunk: Chunk) -> list[bytes]:
        if chunk.usage is not None and (self._finish is not None or chunk.finishes):
            self._reported = chunk.usage
        if not chunk.choices:
            return []
        completion = read(chunk.payload)
        frames = [] if self._began else [self._start(completion)]
        choice = completion.first
        frames += self._speak(choice.delta or Speech())
        if choice.finish_reason is not None and self._finish is None:
            frames += self._blocks.end()
            self._finish = self._ending(choice.finish_reason)
        return frames

    def _start(self, completion: Completion) -> bytes:
        self._began = True
        message: Object = {
            "id": message_id(completion.id),
            "type": "message",
            "role": "assistant",
            "model": completion.model or "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self._input, "output_tokens": 0},
        }
        return frame("message_start", dump({"type": "message_start", "message": message}))

    def _speak(self, said: Speech) -> list[bytes]:
        frames: list[bytes] = []
        if said.reasoning_content:
            block: Object = {"type": "thinking", "thinking": "", "signature": ""}
            frames += self._blocks.add("thinking", "thinking", block, "thinking", said.reasoning_content)
        for entry in said.reasoning_details or ():
            frames += self._signed(entry)
        for text in (said.content, said.refusal):
            if text:
                frames += self._blocks.add("text", "text", {"type": "text", "text": ""}, "text", text)
        self._refusal += [said.refusal] if said.refusal else []
        for call in said.tool_calls or ():
            frames += self._call(call)
        return frames

    def _signed(self, entry: Object) -> list[bytes]:
        """A signature closes the thinking it signs; what is sealed is a block of its own."""
        block = reasoning_block(entry)
        if block is None:
            return []
        if block["type"] != "thinking":
            return self._blocks.once(str(block["type"]), block)
        signature, thought = str(block["signature"]), str(block["thinking"])
        closed = self._blocks.closes("thinking", "signature", signature)
        if closed is not None:
            return closed
        opening: Object = {"type": "thinking", "thinking": thought, "signature": ""}
        return self._blocks.once("thinking", opening, "signature", signature)

    def _call(self, call: Fragment) -> list[bytes]:
        name = (call.function and call.function.name) or ""
        block: Object = {"type": "tool_use", "id": call.id or f"toolu_{call.index}", "name": name, "input": {}}
        piece = (call.function and call.function.arguments) or ""
        return self._blocks.add(call.index, "tool_use", block, "partial_json", piece)

    def _ending(self, finish_reason: str) -> bytes:
        delta: Object = {"stop_reason": stop_reason(finish_reason, refused=bool(self._refusal)), "stop_sequence": None}
        if self._refusal:
            delta["stop_details"] = refusal_details("".join(self._refusal))
        return dump({"type": "message_delta", "delta": delta, "usage": spelled(Usage())})
