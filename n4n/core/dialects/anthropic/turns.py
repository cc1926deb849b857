"""A chat as turns: its instructions hoisted, calls as blocks, all results of a turn together and first, neighbours of a role merged.

https://platform.claude.com/docs/en/build-with-claude/working-with-messages, …/agents-and-tools/tool-use/implement-tool-use
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from n4n.core.dialects.anthropic.chat_words import Call, Function, Message, decoded
from n4n.core.dialects.anthropic.events import input_object
from n4n.core.dialects.anthropic.parts import Block, Notes, blocks_of
from n4n.core.dialects.anthropic.thinking import restored
from n4n.core.errors import MalformedRequest

_MESSAGES = msgspec.json.Decoder(list[Message])
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_BEGINNING = "…"  # stands for the client's side where a chat begins with an answer


@dataclass(slots=True)
class Turn:
    """All that one side says until the other speaks."""

    role: str
    blocks: list[Block] = field(default_factory=list)
    results: list[Block] = field(default_factory=list)

    @property
    def content(self) -> list[Block]:
        """Results stand before everything else, or they are refused."""
        return self.results + self.blocks


@dataclass(slots=True)
class Talk:
    """A chat in the shape of Messages."""

    system: list[Block] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def turn(self, role: str) -> Turn:
        """The turn of a role that what comes next belongs to."""
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]

    @property
    def unsigned_calls(self) -> bool:
        """Whether calls await their results' use that were made without signed reasoning, as another provider's are."""
        if len(self.turns) < 2 or not self.turns[-1].results:
            return False
        blocks = self.turns[-2].blocks
        return bool(blocks) and blocks[0]["type"] not in ("thinking", "redacted_thinking")


def talk(raw: bytes, notes: Notes) -> Talk:
    """The messages of a chat. Raises MalformedRequest for what no provider could read."""
    told = Talk()
    pending: list[str] = []  # ids of calls by the old `function_call`, whose results name no id
    messages: list[Message] = decoded(raw, _MESSAGES, "messages")
    for place, message in enumerate(messages):
        path = f"messages[{place}]"
        if message.name is not None and message.role != "function":
            notes.left_out("the name of a message")
        match message.role:
            case "system" | "developer":
                told.system += blocks_of(message, path, notes)
            case "user":
                told.turn("user").blocks += blocks_of(message, path, notes)
            case "assistant":
                _answer(told, message, path, notes, pending)
            case "tool":
                told.turn("user").results.append(_result(message, message.tool_call_id or "", path, notes))
            case "function":
                told.turn("user").results.append(_result(message, pending.pop(0) if pending else "", path, notes))
            case _:
                raise MalformedRequest(f"{path}.role must be system, developer, user, assistant or tool", param=f"{path}.role")
    told.turns = [turn for turn in told.turns if turn.content]
    if told.turns and told.turns[0].role == "assistant":
        told.turns.insert(0, Turn("user", [{"type": "text", "text": _BEGINNING}]))
        notes.say("a user message was put before the first one, which is the assistant's: Messages begins with the user")
    _trim(told)
    return told


def _answer(told: Talk, message: Message, path: str, notes: Notes, pending: list[str]) -> None:
    blocks = blocks_of(message, path, notes)
    if message.refusal and message.refusal.strip():
        blocks.append({"type": "text", "text": message.refusal})
    for place, call in enumerate(message.tool_calls or ()):
        if call.function is None:
            notes.left_out(f"{path}.tool_calls[{place}]", f"takes no call of type {call.type[:40]}")
        else:
            blocks.append(_call(call, call.function, f"call_{place}"))
    if message.function_call is not None:
        pending.append(f"call_{path[9:-1]}")
        blocks.append(_call(Call(pending[-1]), message.function_call, ""))
    told.turn("assistant").blocks += restored(blocks, message.reasoning_details)


def _call(call: Call, function: Function, otherwise: str) -> Block:
    return {
        "type": "tool_use",
        "id": safe_id(call.id or otherwise),
        "name": function.name,
        "input": input_object(function.arguments or ""),
    }


def _result(message: Message, call_id: str, path: str, notes: Notes) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": safe_id(call_id)}
    blocks = blocks_of(message, path, notes)
    marks = [block.pop("cache_control") for block in blocks if "cache_control" in block]
    if marks:
        result["cache_control"] = marks[-1]
    if isinstance(message.content, str) and blocks:
        result["content"] = message.content
    elif blocks:
        result["content"] = blocks
    return result


def safe_id(call_id: str) -> str:
    """A call's id as Anthropic takes it, the same for the call and its result: letters, digits, `_` and `-`."""
    return _NOT_IN_IDS.sub("_", call_id)


def _trim(told: Talk) -> None:
    """The beginning of an answer must not end in blanks."""
    last = told.turns[-1] if told.turns else None
    if last is not None and last.role == "assistant" and last.blocks[-1]["type"] == "text":
        last.blocks[-1]["text"] = str(last.blocks[-1]["text"]).rstrip()
