"""A chat as `system` and `messages` of Converse: instructions hoisted, neighbours of a role merged, all results of a turn together.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html. Every block is JSON already; a cache mark is a block
behind what it marks. Where no tools go out, Converse refuses blocks of calls and results in the history: they are told as text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.marks import CACHE, mark
from n4n.core.dialects.bedrock.media import Media
from n4n.core.dialects.bedrock.models import Traits
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.thinking import restored
from n4n.core.dialects.bedrock.words import Call, Function, Message, Part, decoded
from n4n.core.errors import MalformedRequest

_MESSAGES = msgspec.json.Decoder(list[Message])
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:-]")
_MOST_ID = 64
_BEGINNING = b'{"text":"\xe2\x80\xa6"}'  # stands for the client's side where it has said nothing: …
_NO_OUTPUT = b'{"text":"(no output)"}'  # blank texts are refused, and a result has to hold something
_TEXTS = frozenset(("text", "input_text", "output_text"))
_IMAGE, _DOCUMENT, _TEXT = b'{"image"', b'{"document"', b'{"text"'
_CALL, _REASONING = b'{"toolUse"', b'{"reasoningContent"'


@dataclass(slots=True)
class Turn:
    """All that one side says until the other speaks."""

    role: str
    blocks: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> list[bytes]:
        """Results stand before everything else."""
        return self.results + self.blocks


@dataclass(slots=True)
class Talk:
    """A chat in the shape of Converse."""

    system: list[bytes] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def turn(self, role: str) -> Turn:
        """The turn of a role that what comes next belongs to."""
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]

    def pieces(self) -> Iterator[bytes]:
        """The inside of `messages`, in pieces that are many MiB long where there are images: to be joined once."""
        for place, turn in enumerate(self.turns):
            yield b'%b{"role":"%b","content":[' % (b"," if place else b"", turn.role.encode())
            for at, block in enumerate(turn.content):
                if at:
                    yield b","
                yield block
            yield b"]}"

    @property
    def awaits_unsigned(self) -> bool:
        """Whether results are brought to calls that were made without signed reasoning, as another provider's are."""
        if len(self.turns) < 2 or not self.turns[-1].results:
            return False
        return any(block.startswith(_CALL) for block in self.turns[-2].blocks) and not self.turns[-2].blocks[0].startswith(_REASONING)


def talk(raw: bytes, traits: Traits, media: Media, notes: Notes, *, tools: bool) -> Talk:
    """The messages of a chat; `tools`: some go out beside them. Raises MalformedRequest for what no provider could read."""
    messages: list[Message] = decoded(raw, _MESSAGES, "messages")
    return _Telling(traits, media, notes, tools=tools).told(messages)


