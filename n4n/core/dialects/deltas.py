"""Deltas and messages of OpenAI's kin, brought into the one shape clients know; a change is made only where one is due.

Works on parsed JSON, in place. Every function says whether it changed anything, so that what is right stays the bytes it was.
"""

from __future__ import annotations

from typing import cast

import msgspec

Object = dict[str, object]

# https://platform.openai.com/docs/api-reference/chat/object and what the others say instead.
FINISHES = frozenset(("stop", "length", "tool_calls", "content_filter", "function_call"))
_SPELLINGS = {
    "eos": "stop", "eos_token": "stop", "end_turn": "stop", "stop_sequence": "stop", "completed": "stop", "STOP": "stop",
    "max_tokens": "length", "model_length": "length", "MAX_TOKENS": "length", "tool_use": "tool_calls",
    "refusal": "content_filter", "content_filtered": "content_filter", "SAFETY": "content_filter",
}  # fmt: skip
FAILED_FINISHES = frozenset(
    ("error", "insufficient_system_resource", "malformed_model_output", "malformed_tool_use", "malformed_function_call")
)
_OUTPUT = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal", "function_call", "audio")


class FunctionFragment(msgspec.Struct, frozen=True, gc=False):
    """The part of a call's arguments that a fragment brings."""

    arguments: str | None = None


class Sound(msgspec.Struct, frozen=True, gc=False):
    """Audio is there; what is in it stays unread."""


class CallFragment(msgspec.Struct, frozen=True, gc=False):
    """What identifies one fragment of a streamed tool call, and what it brings."""

    index: int
    id: str | None = None
    function: FunctionFragment | None = None


class ToolCalls:
    """The tool calls of one choice in a stream: dense indexes from 0 in order of appearance; id, type and name once each."""

    __slots__ = ("_ids", "_places", "_repaired")

    def __init__(self) -> None:
        self._ids: list[str] = []  # place = the call's index
        self._places: dict[int, int] = {}  # the provider's index to ours, of the latest call that had it
        self._repaired = False

    def accept(self, fragments: list[CallFragment]) -> bool:
        """True: these fragments are right as they are, and noted. False: they need `repair`, and nothing was noted."""
        if self._repaired:
            return False
        known = len(self._ids)
        fresh: list[str] = []
        for fragment in fragments:
            following = known + len(fresh)
            if not fragment.id:
                if not 0 <= fragment.index < following:
                    return False
            elif fragment.index != following or fragment.id in self._ids or fragment.id in fresh:
                return False
            else:
                fresh.append(fragment.id)
        self._ids += fresh
        self._places.update((place, place) for place in range(known, known + len(fresh)))
        return True

    def repair(self, calls: object) -> bool:
        """Put right a parsed `tool_calls`."""
        changed = False
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                changed |= self._repair(call)
        self._repaired |= changed
        return changed

    def _repair(self, call: Object) -> bool:
        said, name = call.get("index"), call.get("id")
        known = isinstance(name, str) and name in self._ids
        if known:
            place = self._ids.index(cast(str, name))
        elif isinstance(name, str) and name:
            place = self._new(name)
        elif isinstance(said, int) and said in self._places:
            place = self._places[said]
        elif self._ids and not isinstance(said, int):
            place = len(self._ids) - 1
        else:
            place = self._new(f"call_{len(self._ids)}")
            call["id"] = self._ids[place]
        self._places[said if isinstance(said, int) else place] = place
        changed = said != place or call.get("id") != name
        call["index"] = place
        return self._once(call) or changed if known else changed

    def _new(self, name: str) -> int:
        self._ids.append(name)
        return len(self._ids) - 1

    @staticmethod
    def _once(call: Object) -> bool:
        """A provider that repeats a call's opening in every fragment makes clients glue the names together."""
        function = call.get("function")
        if isinstance(function, dict):
            function.pop("name", None)
        call.pop("type", None)
        del call["id"]
        return True


def finish_reason(choice: Object, finished: bool) -> tuple[str | None, bool]:
    """The choice's finish reason in OpenAI's word (None: not finished here), and whether it had to be changed."""
    said = choice.get("finish_reason")
    reason = _SPELLINGS.get(said, said) if isinstance(said, str) and said and not finished else None
    if reason == said:
        return reason, False
    choice["finish_reason"] = reason
    return reason, True


def repair_message(message: Object) -> bool:
    """Reasoning under the one name clients know beside the one it came with; a list of content parts as text."""
    changed = False
    parts = message.get("content")
    if isinstance(parts, list):
        message["content"] = "".join(_text_of(part, "text") for part in parts) or None
        thought = "".join(_text_of(part, "thinking") for part in parts)
        if thought and not message.get("reasoning_content"):
            message["reasoning_content"] = thought
        changed = True
    reasoning = message.get("reasoning")
    if isinstance(reasoning, str) and reasoning and not message.get("reasoning_content"):
        message["reasoning_content"] = reasoning
        changed = True
    return changed


def _text_of(part: object, kind: str) -> str:
    """The text of a part if it is of this kind: {type: text, text} or {type: thinking, thinking: [{type: text, text}]}."""
    if not isinstance(part, dict) or part.get("type") != kind:
        return ""
    inner = part.get(kind)
    if isinstance(inner, list):
        return "".join(_text_of(piece, "text") for piece in inner)
    return inner if isinstance(inner, str) else ""


def repair_whole_calls(message: Object, seed: str) -> bool:
    """Tool calls of a whole message: an id each, arguments that parse even where there are none."""
    changed = False
    calls = message.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        if not isinstance(call, dict):
            continue
        if not call.get("id"):
            call["id"], changed = f"call_{seed}_{place}", True
        function = call.get("function")
        if isinstance(function, dict) and function.get("arguments") in ("", None):
            function["arguments"], changed = "{}", True
    return changed


def has_output(message: Object) -> bool:
    """Whether a client would see something: text, reasoning, a tool call, a refusal, sound."""
    return any(message.get(name) for name in _OUTPUT)


def text_bytes(text: str | None) -> int:
    """The bytes of a text in UTF-8."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def output_bytes(message: Object) -> int:
    """The bytes of text, reasoning and arguments in a parsed delta or message; reasoning under two names counts once."""
    texts = [message.get("content"), message.get("reasoning_content") or message.get("reasoning"), message.get("refusal")]
    calls = message.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else []), {"function": message.get("function_call")}]:
        function = call.get("function") if isinstance(call, dict) else None
        texts.append(function.get("arguments") if isinstance(function, dict) else None)
    return sum(text_bytes(text) for text in texts if isinstance(text, str))
