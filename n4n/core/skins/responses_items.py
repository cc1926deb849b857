"""The events of items while a chat is told: each opens, grows and closes; what it was is kept for the end of the response.

    output_item.added · (content_part.added · delta* · done · content_part.done)* · output_item.done

Reasoning and messages close when something else begins, calls at the end: their arguments may come interleaved.
"""

from __future__ import annotations

from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.skins.responses_answer import Fragment, Function, Object, call_item, message_item, reasoning_item, text_part
from n4n.core.skins.responses_tools import Called, free_text
from n4n.core.skins.responses_turns import sealed


class Events:
    """Numbers events and frames them."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def frame(self, kind: str, **members: object) -> bytes:
        """One event."""
        return self.raw(kind, json_bytes.dump(members)[1:-1])

    def raw(self, kind: str, members: bytes) -> bytes:
        """One event whose members are JSON already, without braces."""
        name = kind.encode()
        framed = b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, self.number, members)
        self.number += 1
        return framed


class _Part:
    """A text that grows. It may become many MiB long, and is told four times when it is whole: then it is JSON already."""

    __slots__ = ("_whole", "annotations", "kind", "logprobs", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind  # output_text, refusal or reasoning_summary_text
        self.texts: list[str] = []
        self.annotations: list[Object] = []
        self.logprobs: list[Object] = []
        self._whole: msgspec.Raw | None = None

    def close(self) -> None:
        """No more comes."""
        self._whole = msgspec.Raw(json_bytes.dump("".join(self.texts)))

    def told(self) -> Object:
        text = "".join(self.texts) if self._whole is None else self._whole
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return text_part(text, self.annotations, self.logprobs) if self.kind == "output_text" else {"type": "summary_text", "text": text}


class _Open:
    """An item that has not closed."""

    __slots__ = ("details", "index", "kind", "name", "parts")

    def __init__(self, kind: str, name: str, index: int) -> None:
        self.kind, self.name, self.index = kind, name, index
        self.parts: list[_Part] = []
        self.details: list[Object] = []

    def told(self, status: str) -> Object:
        if self.kind == "message":
            return message_item(self.name, [part.told() for part in self.parts], status)
        text: str | msgspec.Raw = ""
        if self.parts:  # there is one, for nothing else opens between two pieces of it
            text = cast(str | msgspec.Raw, self.parts[0].told()["text"])
        return reasoning_item(self.name, text, sealed(self.details), status)


class _Call:
    """A call that has not closed."""

    __slots__ = ("call_id", "index", "name", "pieces", "tool")

    def __init__(self, name: str, index: int, call_id: str | None, tool: Called) -> None:
        self.name, self.index, self.call_id, self.tool = name, index, call_id, tool
        self.pieces: list[str] = []

    def told(self, arguments: str, status: str) -> Object:
        return call_item(self.name, self.call_id, self.tool, arguments, status)


class Items:
    """What the assistant says, in; frames out. `called`: whom a function's name stands for."""

    __slots__ = ("_called", "_calls", "_events", "_identity", "_open", "output")

    def __init__(self, events: Events, identity: str, called: dict[str, Called]) -> None:
        self._events, self._identity, self._called = events, identity, called
        self._open: _Open | None = None
        self._calls: dict[int, _Call] = {}
        self.output: list[Object] = []  # by place; of an open item what it was when it opened

    def text(self, text: str, logprobs: list[Object], annotations: list[Object]) -> list[bytes]:
        """Text of the answer, with what belongs to it."""
        frames, part, at = self._part("message", "output_text")
        if text or logprobs:
            part.texts.append(text)
            part.logprobs += logprobs
            frames.append(self._events.frame("response.output_text.delta", **at, delta=text, logprobs=logprobs))
        for annotation in annotations:
            place = len(part.annotations)
            part.annotations.append(annotation)
            kind = "response.output_text.annotation.added"
            frames.append(self._events.frame(kind, **at, annotation_index=place, annotation=annotation))
        return frames

    def refusal(self, text: str) -> list[bytes]:
        """Words of a refusal."""
        frames, part, at = self._part("message", "refusal")
        part.texts.append(text)
        return [*frames, self._events.frame("response.refusal.delta", **at, delta=text)]

    def reasoning(self, text: str) -> list[bytes]:
        """Reasoning in words."""
        frames, part, at = self._part("reasoning", "reasoning_summary_text")
        part.texts.append(text)
        return [*frames, self._events.frame("response.reasoning_summary_text.delta", **at, delta=text)]

    def details(self, entries: list[Object]) -> list[bytes]:
        """What seals reasoning; it comes back with the item it belongs to."""
        frames = self._opened("reasoning")
        assert self._open is not None
        for entry in entries:
            _join(self._open.details, entry)
        return frames

    def call(self, fragment: Fragment) -> list[bytes]:
        """A call, or more of its arguments."""
        function, frames = fragment.function or Function(), []
        call = self._calls.get(fragment.index)
        if call is None:
            frames += self.close()
            index = len(self.output)
            tool = self._called.get(function.name or "") or Called(function.name or "")
            call = self._calls[fragment.index] = _Call(f"{self._identity}_{index}", index, fragment.id, tool)
            frames.append(self._added(index, call.told("", "in_progress")))
        if function.arguments:
            call.pieces.append(function.arguments)
            if not call.tool.custom:  # its text stands inside JSON: told when it is whole
                at = {"item_id": self._id(call.index), "output_index": call.index}
                frames.append(self._events.frame("response.function_call_arguments.delta", **at, delta=function.arguments))
        return frames

    def end(self, *, cut: bool) -> list[bytes]:
        """Everything closes. `cut`: the answer broke off in the latest item."""
        frames = self.close(cut=cut)
        for call in self._calls.values():
            frames += self._end_call(call, _status(cut and call.index == len(self.output) - 1))
        self._calls.clear()
        return frames

    def close(self, *, cut: bool = False) -> list[bytes]:
        """The open message or reasoning closes."""
        opened, self._open = self._open, None
        if opened is None:
            return []
        frames = self._close_part(opened)
        return [*frames, self._done(opened.index, opened.told(_status(cut and opened.index == len(self.output) - 1)))]

    # ── messages and reasoning

    def _opened(self, kind: str) -> list[bytes]:
        if self._open is not None and self._open.kind == kind:
            return []
        frames = self.close()
        index = len(self.output)
        name = f"{'msg' if kind == 'message' else 'rs'}_{self._identity}_{index}"
        self._open = _Open(kind, name, index)
        return [*frames, self._added(index, self._open.told("in_progress"))]

    def _part(self, of: str, kind: str) -> tuple[list[bytes], _Part, Object]:
        """The part that grows, opened where it is not, and where it is."""
        frames = self._opened(of)
        opened = self._open
        assert opened is not None
        if not opened.parts or opened.parts[-1].kind != kind:
            frames += self._close_part(opened)
            opened.parts.append(_Part(kind))
            family = "content_part" if of == "message" else "reasoning_summary_part"
            frames.append(self._events.frame(f"response.{family}.added", **_at(opened), part=opened.parts[-1].told()))
        return frames, opened.parts[-1], _at(opened)

    def _close_part(self, opened: _Open) -> list[bytes]:
        if not opened.parts:
            return []
        part, at = opened.parts[-1], _at(opened)
        part.close()
        told, word = part.told(), "refusal" if part.kind == "refusal" else "text"
        more: Object = {"logprobs": part.logprobs} if part.kind == "output_text" else {}
        family = "content_part" if opened.kind == "message" else "reasoning_summary_part"
        return [
            self._events.frame(f"response.{part.kind}.done", **at, **{word: told[word]}, **more),
            self._events.frame(f"response.{family}.done", **at, part=told),
        ]

    # ── calls

    def _end_call(self, call: _Call, status: str) -> list[bytes]:
        arguments = "".join(call.pieces) or "{}"
        at: Object = {"item_id": self._id(call.index), "output_index": call.index}
        frames: list[bytes] = []
        if call.tool.custom:
            text = free_text(arguments)
            frames.append(self._events.frame("response.custom_tool_call_input.delta", **at, delta=text))
            frames.append(self._events.frame("response.custom_tool_call_input.done", **at, input=text))
        else:
            if not call.pieces:
                frames.append(self._events.frame("response.function_call_arguments.delta", **at, delta=arguments))
            done = "response.function_call_arguments.done"
            frames.append(self._events.frame(done, **at, name=call.tool.name, arguments=arguments))
        return [*frames, self._done(call.index, call.told(arguments, status))]

    # ── any item

    def _id(self, index: int) -> object:
        return self.output[index]["id"]

    def _added(self, index: int, item: Object) -> bytes:
        self.output.append(item)
        return self._events.frame("response.output_item.added", output_index=index, item=item)

    def _done(self, index: int, item: Object) -> bytes:
        self.output[index] = item
        return self._events.frame("response.output_item.done", output_index=index, item=item)


def _status(cut: bool) -> str:
    return "incomplete" if cut else "completed"


def _at(opened: _Open) -> Object:
    """Where the latest part of an item is."""
    place = "content_index" if opened.kind == "message" else "summary_index"
    return {"item_id": opened.name, "output_index": opened.index, place: max(0, len(opened.parts) - 1)}


def _join(entries: list[Object], entry: Object) -> None:
    """Some providers tell an entry in fragments of the same place: texts grow, a signature comes last."""
    last = entries[-1] if entries else {}
    same = bool(last) and all(last.get(name) == entry.get(name) for name in ("type", "index"))
    if not same or last.get("signature") or "data" in entry:
        entries.append(dict(entry))
        return
    for name, value in entry.items():
        before = last.get(name)
        grows = name in ("text", "summary") and isinstance(before, str) and isinstance(value, str)
        last[name] = f"{before}{value}" if grows else before if value is None else value