class _Telling:
    """One chat while it is put into turns."""

    def __init__(self, traits: Traits, media: Media, notes: Notes, *, tools: bool) -> None:
        self._traits, self._media, self._notes, self._tools = traits, media, notes, tools
        self._talk = Talk()
        self._names: dict[str, str] = {}  # call's id ▸ function, to tell results as text
        self._pending: list[str] = []  # ids of calls by the old `function_call`, whose results name no id

    def told(self, messages: list[Message]) -> Talk:
        for place, message in enumerate(messages):
            self._take(message, f"messages[{place}]")
        talk = self._talk
        talk.turns = [turn for turn in talk.turns if turn.content]
        if not talk.turns:  # there is always something to answer
            talk.turns.append(Turn("user", [block for block in talk.system if block.startswith(_TEXT)] or [_BEGINNING]))
            talk.system = []
        elif talk.turns[0].role == "assistant":
            talk.turns.insert(0, Turn("user", [_BEGINNING]))
            self._notes.changed("a user message was put before the first one", "begins with the user")
        self._trim()
        return talk

    def _take(self, message: Message, path: str) -> None:
        if message.name is not None and message.role != "function":
            self._notes.left_out("the name of a message")
        match message.role:
            case "system" | "developer":
                self._talk.system += self._blocks(message, path, instructions=True)
            case "user":
                self._user(message, path)
            case "assistant":
                self._answer(message, path)
            case "tool":
                self._result(message, message.tool_call_id or "", path)
            case "function":
                self._result(message, self._pending.pop(0) if self._pending else "", path)
            case _:
                raise MalformedRequest(f"{path}.role must be system, developer, user, assistant or tool", param=f"{path}.role")

    def _user(self, message: Message, path: str) -> None:
        blocks = self._blocks(message, path)
        if any(block.startswith(_DOCUMENT) for block in blocks) and not any(block.startswith(_TEXT) for block in blocks):
            blocks.insert(0, _BEGINNING)  # a document has to stand beside a text
        self._talk.turn("user").blocks += blocks

    def _answer(self, message: Message, path: str) -> None:
        blocks = self._blocks(message, path)
        if message.refusal and message.refusal.strip():
            blocks.append(_text(message.refusal))
        for place, call in enumerate(message.tool_calls or ()):
            if call.function is None:
                self._notes.left_out(f"{path}.tool_calls[{place}]", f"takes no call of type {call.type[:40]}")
            else:
                blocks.append(self._call(call, call.function, f"call_{place}"))
        if message.function_call is not None:
            self._pending.append(f"call_{path[9:-1]}")
            blocks.append(self._call(Call(self._pending[-1]), message.function_call, ""))
        details = message.reasoning_details or ()
        self._talk.turn("assistant").blocks += restored(blocks, details, signed=self._traits.takes_signed)

    def _call(self, call: Call, function: Function, otherwise: str) -> bytes:
        call_id = safe_id(call.id or otherwise)
        self._names[call_id] = function.name
        if not self._tools:
            self._notes.changed("calls of tools and their results were told as text", "takes them only beside tools")
            return _text(f"[called {function.name}: {function.arguments or '{}'}]")
        use = {"toolUseId": call_id, "name": function.name, "input": _input(function.arguments or "")}
        return json_bytes.encode({"toolUse": use})

    def _result(self, message: Message, call_id: str, path: str) -> None:
        turn, call_id = self._talk.turn("user"), safe_id(call_id)
        blocks = self._blocks(message, path)
        marks = [block for block in blocks if block.startswith(CACHE)]
        blocks = [block for block in blocks if not block.startswith(CACHE)]
        if not self._traits.images_in_results or not self._tools:
            turn.blocks += [block for block in blocks if block.startswith(_IMAGE)]
            blocks = [block for block in blocks if not block.startswith(_IMAGE)]
        if self._tools:
            status = b',"status":"error"' if message.is_error else b""
            told = b'{"toolResult":{"toolUseId":%b,"content":[%b]%b}}'
            turn.results.append(told % (json_bytes.encode(call_id), b",".join(blocks) or _NO_OUTPUT, status))
        else:
            turn.results += [_text(f"[result of {self._names.get(call_id, call_id)}:]"), *(blocks or [_NO_OUTPUT])]
        turn.results += marks[-1:]

    def _blocks(self, message: Message, path: str, *, instructions: bool = False) -> list[bytes]:
        """The content of one message; a mark on the message is one behind its last block. Blank text is left out, Converse refuses it."""
        content, made = message.content, []
        if isinstance(content, str):
            made = [_text(content)] if content.strip() else []
        for place, part in enumerate(content if isinstance(content, list) else ()):
            block = self._block(part, f"{path}.content[{place}]", instructions=instructions)
            if block is not None:
                made.append(block)
                made += mark(part.cache_control or part.prompt_cache_breakpoint, self._traits, self._notes)
        if made and not made[-1].startswith(CACHE):
            made += mark(message.cache_control, self._traits, self._notes)
        return made

    def _block(self, part: Part, path: str, *, instructions: bool) -> bytes | None:
        text = part.refusal if part.type == "refusal" else part.text
        if part.type in _TEXTS or part.type == "refusal":
            return _text(text) if text and text.strip() else None
        if part.type == "guarded_text":
            if not text or not text.strip():
                return None
            guarded = {"text": text, "qualifiers": part.qualifiers} if part.qualifiers else {"text": text}
            return json_bytes.dump({"guardContent": {"text": guarded}})
        if not instructions:
            if part.type == "image_url" and bytes(memoryview(part.image_url)[:4]) != b"null":
                return self._media.image(part.image_url, path)
            if part.type == "file" and part.file is not None:
                return self._media.document(part.file, path)
            if part.type == "input_audio" and part.input_audio is not None:
                return self._media.sound(part.input_audio, path)
        raise self._notes.untellable(path, f"takes no {part.type[:40]} {'among instructions' if instructions else 'there'}")

    def _trim(self) -> None:
        """The beginning of an answer must not end in blanks."""
        last = self._talk.turns[-1]
        if last.role == "assistant" and last.blocks[-1].startswith(_TEXT):
            said = json_bytes.parse(last.blocks[-1])
            assert isinstance(said, dict)
            last.blocks[-1] = _text(str(said["text"]).rstrip())


def safe_id(call_id: str) -> str:
    """A call's id as Converse takes it, the same for the call and its result: 1 to 64 letters, digits and `_.:-`."""
    plain = _NOT_IN_IDS.sub("_", call_id) or "call"
    return plain if len(plain) <= _MOST_ID else f"call_{hashlib.sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _text(text: str) -> bytes:
    return b'{"text":%b}' % json_bytes.dump(text)


def _input(arguments: str) -> msgspec.Raw:
    """A call's arguments have to be an object, their text as it came; what a model wrote that is none goes as the one member of one."""
    raw = arguments.encode(errors="backslashreplace").strip()
    if not raw:
        return msgspec.Raw(b"{}")
    try:
        whole = json_bytes.parse(raw)
    except json_bytes.NotJson:
        return msgspec.Raw(json_bytes.dump({"arguments": arguments}))
    return msgspec.Raw(raw if isinstance(whole, dict) else b'{"arguments":%b}' % raw)
