"""Events of a Responses stream in the words of chat completions, as they come."""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.responses import chat_items, counts
from n4n.core.dialects.responses.words import Answer, Item, Object, Said, whole_seconds

_DELTA = b',"choices":[{"index":0,"delta":{'
_TEXTS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning_content",
    "response.reasoning_text.delta": "reasoning_content",
}
_PIECES = frozenset(("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"))


class _Call:
    """One call while it is told."""

    __slots__ = ("custom", "index", "told")

    def __init__(self, index: int, *, custom: bool) -> None:
        self.index, self.custom = index, custom
        self.told = 0  # characters of its arguments so far


class ChatWriter:
    """Events in, payloads of `chat.completion.chunk` out, for one stream. The first event makes the chunk with the role."""

    __slots__ = ("_calls", "_done", "_head", "_places", "_spoke")

    def __init__(self) -> None:
        self._head = b""
        self._calls: dict[int, _Call] = {}  # by the place of its item
        self._spoke: set[int] = set()  # items of which some text has come
        self._done: set[int] = set()
        self._places = chat_items.Places()

    def write(self, said: Said) -> list[Chunk]:
        """The chunks that one event makes."""
        opening = [] if self._head else [self._open(said.response or Answer())]
        name = _TEXTS.get(said.type)
        if name is not None:
            return opening + self._text(said, name)
        if said.type in _PIECES:
            return opening + self._piece(said.output_index, said.delta or "")
        match said.type:
            case "response.output_item.added" if said.item is not None:
                return opening + self._added(said.output_index, said.item)
            case "response.output_item.done" if said.item is not None:
                return opening + self._ended(said.output_index, said.item)
            case "response.output_text.annotation.added":
                return opening + self._cite([said.annotation] if said.annotation else [])
            case "response.completed" | "response.incomplete":
                return opening + self._finish(said.response or Answer())
        return opening

    def usage(self, usage: Usage) -> Chunk:
        """The chunk without choices that tells usage."""
        identity = self._head.removesuffix(_DELTA)
        return Chunk(b'%b,"choices":[],"usage":%b}' % (identity, json_bytes.encode(counts.in_chat(usage))), choices=False, usage=usage)

    def _open(self, answer: Answer) -> Chunk:
        identity = {
            "id": answer.id or "",
            "object": "chat.completion.chunk",
            "created": whole_seconds(answer.created_at),
            "model": answer.model or "",
        }
        self._head = json_bytes.dump(identity)[:-1] + _DELTA
        return Chunk(self._payload(b'"role":"assistant","content":""'))

    # ── texts

    def _text(self, said: Said, name: str) -> list[Chunk]:
        self._spoke.add(said.output_index)
        return self._words(name, said.delta, said.logprobs)

    def _words(self, name: str, text: str | None, logprobs: list[Object] | None = None) -> list[Chunk]:
        if not text and not logprobs:
            return []
        delta = b'"%b":%b' % (name.encode(), json_bytes.dump(text or ""))
        return [Chunk(self._payload(delta, logprobs=logprobs), content=bool(text), output_bytes=text_bytes(text))]

    def _cite(self, annotations: list[Object]) -> list[Chunk]:
        cited = chat_items.citations(annotations)
        return [Chunk(self._payload(b'"annotations":%b' % json_bytes.dump(cited)))] if cited else []

    # ── items

    def _added(self, place: int, item: Item) -> list[Chunk]:
        if item.type not in chat_items.CALLS or place in self._calls:
            return []
        opened = self._calls[place] = _Call(len(self._calls), custom=item.type == "custom_tool_call")
        call = chat_items.call(item, str(opened.index))
        inner = {"name": item.name or "", ("input" if opened.custom else "arguments"): ""}
        return [self._call({"index": opened.index, **call, str(call["type"]): inner})]

    def _piece(self, place: int, piece: str) -> list[Chunk]:
        opened = self._calls.get(place)
        if opened is None or not piece:
            return []
        opened.told += len(piece)
        said: Object = {"custom": {"input": piece}} if opened.custom else {"function": {"arguments": piece}}
        return [self._call({"index": opened.index, **said}, text_bytes(piece))]

    def _ended(self, place: int, item: Item) -> list[Chunk]:
        """What the item says as a whole is a repetition, but for what no delta has told."""
        if place in self._done:
            return []
        self._done.add(place)
        index = self._places.next(item)
        chunks: list[Chunk] = []
        if item.type in chat_items.CALLS:
            chunks += self._added(place, item)
            opened = self._calls[place]
            whole = (item.input or "") if opened.custom else (item.arguments or "{}")
            return chunks + self._piece(place, whole[opened.told :])
        if place not in self._spoke:
            for part in item.content or () if item.type == "message" else ():
                chunks += self._words("content", part.text, part.logprobs) + self._words("refusal", part.refusal)
                chunks += self._cite(part.annotations or [])
            if item.type == "reasoning":
                chunks += self._words("reasoning_content", chat_items.reasoning(item))
        if chat_items.is_sealed(item):
            details = json_bytes.dump([chat_items.detail(item, index)])
            chunks.append(Chunk(self._payload(b'"reasoning_details":%b' % details), content=True))
        return chunks

    def _finish(self, answer: Answer) -> list[Chunk]:
        chunks = [chunk for place, item in enumerate(answer.output or ()) for chunk in self._ended(place, item)]
        silent = [place for place, opened in self._calls.items() if not (opened.told or opened.custom)]
        chunks += [chunk for place in silent for chunk in self._piece(place, "{}")]
        reason = chat_items.finish_reason(answer, calls=bool(self._calls))
        return [*chunks, Chunk(self._payload(b"", json_bytes.encode(reason)), finishes=True)]

    def _call(self, call: Object, size: int = 0) -> Chunk:
        return Chunk(self._payload(b'"tool_calls":[%b]' % json_bytes.dump(call)), content=True, output_bytes=size)

    def _payload(self, delta: bytes, reason: bytes = b"null", logprobs: list[Object] | None = None) -> bytes:
        told = b'"logprobs":{"content":%b,"refusal":null},' % json_bytes.dump(logprobs) if logprobs else b""
        return b"".join((self._head, delta, b"},", told, b'"finish_reason":', reason, b"}]}"))
