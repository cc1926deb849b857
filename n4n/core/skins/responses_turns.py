"""Input items of the Responses API as messages of a chat: texts, images, files, calls with their results, and sealed reasoning.

What follows each other on the assistant's side is one message of a chat, up to its next text.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.responses.chat_words import decoded, given
from n4n.core.dialects.responses.native import FOREIGN
from n4n.core.dialects.responses.words import FORMAT
from n4n.core.errors import MalformedRequest, Untellable
from n4n.core.origin import marks_of
from n4n.core.skins.responses_tools import arguments_of, function_name

Object = dict[str, object]
_NONE = msgspec.Raw(b"")
_TEXTS = frozenset(("input_text", "output_text", "text", "summary_text"))
_ASKING = frozenset(("user", "system", "developer"))
# What the API's own tools did: the answer that came of it stands in the text behind.
_RECORDS = frozenset(
    ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools", "mcp_call",
     "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output", "additional_tools")
)  # fmt: skip


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: msgspec.Raw = _NONE
    prompt_cache_breakpoint: msgspec.Raw = _NONE


class _Item(msgspec.Struct, gc=False):
    type: str = "message"
    role: str = ""
    content: list[_Part] | str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str = ""
    namespace: str | None = None
    arguments: msgspec.Raw = _NONE
    input: msgspec.Raw = _NONE
    output: msgspec.Raw = _NONE
    encrypted_content: str | None = None


_INPUT = msgspec.json.Decoder(list[_Item] | str)
_CONTENT = msgspec.json.Decoder(list[_Part] | str | None)
_TEXT = msgspec.json.Decoder(str | None)


@dataclass(slots=True)
class Told:
    """The messages of a chat, and what of the items it could not say."""

    messages: list[Object] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def chat_messages(instructions: msgspec.Raw | None, said: msgspec.Raw | None) -> Told:
    """All items, the instructions first. Raises MalformedRequest for what nobody could read, or only Responses can."""
    told = Told()
    words = decoded(instructions or b"null", _CONTENT, "instructions")
    if words:
        told.messages.append({"role": "system", "content": _plain(_parts(words, "instructions"))})
    items = decoded(said or b'""', _INPUT, "input")
    if isinstance(items, str):
        told.messages.append({"role": "user", "content": items})
        return told
    turns = _Turns(told)
    for place, item in enumerate(items):
        turns.add(item, f"input[{place}]")
    turns.end()
    return told


class _Turns:
    """Items in, messages out."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._answer: Object | None = None  # the assistant's message that is still open
        self._kept = 0  # items in it, as `reasoning_details` counts them
        self._sealed: list[Object] = []  # reasoning whose item has not come yet

    def add(self, item: _Item, path: str) -> None:
        match item.type:
            case "message":
                self._message(item, path)
            case "function_call" | "custom_tool_call":
                self._call(item, path)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, path)
            case "reasoning":
                self._reasoning(item)
            case name if name in _RECORDS:
                self._told.lost.append(f"{path} ({name})")
            case _:
                _only_there(f"{path} ({item.type[:40]})", path)

    def end(self) -> None:
        """The open message is whole."""
        if self._sealed and self._answer is not None:
            self._attach()
        self._sealed = []
        if self._answer is not None:
            self._told.messages.append(self._answer)
        self._answer, self._kept = None, 0

    def _message(self, item: _Item, path: str) -> None:
        content = item.content or ""
        if item.role in _ASKING:
            self.end()
            self._told.messages.append({"role": item.role, "content": _plain(_parts(content, f"{path}.content"))})
        elif item.role == "assistant":
            if self._answer is not None:
                sealed, self._sealed = self._sealed, []
                self.end()
                self._sealed = sealed
            self._say(content)
        else:
            raise MalformedRequest(f"{path}.role must be user, system, developer or assistant", param=f"{path}.role")

    def _say(self, content: list[_Part] | str) -> None:
        answer = self._opened()
        if isinstance(content, str):
            answer["content"] = content
        else:
            answer["content"] = "".join(part.text or "" for part in content if part.type in _TEXTS) or None
            refusal = "".join(part.refusal or "" for part in content if part.type == "refusal")
            if refusal:
                answer["refusal"] = refusal
        self._kept += 1

    def _call(self, item: _Item, path: str) -> None:
        if item.type == "custom_tool_call":
            arguments = arguments_of(decoded(bytes(item.input) or b"null", _TEXT, f"{path}.input") or "")
        else:
            arguments = decoded(bytes(item.arguments) or b"null", _TEXT, f"{path}.arguments") or "{}"
        function = {"name": function_name(item.name, item.namespace), "arguments": arguments}
        calls = self._opened().setdefault("tool_calls", [])
        assert isinstance(calls, list)
        calls.append({"id": item.call_id or item.id or "", "type": "function", "function": function})
        self._kept += 1

    def _result(self, item: _Item, path: str) -> None:
        self.end()
        output = decoded(bytes(item.output) or b"null", _CONTENT, f"{path}.output") or ""
        content = _plain(_parts(output, f"{path}.output"))
        self._told.messages.append({"role": "tool", "tool_call_id": item.call_id or "", "content": content})

    def _reasoning(self, item: _Item) -> None:
        sealed = item.encrypted_content or ""
        if sealed.startswith(FOREIGN):
            self._sealed += unsealed(sealed)
        elif sealed:
            self._sealed.append({"type": "reasoning.encrypted", "data": sealed, "id": item.id, "format": FORMAT})

    def _opened(self) -> Object:
        if self._answer is None:
            self._answer = {"role": "assistant", "content": None}
        self._attach()
        return self._answer

    def _attach(self) -> None:
        if not self._sealed or self._answer is None:
            return
        details = self._answer.setdefault("reasoning_details", [])
        assert isinstance(details, list)
        for entry in self._sealed:
            details.append(entry if "index" in entry else {**entry, "index": self._kept})
            self._kept += 1
        self._sealed = []


