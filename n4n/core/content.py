"""What was asked and what was answered, as OpenTelemetry's conventions tell them of a conversation: messages with parts, bounded.

Only for tenants that asked for it. Texts that look like keys are left out; pictures, sounds and files are named and not told.
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ (gen_ai.input.messages, gen_ai.output.messages)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from n4n.core import json_bytes
from n4n.core.counting.texts import said_in
from n4n.core.large import LARGE

MOST = 32 << 10  # bytes of one attribute
MOST_READ = LARGE  # bytes of a body that is read for it
CUT = "… [cut by n4n]"
_KEY = re.compile(
    r"(?:sk-|gsk_|xai-|hf_|pplx-|nvapi-|gh[opsu]_|github_pat_|xox[abeprs]-)[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_.-]{20,}|"
    r"A[KS]IA[A-Z0-9]{16}|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|"
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]*"
)
_WORD = re.compile(r"[a-z_]{1,40}\Z")
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_ROOM_FOR_MARK = 160  # bytes of the message that says what was left out
Part = dict[str, object]
Message = dict[str, object]


def input_messages(body: bytes) -> str | None:
    """The JSON of what a request asks, in whatever skin's words; the newest messages where not all find room. None: it says nothing."""
    if len(body) > MOST_READ:
        return _within([_left_out(f"{len(body)} bytes")])
    try:
        asked = json_bytes.parse(body)
    except json_bytes.NotJson:
        return None
    if not isinstance(asked, dict):
        return None
    said = [one for name in ("instructions", "system", "messages", "input", "prompt") if name in asked for one in _read(name, asked[name])]
    return _within(said) if said else None


def _read(name: str, value: object) -> Iterator[Message]:
    if name in ("instructions", "system"):
        yield _message("system", _parts(value))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for one in value:
            if isinstance(one, dict):
                yield _of_item(one)
    else:  # texts, or tokens
        texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
        yield _message("user", [_text(one) for one in texts])


def _of_item(one: Mapping[str, object]) -> Message:
    """A message of chat or of Messages, or an item of Responses."""
    role, calls = one.get("role"), one.get("tool_calls")
    if role in ("tool", "function") or one.get("type") == "function_call_output":
        return _message("tool", [_answer(one.get("tool_call_id") or one.get("call_id"), one.get("content") or one.get("output"))])
    if one.get("type") in ("function_call", "reasoning"):
        return _message("assistant", [_part(one)])
    parts = _parts(one.get("content"))
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            function = call.get("function")
            parts.append(_call(call.get("id"), function if isinstance(function, dict) else {}))
    return _message(role if isinstance(role, str) and role in _ROLES else "user", parts)


