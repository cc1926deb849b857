"""Text completions, as OpenAI's older models and most servers of open ones make them: a text goes on, without a chat around it.

https://platform.openai.com/docs/api-reference/completions. Answers pass as they came. Where an endpoint has no such thing the
request became a chat, and its answer is read as one: the two are told apart by what stands in a choice, and by the object's name where
a provider puts `text` into the choices of chats too, as Together does (https://docs.together.ai/reference/chat-completions-1).
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Native, UpstreamRequest
from n4n.core.dialects import Dialect, StreamDecoder
from n4n.core.dialects.classify import Told, failure_inside, garbled, read_error
from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.embeddings import beside_chat
from n4n.core.dialects.frames import END_MARK, Frame, Frames, Item, KeepAlive, Whole
from n4n.core.dialects.kinds import TEXT_COMPLETIONS
from n4n.core.errors import Failure
from n4n.core.service_tiers import tier_of
from n4n.core.usage import normalise

SHAPE = "openai_completions"  # of requests and answers in these words
_PATH = "/completions"
_SSE_HEADS = (b"data:", b"event:", b"id:", b"retry:", b":")
_COMMENT = Comment()


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    message: msgspec.Raw = msgspec.Raw(b"null")  # of a chat
    index: int = 0
    finish_reason: str | None = None


class _Said(msgspec.Struct, gc=False):
    kind: object = msgspec.field(default=None, name="object")
    choices: list[_Choice] = []
    usage: object = None
    service_tier: object = None
    error: object = None


_READ = msgspec.json.Decoder(_Said).decode


class Completions:
    """At OpenAI, Azure, and who speaks like them."""

    feature = TEXT_COMPLETIONS

    def encode(self, chat: Dialect, request: ChatRequest, words: Native, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST where the dialect's completions are, what the client wrote."""
        asked = ChatRequest(
            words.fields,
            request.model,
            stream=request.stream,
            include_usage=request.include_usage,
            max_output_tokens=request.max_output_tokens,
        )
        sent = chat.encode(asked, _plain(endpoint), secret)
        return UpstreamRequest(beside_chat(sent.url, _PATH), sent.headers, sent.body, sent.warnings, sent.allow_private)

    def decode(self, chat: Dialect, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        head = body[:64].lstrip(b" \t\r\n\xef\xbb\xbf")
        if not head.startswith(_SSE_HEADS):
            body = body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
            said = _read(body)
            if said is not None and not said.error and _has_text(said):
                return _chunk(body, said, finishes=True)
            return chat.decode(body, content_type, request)
        decoder = TextDecoder(chat, request)
        events = decoder.feed(body) + decoder.end()
        if isinstance(events[-1], Failed):
            return events[-1].failure
        chunks = [event for event in events if isinstance(event, Chunk)]
        if any(chunk.shape != SHAPE for chunk in chunks):
            return chat.decode(body, content_type, request)
        whole = json_bytes.dump(_joined([chunk.payload for chunk in chunks]))
        return _chunk(whole, _read(whole) or _Said(), finishes=True)

    def decoder(self, chat: Dialect, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return TextDecoder(chat, request)


def _plain(endpoint: Endpoint) -> Endpoint:
    """Without what its provider's chats call otherwise: here the limit of the output has one name."""
    provider = endpoint.provider
    return replace(endpoint, provider=replace(provider, quirks=frozenset())) if provider.quirks else endpoint


class TextDecoder:
    """A stream of text completions; a chunk of a chat, and all that follows it, goes to the chat's decoder."""

    __slots__ = ("_chat", "_finished", "_frames", "_n", "_over", "_seen")

    def __init__(self, chat: Dialect, request: ChatRequest) -> None:
        self._frames = Frames()
        self._chat: StreamDecoder = chat.decoder(request)
        self._n = request.n
        self._seen: set[int] | None = None  # None: nothing has told yet which of the two it is
        self._finished: set[int] = set()
        self._over = False

    def __repr__(self) -> str:
        return f"<TextDecoder {'over' if self._over else 'open'}, {len(self._finished)} of {len(self._seen or ())} choices finished>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        return [] if self._over else self._events(self._frames.feed(piece))

    def end(self) -> list[Event]:
        """The input ended."""
        if self._over:
            return []
        events = self._events(self._frames.end())
        if not self._over:
            events += self._conclude() if self._seen is not None else self._chat.end()
            self._over = True
        return events

    def _events(self, items: list[Item]) -> list[Event]:
        events: list[Event] = []
        for item in items:
            if self._over:
                break
            found = self._item(item)
            self._over = self._over or any(isinstance(event, Done | Failed) for event in found)
            events += found
        return events

    def _item(self, item: Item) -> list[Event]:
        if isinstance(item, KeepAlive):
            return [_COMMENT]
        if isinstance(item, Whole):
            return self._whole(item.body)
        return self._frame(item.data) if isinstance(item, Frame) else [Failed(garbled(item.what))]

    def _frame(self, data: bytes) -> list[Event]:
        said = _read(data)
        if self._seen is None and (said is None or not _has_text(said)):
            return self._chat.feed(b"data: %b\n\n" % data)
        if data.strip() == END_MARK:
            return self._conclude()
        if said is None:
            return [Failed(garbled("the provider's stream is corrupt"))] if data.strip() else [_COMMENT]
        if said.error:
            return [Failed(failure_inside(read_error(json_bytes.parse(data)) or Told()))]
        return [self._told(said, data)]

    def _told(self, said: _Said, data: bytes) -> Chunk:
        seen = self._seen = self._seen or set()
        for choice in said.choices:
            seen.add(choice.index)
            if choice.finish_reason:
                self._finished.add(choice.index)
        finishes = any(choice.finish_reason for choice in said.choices)
        chunk = _chunk(data, said, finishes=finishes)
        open_still = finishes and len(self._finished) < max(self._n, len(seen))
        return msgspec.structs.replace(chunk, unfinished=True) if open_still else chunk

    def _whole(self, body: bytes) -> list[Event]:
        said = _read(body)
        if said is None or said.error or not _has_text(said):
            return self._chat.feed(body) + self._chat.end()
        return [_chunk(body, said, finishes=True), Done()]

    def _conclude(self) -> list[Event]:
        if self._finished and self._finished >= (self._seen or set()):
            return [Done()]
        return [Failed(garbled("the provider's stream ended before the answer did"))]


def _has_text(said: _Said) -> bool:
    """Whether it is one of a text, not of a chat; what has no choices says neither."""
    if isinstance(said.kind, str) and said.kind.startswith("chat."):
        return False
    return any(choice.text is not None and bytes(choice.message) == b"null" for choice in said.choices)


def _read(raw: bytes) -> _Said | None:
    try:
        raw if raw.isascii() else raw.decode()
        return _READ(raw)
    except (ValueError, RecursionError):
        pass
    try:
        raw.decode()
        return msgspec.convert(json_bytes.parse(raw), _Said)  # half a surrogate pair in an escape
    except (ValueError, RecursionError):
        return None


def _chunk(payload: bytes, said: _Said, *, finishes: bool) -> Chunk:
    size = sum(text_bytes(choice.text) for choice in said.choices)
    return Chunk(payload, size > 0, finishes, bool(said.choices), normalise(said.usage, tier_of(said.service_tier)), size, shape=SHAPE)


def _joined(payloads: list[bytes]) -> dict[str, object]:
    """One completion of a stream's chunks."""
    whole: dict[str, object] = {}
    choices: dict[int, dict[str, object]] = {}
    for payload in payloads:
        said = json_bytes.parse(payload)
        assert isinstance(said, dict)
        whole.update((name, value) for name, value in said.items() if value is not None)
        for choice in said.get("choices", ()):
            mine = choices.setdefault(choice.get("index", 0), {"text": "", "index": choice.get("index", 0), "logprobs": None})
            mine["text"] = str(mine["text"]) + str(choice.get("text") or "")
            mine["finish_reason"] = choice.get("finish_reason") or mine.get("finish_reason")
    return {**whole, "choices": [choices[index] for index in sorted(choices)]}
