"""Streams of OpenAI's kin: bytes in any split become chunks whose payload is what came, wherever nothing has to change.

A chunk that reads into the strict shape below passes untouched, at the price of one typed parse. Anything else takes the
long way: parsed whole, judged, repaired, or refused. A stream is a success only when every choice that was seen has finished;
`[DONE]` alone proves nothing, and its absence after the finish reasons is no fault.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.dialects import completion, deltas
from n4n.core.dialects.classify import Told, failure_inside, garbled, read_error
from n4n.core.dialects.deltas import FINISHES, CallFragment, FunctionFragment, Object, Sound, ToolCalls, text_bytes
from n4n.core.service_tiers import tier_of
from n4n.core.sse import SseComment, SseEvent, SseItem, SseParser
from n4n.core.usage import normalise

MAX_WHOLE = 32 * 1024 * 1024  # bytes of a whole JSON body where a stream was asked
_DONE = b"[DONE]"
_BLANK = b" \t\r\n\xef\xbb\xbf"
_COMMENT = Comment()


# A role that is told again with every delta, as OpenRouter and Together do: OpenAI's SDK would glue them together. Inside a text its
# quotes would be escaped.
_ROLE = re.compile(rb'"role"\s*:\s*"assistant"\s*,\s*|,\s*"role"\s*:\s*"assistant"|(?<=\{)\s*"role"\s*:\s*"assistant"\s*(?=\})')


class _Delta(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallFragment] | None = None
    function_call: FunctionFragment | None = None
    audio: Sound | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta
    index: int = 0
    finish_reason: str | None = None


class _Groq(msgspec.Struct, gc=False):
    usage: dict[str, object] | None = None
    error: object = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: dict[str, object] | None = None
    error: object = None
    x_groq: _Groq | None = None
    service_tier: object = None


_READ = msgspec.json.Decoder(_Chunk).decode


class ChunkDecoder:
    """The decoder of one streamed answer with status 200; `n` choices were asked for."""

    __slots__ = ("_calls", "_finished", "_line_by_line", "_n", "_over", "_parser", "_seen", "_tier", "_whole", "_whole_size")

    def __init__(self, n: int = 1, parser: SseParser | None = None) -> None:
        self._n = n
        self._parser = parser or SseParser()
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._calls: dict[int, ToolCalls] = {}
        self._whole: list[bytes] | None = None  # the body so far, where it is no stream at all
        self._whole_size = -1  # -1: nothing but blanks has come
        self._line_by_line = True
        self._over = False
        self._tier: object = None  # of service, the latest that was told

    def __repr__(self) -> str:
        return f"<ChunkDecoder {'over' if self._over else 'open'}, {len(self._finished)} of {len(self._seen)} choices finished>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        if self._over:
            return []
        if self._whole_size < 0:
            self._sniff(piece)
        if self._whole is not None:
            return self._collect(piece)
        alone = self._parser.alone(piece)
        if alone is not None and (chunk := self._chunk(alone)) is not None:
            self._line_by_line = True
            return [chunk]
        events: list[Event] = []
        if alone is not None:
            self._line_by_line = True
            self._event(alone, b"", events)
            return events
        for item in self._parser.feed(piece):
            self._item(item, events)
        if self._parser.pending and not self._over:
            self._early(events)
        return events

    def end(self) -> list[Event]:
        """The input ended."""
        events: list[Event] = []
        if self._over:
            return events
        if self._whole is not None:
            self._convert(events)
        for item in self._parser.end():
            self._item(item, events)
        if not self._over:
            self._conclude(events, "the provider's stream ended before the answer did")
        return events

    # ── from bytes to events

    def _sniff(self, piece: bytes) -> None:
        """A field name or a colon begins a stream; a bracket begins JSON or a web page, whatever the content type says."""
        head = piece.lstrip(_BLANK)[:1]
        if head:
            self._whole_size = 0
            if head in (b"{", b"[", b"<"):
                self._whole = []

    def _collect(self, piece: bytes) -> list[Event]:
        assert self._whole is not None
        self._whole.append(piece)
        self._whole_size += len(piece)
        if self._whole_size > MAX_WHOLE:
            return self._failed(Failed(garbled("the provider's answer is too long")))
        return [_COMMENT]

    def _item(self, item: SseItem, events: list[Event]) -> None:
        if self._over:
            return
        if isinstance(item, SseEvent):
            self._line_by_line = True
            self._event(item.data, item.event, events)
        elif isinstance(item, SseComment):
            events.append(_COMMENT)
        else:
            events += self._failed(Failed(garbled("one event of the provider's stream is too long")))

    def _event(self, data: bytes, name: bytes, events: list[Event]) -> None:
        if data == _DONE or data.strip() == _DONE:
            self._conclude(events, "the provider's stream says it is done, but the answer is not")
            return
        if b"\n" in data:
            if not _is_json(data) and all(_is_json(line) or line.strip() == _DONE for line in data.split(b"\n")):
                for line in data.split(b"\n"):  # each was an event: their provider ends events with one line end
                    if not self._over:
                        self._event(line, name, events)
                return
            data = data.replace(b"\n", b" ")  # in JSON a raw line end stands between tokens only
        event = self._chunk(data) or self._unusual(data, name)
        events += self._failed(event) if isinstance(event, Failed) else (event,)

    def _early(self, events: list[Event]) -> None:
        """Do not wait for the blank line of a provider that never sends one: a line that is whole JSON is an event."""
        lines = self._parser.pending
        if self._line_by_line and not (lines[0].strip() == _DONE or (lines[0][:1] == b"{" and _is_json(lines[0]))):
            self._line_by_line = False  # one event over several lines: look again at the next one
        if self._line_by_line:
            for item in self._parser.take():
                self._item(item, events)

    def _conclude(self, events: list[Event], otherwise: str) -> None:
        if self._finished and self._finished >= self._seen:
            events.append(Done())
            self._over = True
        else:
            events += self._failed(Failed(garbled(otherwise)))

    def _failed(self, failed: Failed) -> list[Event]:
        self._over = True
        self._whole = None
        return [failed]

    # ── one event

    def _chunk(self, data: bytes) -> Chunk | None:
        """The short way; None: not in the strict shape, and nothing was noted."""
        try:
            data if data.isascii() else data.decode()
            chunk = _READ(data)
        except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
            return None
        groq = chunk.x_groq
        if chunk.error or (groq is not None and groq.error):
            return None
        content = finishes = False
        size = 0
        for choice in chunk.choices:
            delta, reason = choice.delta, choice.finish_reason
            if delta.role is not None and choice.index in self._seen:
                data, found = _ROLE.subn(b"", data, 1)
                if not found or len(chunk.choices) > 1:
                    return None
            if reason is not None:
                if reason not in FINISHES or choice.index in self._finished:
                    return None
                finishes = True
            if delta.content:
                content = True
                size += text_bytes(delta.content)
            if delta.reasoning and not delta.reasoning_content:
                return None
            if delta.reasoning_content or delta.refusal:
                content = True
                size += text_bytes(delta.reasoning_content) + text_bytes(delta.refusal)
            if delta.tool_calls:
                if len(chunk.choices) > 1 or not self._calls.setdefault(choice.index, ToolCalls()).accept(delta.tool_calls):
                    return None
                content = True
                size += sum(text_bytes(call.function.arguments) for call in delta.tool_calls if call.function)
            elif delta.function_call is not None:
                content = True
                size += text_bytes(delta.function_call.arguments)
            elif delta.audio is not None:
                content = True
        for choice in chunk.choices:
            if finishes or choice.index not in self._seen:
                self._note(choice.index, choice.finish_reason is not None)
        if chunk.service_tier is not None:
            self._tier = chunk.service_tier
        usage = None if chunk.usage is None else normalise(chunk.usage, tier_of(self._tier))
        if usage is None and groq is not None:
            usage = normalise(groq.usage, tier_of(self._tier))
        return Chunk(data, content, finishes, bool(chunk.choices), usage, size, finishes and self._open())

    def _note(self, index: int, finished: bool) -> None:
        self._seen.add(index)
        if finished:
            self._finished.add(index)

    def _open(self) -> bool:
        return len(self._finished) < max(self._n, len(self._seen))

    def _unusual(self, data: bytes, name: bytes) -> Event:
        """The long way: whatever an upstream can send."""
        try:
            data.decode()
            said = json_bytes.parse(data)
        except (UnicodeDecodeError, json_bytes.NotJson):
            named = name not in (b"", b"message", b"error")
            return _COMMENT if named or not data.strip() else Failed(garbled("the provider's stream is corrupt"))
        told = read_error(said) or (_groq_error(said) if isinstance(said, dict) else None)
        if told is not None:
            return Failed(failure_inside(told))
        if not isinstance(said, dict):
            return _COMMENT
        tier = tier_of(said.get("service_tier") or self._tier)
        usage = normalise(said.get("usage"), tier) or normalise(_inner(said, "x_groq").get("usage"), tier)
        choices = said.get("choices")
        if isinstance(choices, list) and choices:
            return self._repaired(said, [choice for choice in choices if isinstance(choice, dict)], usage, data)
        if isinstance(choices, list):
            return Chunk(data, choices=False, usage=usage)
        return _COMMENT if usage is None else Chunk(json_bytes.dump({**said, "choices": []}), choices=False, usage=usage)

    def _repaired(self, said: Object, choices: list[Object], usage: Usage | None, data: bytes) -> Event:
        changed = content = finishes = False
        size = 0
        for choice in choices:
            failure = completion.failed_finish(choice.get("finish_reason"))
            if failure is not None:
                return Failed(failure)
            changed |= self._repair(choice)
            content |= deltas.has_output(cast(Object, choice["delta"]))
            size += deltas.output_bytes(cast(Object, choice["delta"]))
            finishes |= choice.get("finish_reason") is not None
        return Chunk(json_bytes.dump(said) if changed else data, content, finishes, True, usage, size, finishes and self._open())

    def _repair(self, choice: Object) -> bool:
        index, changed = choice.get("index"), False
        if type(index) is not int:
            index = choice["index"] = 0
            changed = True
        if not isinstance(choice.get("delta"), dict):  # none at all, or a whole message in its place
            message = choice.pop("message", None)
            choice["delta"] = message if isinstance(message, dict) else {}
            changed = True
        delta = cast(Object, choice["delta"])
        if index in self._seen and delta.pop("role", None) is not None:
            changed = True
        reason, respelled = deltas.finish_reason(choice, index in self._finished)
        self._note(index, reason is not None)
        changed |= respelled
        changed |= deltas.repair_message(delta)
        if delta.get("tool_calls"):
            changed |= self._calls.setdefault(index, ToolCalls()).repair(delta["tool_calls"])
        return changed

    # ── a whole body where a stream was asked

    def _convert(self, events: list[Event]) -> None:
        assert self._whole is not None
        body, self._whole = b"".join(self._whole), None
        whole = completion.read_whole(body)
        if not isinstance(whole, Chunk):
            events += self._failed(Failed(whole))
            return
        for chunk in completion.as_chunks(cast(Object, json_bytes.parse(whole.payload))):
            self._event(json_bytes.dump(chunk), b"", events)


def _is_json(data: bytes) -> bool:
    try:
        json_bytes.parse(data)
    except json_bytes.NotJson:
        return False
    return True


def _inner(said: Object, name: str) -> Object:
    inner = said.get(name)
    return inner if isinstance(inner, dict) else {}


def _groq_error(said: Object) -> Told | None:
    error = _inner(said, "x_groq").get("error")
    return read_error({"error": error}) if error else None