def _only_there(what: str, path: str) -> NoReturn:
    raise Untellable(
        f"{what} can be read by endpoints that speak the Responses API themselves; leave it out, or choose a model that has one", param=path
    )


def _parts(content: list[_Part] | str, path: str) -> list[Object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, f"{path}[{place}]") for place, part in enumerate(content)]


def _part(part: _Part, path: str) -> Object:
    made = _unmarked(part, path)
    if given(part.prompt_cache_breakpoint):
        made["prompt_cache_breakpoint"] = part.prompt_cache_breakpoint
    return made


def _unmarked(part: _Part, path: str) -> Object:
    if part.type in _TEXTS:
        return {"type": "text", "text": part.text or ""}
    if part.type == "input_image" and part.image_url is not None:
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
    if part.type == "input_file" and (part.file_data or part.file_url or part.file_id):
        told = {"file_data": part.file_data or part.file_url, "file_id": part.file_id, "filename": part.filename}
        return {"type": "file", "file": {name: value for name, value in told.items() if value is not None}}
    if part.type == "input_audio" and given(part.input_audio):
        return {"type": "input_audio", "input_audio": part.input_audio}
    _only_there(f"{path} ({part.type[:40]})", path)


def _plain(parts: list[Object]) -> object:
    """Text without a mark is a string, which every provider takes."""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def sealed(entries: list[Object]) -> str | None:
    """Other providers' entries of `reasoning_details` as what a client keeps and sends back unread; None: nothing has to come back."""
    if not any(entry.get(name) for entry in entries for name in ("signature", "data")):
        return None
    return FOREIGN + marks_of(entries) + b64encode(json_bytes.dump(entries)).decode()


def unsealed(content: str) -> list[Object]:
    """The entries again; none where somebody tampered with them."""
    try:
        entries = json_bytes.parse(b64decode(content.rpartition(".")[2], validate=True))
    except ValueError:
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
