"""Streams of the Responses skin: a provider's own events as they came, or events made of a chat's chunks; n4n's block at the end.

    response.created · response.in_progress · (events of items)* · response.completed | incomplete | failed

The block rides in the `response` of the last event, which waits for the usage, the stream's end or the shell's patience.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.dialects.responses.words import SHAPE
from n4n.core.skins.responses_answer import Completion, Envelope, Object, Speech, citations, is_cut, read, with_usage
from n4n.core.skins.responses_items import Events, Items
from n4n.core.skins.responses_tools import called_in
from n4n.core.stream_tail import with_note


class ResponsesStream:
    """Stands behind the guard; its bytes are whole frames."""

    __slots__ = ("_envelope", "_events", "_finish", "_items", "_native", "_opening", "_reported", "_request", "over")

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._events = Events()
        self._envelope: Envelope | None = None  # both from the first chunk of a chat on
        self._items: Items | None = None
        self._opening: bytes | None = None  # the response of a provider's own first event
        self._finish: str | None = None  # the finish reason, while the last event waits
        self._native: Chunk | None = None  # a provider's own last event, while it waits
        self._reported: Usage | None = None
        self.over = False

    @property
    def waiting(self) -> bool:
        """The answer is whole and nothing but usage is to come: be patient for 2 s, no longer."""
        return self._finish is not None or self._native is not None

    @property
    def complete(self) -> bool:
        """The usage has come too, or cannot: `finish` need not wait for the stream's end."""
        return self._native is not None or (self._finish is not None and self._reported is not None)

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The frames that may go out now; after `finish` none."""
        if self.over:
            return ()
        return self._passed(chunk) if chunk.shape == SHAPE else tuple(self._made(chunk))

    def finish(self, usage: Usage | None, note: bytes) -> tuple[bytes, ...]:
        """The remaining frames. `usage` is the truth (the provider's, or ours where that was suspect), `note` JSON for `n4n`."""
        self.over = True
        if self._native is not None:
            return (_ended(self._native, usage, note),)
        if self._finish is None or self._items is None or self._envelope is None:
            return ()
        status, response = self._envelope.ended(self._finish, self._items.output, usage)
        return (self._events.raw(f"response.{status}", b'"response":' + with_note(response, note)),)

    def error(self, body: Mapping[str, object]) -> bytes:
        """The last event of a stream that broke; `body` is the error in OpenAI's shape.

        `response.failed`, as the API ends a response that failed, with the error beside it too: OpenAI's SDKs raise an event's
        `error`, and most clients overlook the response's.
        """
        self.over = True
        inner = body.get("error")
        error: Object = dict(inner) if isinstance(inner, Mapping) else {}
        told = {name: error[name] for name in ("code", "message", "param", "type", "n4n") if name in error}
        if self._opening is not None:
            known = {**json_bytes.loose_members(self._opening), "status": b'"failed"', "error": json_bytes.dump(told)}
            response = json_bytes.join(known.items())
        else:
            envelope = self._envelope or Envelope(self._request, Completion(), b"")
            output = json_bytes.dump([] if self._items is None else self._items.output)
            response = envelope.response("failed", output, error=json_bytes.dump(told))
        return self._events.raw("response.failed", b'"response":%b,"error":%b' % (response, json_bytes.dump(error)))

    # ── a provider's own events

    def _passed(self, chunk: Chunk) -> tuple[bytes, ...]:
        self._events.number += 1
        if chunk.event == b"response.created":
            response = json_bytes.loose_members(chunk.payload).get("response")
            self._opening = bytes(response) if response is not None and json_bytes.is_object(response) else None
        if chunk.finishes:
            self._native = chunk
            return ()
        return (b"event: %b\ndata: %b\n\n" % (chunk.event, chunk.payload),)

    # ── events made of a chat's chunks

    def _made(self, chunk: Chunk) -> list[bytes]:
        if chunk.usage is not None and (self._finish is not None or chunk.finishes):
            self._reported = chunk.usage
        if not chunk.choices:
            return []
        completion = read(chunk.payload)
        frames, items = self._begun(completion, chunk.payload)
        choice = completion.first
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        frames += _speak(items, choice.delta or Speech(), logprobs or [])
        if choice.finish_reason is not None and self._finish is None:
            frames += items.end(cut=is_cut(choice.finish_reason))
            self._finish = choice.finish_reason
        return frames

    def _begun(self, completion: Completion, payload: bytes) -> tuple[list[bytes], Items]:
        """The items, with the events that open the response where it has not begun."""
        if self._items is not None:
            return [], self._items
        self._envelope = Envelope(self._request, completion, payload)
        self._items = Items(self._events, self._envelope.identity, called_in(self._request))
        response = b'"response":' + self._envelope.response("in_progress")
        return [self._events.raw("response.created", response), self._events.raw("response.in_progress", response)], self._items


def _speak(items: Items, said: Speech, logprobs: list[Object]) -> list[bytes]:
    frames: list[bytes] = []
    if said.reasoning_content:
        frames += items.reasoning(said.reasoning_content)
    if said.reasoning_details:
        frames += items.details(said.reasoning_details)
    cited = citations(said.annotations)
    if said.content or logprobs or cited:
        frames += items.text(said.content or "", logprobs, cited)
    if said.refusal:
        frames += items.refusal(said.refusal)
    for call in said.tool_calls or ():
        frames += items.call(call)
    return frames


def _ended(chunk: Chunk, usage: Usage | None, note: bytes) -> bytes:
    known = json_bytes.loose_members(chunk.payload)
    response: bytes = bytes(known["response"]) if json_bytes.is_object(known.get("response")) else b"{}"
    if usage is not None and usage != chunk.usage:
        response = with_usage(response, usage)
    payload = json_bytes.join({**known, "response": with_note(response, note)}.items())
    return b"event: %b\ndata: %b\n\n" % (chunk.event, payload)
