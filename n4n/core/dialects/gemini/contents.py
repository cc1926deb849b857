"""A chat's messages as Gemini's contents and system instruction (https://ai.google.dev/api/caching#Content).

System and developer messages become the instruction. Results of tools are named after the call they answer, stand in its order
and in one turn of their own. A thought's signature goes back with the part it came with, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.gemini import media
from n4n.core.dialects.gemini.signatures import signatures_of
from n4n.core.dialects.gemini.thinking import version_of
from n4n.core.errors import MalformedRequest

_NOTHING = msgspec.Raw(b"")
_NULL = b"null"
_SIGNED_SINCE = (3, 0)
# A history from elsewhere has no signatures. Google's word for "do not look for one":
# https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
_UNSIGNED = b"skip_thought_signature_validator"
_TEXT = b'{"text":'


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NOTHING
    refusal: msgspec.Raw = _NOTHING
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_details: msgspec.Raw = _NOTHING
    cache_control: msgspec.Raw = _NOTHING


_MESSAGES = msgspec.json.Decoder(list[_Message])
_PARTS = msgspec.json.Decoder(list[media.Part])


@dataclass(slots=True)
class _Turn:
    """Parts of one role in a row. A turn of tools' results is a user's, but never mixed with what the user says."""

    kind: str  # user, model, tool
    parts: list[bytes] = field(default_factory=list)


def contents(messages: bytes, model: str, warnings: list[str]) -> dict[str, bytes]:
    """`contents`, and `systemInstruction` where there is one. MalformedRequest: the messages are in no shape that a provider takes."""
    try:
        read = _MESSAGES.decode(messages)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"messages cannot be read: {error}", param="messages") from error
    return _Chat(model, warnings).made(read)


class _Chat:
    """One chat while it is put into turns."""

    def __init__(self, model: str, warnings: list[str]) -> None:
        self._needs_signatures = version_of(model) >= _SIGNED_SINCE
        self._warnings = warnings
        self._system: list[bytes] = []
        self._turns: list[_Turn] = []
        self._calls: dict[str | None, tuple[int, str, str]] = {}  # what answers it: its place, id and function
        self._results: list[tuple[int, list[bytes]]] = []  # of the turn of results that is being gathered
        self._unsigned: list[tuple[int, int]] = []  # turn and part of the first of some calls that came without a signature

    def made(self, messages: list[_Message]) -> dict[str, bytes]:
        for place, message in enumerate(messages):
            self._take(message, f"messages[{place}]")
        self._end_results()
        self._excuse()
        turns, system = self._turns, self._system
        if not turns:  # there is always something to answer
            turns, system = [_Turn("user", system or [b'{"text":""}'])], []
        made = {"contents": _written(turns)}
        return made | ({"systemInstruction": b'{"parts":[%b]}' % b",".join(system)} if system else {})

    def _take(self, message: _Message, where: str) -> None:
        if len(message.cache_control):
            self._cached()
        if message.role not in ("tool", "function"):
            self._end_results()
        match message.role:
            case "system" | "developer":
                self._system += self._parts(message.content, where)
            case "user":
                self._say("user", self._parts(message.content, where))
            case "assistant":
                self._answer(message, where)
            case "tool" | "function":
                self._result(message, where)
            case _:
                raise MalformedRequest(f"{where}.role must be one of system, developer, user, assistant, tool", param="messages")

    def _say(self, kind: str, parts: list[bytes]) -> None:
        """Adds to the turn at the end, or begins one."""
        if parts and (not self._turns or self._turns[-1].kind != kind):
            self._turns.append(_Turn(kind))
        if parts:
            self._turns[-1].parts += parts

    def _parts(self, content: bytes, where: str) -> list[bytes]:
        """A text, or a list of parts."""
        if len(content) == 0 or bytes(content) == _NULL:
            return []
        if bytes(memoryview(content)[:1]) != b"[":
            text = media.text_part(content, f"{where}.content")
            return [] if text is None else [text]
        try:
            read = _PARTS.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedRequest(f"{where}.content cannot be read: {error}", param="messages") from error
        if any(len(part.cache_control) for part in read):
            self._cached()
        made = (media.made(part, f"{where}.content[{place}]", self._warnings) for place, part in enumerate(read))
        return [part for part in made if part is not None]

    def _cached(self) -> None:
        self._warnings.append("cache_control was left out: Gemini caches prompts by itself")

    def _answer(self, message: _Message, where: str) -> None:
        """What the model said before: thoughts that have a signature, texts, calls."""
        signatures = signatures_of(message.reasoning_details)
        said = self._parts(message.content, where)
        if len(message.refusal) and bytes(message.refusal) != _NULL:
            said += self._parts(message.refusal, f"{where}.refusal")
        self._say("model", signatures.thoughts + signatures.signed(said))
        calls = [(call.id, call.id, call.function) for call in message.tool_calls or () if call.function is not None]
        if message.function_call is not None:
            calls.append((message.function_call.name, "", message.function_call))
        for key, call_id, function in calls:
            self._calls[key] = (len(self._calls), call_id, function.name)
            self._say("model", [_call_part(call_id, function, signatures.of_call(key))])
        if calls and not any(signatures.of_call(key) for key, _, _ in calls):
            self._unsigned.append((len(self._turns) - 1, len(self._turns[-1].parts) - len(calls)))

    def _result(self, message: _Message, where: str) -> None:
        key = message.tool_call_id if message.role == "tool" else message.name
        if key not in self._calls:
            raise MalformedRequest(f"{where}.tool_call_id names no call of an earlier message: {str(key)[:100]!r}", param="messages")
        place, call_id, function = self._calls[key]
        parts = self._parts(message.content, where)
        texts = [part for part in parts if part.startswith(_TEXT)]
        response: dict[str, object] = {"id": call_id} if call_id else {}
        response |= {"name": function, "response": _response(texts)}
        others = [part for part in parts if not part.startswith(_TEXT)]
        self._results.append((place, [json_bytes.encode({"functionResponse": response}), *others]))

    def _end_results(self) -> None:
        """Results are paired with calls by their order too, so they take that of the calls."""
        for _, parts in sorted(self._results, key=lambda result: result[0]):
            self._say("tool", parts)
        self._results.clear()

    def _excuse(self) -> None:
        """The first call of every step since the user spoke must have a signature, or an excuse."""
        latest = max((place for place, turn in enumerate(self._turns) if turn.kind == "user"), default=-1)
        for at, place in self._unsigned if self._needs_signatures else ():
            if at > latest:
                parts = self._turns[at].parts
                parts[place] = b'%b,"thoughtSignature":"%b"}' % (parts[place][:-1], _UNSIGNED)


def _written(turns: list[_Turn]) -> bytes:
    """The turns as JSON; pictures can be large, so everything is put together at once."""
    pieces: list[bytes] = []
    for turn in turns:
        pieces += (b"," if pieces else b"[", b'{"role":"model","parts":[' if turn.kind == "model" else b'{"role":"user","parts":[')
        for part in turn.parts:
            pieces += (part, b",")
        pieces[-1] = b"]}"
    return b"".join((*pieces, b"]"))


def _call_part(call_id: str, function: _Function, signature: str | None) -> bytes:
    call: dict[str, object] = {"id": call_id} if call_id else {}
    call |= {"name": function.name, "args": _arguments(function.arguments)}
    return json_bytes.encode({"functionCall": call} if signature is None else {"functionCall": call, "thoughtSignature": signature})


def _arguments(text: str) -> msgspec.Raw:
    """A call's arguments have to be an object; what a model wrote that is none goes as the one member of one."""
    raw = text.encode()
    if not raw.strip():
        return msgspec.Raw(b"{}")
    kind = _kind(raw)
    return msgspec.Raw(raw if kind is dict else b'{"arguments":%b}' % (json_bytes.dump(text) if kind is None else raw))


def _response(texts: list[bytes]) -> msgspec.Raw:
    """A result has to be an object; Gemini reads a text under `output` as the whole result."""
    said = "".join(str(json_bytes.parse(text[len(_TEXT) : -1])) for text in texts)
    raw = said.encode()
    return msgspec.Raw(raw if json_bytes.is_object(raw) and _kind(raw) is dict else json_bytes.dump({"output": said}))


def _kind(raw: bytes) -> type | None:
    """The kind of a JSON value; None: it is none."""
    try:
        return type(json_bytes.parse(raw))
    except json_bytes.NotJson:
        return None