def _parts(content: object) -> list[Part]:
    if isinstance(content, str):
        return [_text(content)]
    return [_part(one) for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _part(one: Mapping[str, object]) -> Part:
    kind, text = one.get("type"), one.get("text")
    match kind:
        case "tool_use" | "function_call":
            return _call(one.get("id") if kind == "tool_use" else one.get("call_id"), one)
        case "tool_result":
            return _answer(one.get("tool_use_id"), one.get("content"))
        case "thinking" | "reasoning":
            return {"type": "reasoning", "content": _shown(one.get("thinking") or "".join(_texts(one.get("summary"))))}
    if isinstance(text, str):
        return _text(text)
    return {"type": kind if isinstance(kind, str) and _WORD.match(kind) else "other"}


def _call(name: object, told: Mapping[str, object]) -> Part:
    arguments = told.get("arguments") if "arguments" in told else told.get("input")
    if not isinstance(arguments, str):
        arguments = json_bytes.dump(arguments).decode(errors="replace")
    return {"type": "tool_call", "id": _shown(name), "name": _shown(told.get("name")), "arguments": _shown(arguments)}


def _answer(of: object, content: object) -> Part:
    return {"type": "tool_call_response", "id": _shown(of), "response": _shown(content) or _shown("".join(_texts(content)))}


def _texts(content: object) -> list[str]:
    found = [one.get("text") for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    return [text for text in found if isinstance(text, str)]


def _text(text: str) -> Part:
    return {"type": "text", "content": _shown(text)}


def _shown(text: object) -> str:
    """A text without what looks like a key; '' for what is none."""
    return _KEY.sub("[key]", text[:MOST].encode(errors="replace").decode()) if isinstance(text, str) else ""


def _left_out(what: str) -> Message:
    return _message("system", [_text(f"{what} left out{CUT}")])


def _message(role: str, parts: list[Part]) -> Message:
    return {"role": role, "parts": parts}


class Heard:
    """An answer while it is given: its payloads, in their order and in any shape, as far as there is room for them."""

    __slots__ = ("_left", "_messages", "cut")

    def __init__(self) -> None:
        self._messages: dict[object, dict[object, Part]] = {}
        self._left = MOST // 2  # of text, which as JSON is longer
        self.cut = False

    def __repr__(self) -> str:
        return f"<Heard: {MOST // 2 - self._left} characters{', cut' if self.cut else ''}>"

    def take(self, payload: bytes) -> None:
        """The next one."""
        if self.cut or len(payload) > MOST_READ:
            self.cut = True
            return
        try:
            said = json_bytes.parse(payload)
        except json_bytes.NotJson:
            return
        if not isinstance(said, dict):
            return
        chosen = "choices" in said
        for kind, place, text in said_in(said):
            parts = self._messages.setdefault(place[0] if chosen else None, {})
            if len(text) > self._left:
                text, self.cut = text[: self._left] + CUT, True
            self._left -= min(self._left, len(text))
            _add(parts, kind, place, text)
            if self.cut:
                return

    def messages(self, finish_reasons: Sequence[str]) -> str | None:
        """The JSON of what was heard; None: nothing."""
        told: list[Message] = []
        for at, parts in enumerate(self._messages.values()):
            reason = finish_reasons[at] if at < len(finish_reasons) else ""
            told.append({**_message("assistant", [_without_keys(part) for part in parts.values()]), "finish_reason": reason})
        if self.cut and not told:
            told.append(_left_out("the answer is"))
        return _within(told) if told else None


def _add(parts: dict[object, Part], kind: str, place: tuple[object, ...], text: str) -> None:
    """The next piece of a text, of reasoning or of a call."""
    if kind != "call":
        part = parts.setdefault(place, {"type": kind, "content": ""})
        part["content"] = f"{part['content']}{text}"
        return
    at = place[2] if len(place) > 3 and place[1] == "call" else None
    part = parts.setdefault((place[0], at), {"type": "tool_call", "name": "", "arguments": ""})
    name = "name" if place[-1] == "name" else "arguments"
    part[name] = f"{part[name]}{text}"


def _without_keys(part: Part) -> Part:
    return {name: _shown(value) for name, value in part.items()}


def _within(said: Sequence[Message]) -> str:
    """The newest messages that find room, in their order; the first of them may be cut, and what is left out is said."""
    left, kept = MOST - _ROOM_FOR_MARK, list[bytes]()
    for message in reversed(said):
        encoded = json_bytes.encode(message)
        if len(encoded) + 1 > left:
            if not kept:
                kept.append(_cut(message, left))
            break
        kept.append(encoded)
        left -= len(encoded) + 1
    missing = len(said) - len(kept)
    if missing:
        kept.append(json_bytes.encode(_left_out(f"{missing} earlier messages")))
    return f"[{b','.join(reversed(kept)).decode()}]"


def _cut(message: Message, room: int) -> bytes:
    """A message whose texts are so short that it has room."""
    length = room
    while True:
        length //= 2
        parts = message["parts"]
        shorter = [_shortened(part, length) for part in (parts if isinstance(parts, list) else [])[: max(1, length // 64)]]
        encoded = json_bytes.encode({**message, "parts": shorter})
        if len(encoded) <= room:
            return encoded


def _shortened(part: Mapping[str, object], length: int) -> Part:
    return {name: f"{text[:length]}{CUT}" if isinstance(text, str) and len(text) > length else text for name, text in part.items()}
