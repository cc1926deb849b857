"""Messages of a chat as input items: text, images, files, calls with their results, and reasoning that its provider sealed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from n4n.core.dialects.responses.chat_words import Call, Image, Message, Part, decoded, given
from n4n.core.dialects.responses.notes import Notes
from n4n.core.dialects.responses.words import FORMAT
from n4n.core.errors import MalformedRequest

Item = dict[str, object]
_MESSAGES = msgspec.json.Decoder(list[Message])
_TEXTS = frozenset(("text", "input_text", "output_text"))
_ASKING = frozenset(("system", "developer", "user"))


def input_items(messages: bytes, notes: Notes) -> list[Item]:
    """All messages. MalformedRequest for what nobody could read."""
    read: list[Message] = decoded(messages, _MESSAGES, "messages")
    return _Talk(notes).items(read)


class _Talk:
    """One conversation on its way."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._custom: set[str] = set()  # ids of calls of custom tools: their results have a type of their own
        self._unnamed = ""  # the id made for the latest call of the old kind, which has none

    def items(self, messages: Iterable[Message]) -> list[Item]:
        return [item for place, message in enumerate(messages) for item in self._message(message, f"messages[{place}]")]

    def _message(self, message: Message, path: str) -> Iterator[Item]:
        if message.name and message.role != "function":
            self._notes.left_out("name")
        if message.cache_control or message.audio:
            self._notes.left_out(f"{path}.{'audio' if message.audio else 'cache_control'}")
        if message.role in _ASKING:
            yield {"role": message.role, "content": self._content(message.content, f"{path}.content")}
        elif message.role == "assistant":
            yield from self._answer(message, path)
        elif message.role in ("tool", "function"):
            yield self._result(message, path)
        else:
            raise MalformedRequest(f"{path}.role must be system, developer, user, assistant or tool", param=f"{path}.role")

    # ── what was asked

    def _content(self, content: str | list[Part] | None, path: str) -> object:
        if content is None or isinstance(content, str):
            return content or ""
        return [self._part(part, f"{path}[{place}]") for place, part in enumerate(content)]

    def _part(self, part: Part, path: str) -> Item:
        made = self._unmarked(part, path)
        if given(part.prompt_cache_breakpoint):
            made["prompt_cache_breakpoint"] = part.prompt_cache_breakpoint
        if part.cache_control:
            self._notes.left_out("cache_control", "caches by itself")
        return made

    def _unmarked(self, part: Part, path: str) -> Item:
        if part.type in _TEXTS:
            return {"type": "input_text", "text": part.text or ""}
        if part.type == "image_url" and part.image_url is not None:
            image = part.image_url if isinstance(part.image_url, Image) else Image(part.image_url)
            return {"type": "input_image", "image_url": image.url, "detail": image.detail or "auto"}
        if part.type == "file" and part.file is not None:
            told = {"file_id": part.file.file_id, "file_data": part.file.file_data, "filename": part.file.filename}
            return {"type": "input_file", **{name: value for name, value in told.items() if value is not None}}
        if part.type == "input_audio" and given(part.input_audio):
            return {"type": "input_audio", "input_audio": part.input_audio}
        raise self._notes.untellable(path, f"takes no {part.type[:40]}")

    # ── what was answered

    def _answer(self, message: Message, path: str) -> Iterator[Item]:
        others: list[Item] = []
        spoken = self._spoken(message, f"{path}.content")
        if spoken:
            others.append({"role": "assistant", "content": spoken})
        calls = message.tool_calls or []
        if message.function_call is not None:
            self._unnamed = f"call_{path}"
            calls = [*calls, Call(id=self._unnamed, function=message.function_call)]
        others += [self._call(call) for call in calls]
        yield from _placed(_sealed(message.reasoning_details), others)

    def _spoken(self, message: Message, path: str) -> object:
        if isinstance(message.content, str) and not message.refusal:
            return message.content
        parts = message.content or []
        said = [Part(text=parts)] if isinstance(parts, str) else parts
        made: list[Item] = []
        for place, part in enumerate([*said, *([Part("refusal", refusal=message.refusal)] if message.refusal else [])]):
            if part.type in _TEXTS:
                made.append({"type": "output_text", "text": part.text or ""})
            elif part.type == "refusal":
                made.append({"type": "refusal", "refusal": part.refusal or ""})
            else:
                self._notes.left_out(f"{path}[{place}]", f"takes no {part.type[:40]} of an assistant")
        return made

    def _call(self, call: Call) -> Item:
        if call.custom is not None:
            self._custom.add(call.id)
            return {"type": "custom_tool_call", "call_id": call.id, "name": call.custom.name, "input": call.custom.input}
        name, arguments = (call.function.name, call.function.arguments) if call.function is not None else ("", None)
        return {"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments or "{}"}

    def _result(self, message: Message, path: str) -> Item:
        name = self._unnamed if message.role == "function" else message.tool_call_id or ""
        kind = "custom_tool_call_output" if name in self._custom else "function_call_output"
        return {"type": kind, "call_id": name, "output": self._content(message.content, f"{path}.content")}


class _Sealed(msgspec.Struct, gc=False):
    """An entry of `reasoning_details` that this API made."""

    data: str
    id: str | None = None
    index: int = 0


def _sealed(details: object) -> list[_Sealed]:
    """Those that this API can read again, by place; what others sealed, nobody here can read."""
    found = details if isinstance(details, list) else []
    ours = [one for one in found if isinstance(one, dict) and (one.get("format"), one.get("type")) == (FORMAT, "reasoning.encrypted")]
    read = [_Sealed(one["data"], _text(one.get("id")), _whole(one.get("index"))) for one in ours if _text(one.get("data"))]
    return sorted(read, key=lambda one: one.index)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int:
    return value if type(value) is int else 0


def _placed(sealed: list[_Sealed], others: list[Item]) -> Iterator[Item]:
    """Reasoning where it was: in front of what came of it, for it is refused where nothing follows."""
    waiting = list(sealed)
    place = 0
    for at, other in enumerate(others):
        while waiting and (waiting[0].index <= place or at == len(others) - 1):
            yield _reasoning(waiting.pop(0))
            place += 1
        yield other
        place += 1


def _reasoning(sealed: _Sealed) -> Item:
    item: Item = {"type": "reasoning", "summary": [], "encrypted_content": sealed.data}
    return item if sealed.id is None else {**item, "id": sealed.id}
