"""What is asked and told, in nobody's dialect: each client writes an Ask in its own words, each provider reads one from its own.

Written apart from the gateway's own shapes, on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """Words."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture, as a `data:` URI or an address."""

    url: str


@dataclass(frozen=True)
class Thought:
    """Reasoning of an earlier answer with what its provider signed it with."""

    text: str
    signature: str


@dataclass(frozen=True)
class Call:
    """A call of a tool. Ids do not compare: some dialects have none."""

    name: str
    arguments: str = "{}"
    id: str = field(default="", compare=False)


@dataclass(frozen=True)
class Result:
    """What a tool answered."""

    name: str
    text: str
    id: str = field(default="", compare=False)


@dataclass(frozen=True)
class Own:
    """An earlier answer as the client got it, in its own words, to be sent back as it came."""

    told: tuple[Object, ...]


Part: TypeAlias = Text | Image | Thought | Call | Result | Own


@dataclass(frozen=True)
class Turn:
    """What one side says; results of tools are the user's."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Tool:
    """A function that may be called."""

    name: str
    description: str
    properties: tuple[str, ...]

    @property
    def parameters(self) -> Object:
        """As JSON schema."""
        return schema(self.properties)


def schema(properties: Sequence[str]) -> Object:
    """An object of texts, all of them required."""
    named = {name: {"type": "string"} for name in properties}
    return {"type": "object", "properties": named, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True)
class Ask:
    """A request. `choice`: auto, required, none or the name of a tool; `answer`: the members of the JSON object that is asked for."""

    turns: tuple[Turn, ...]
    system: str = "Answer briefly."
    max_tokens: int = 2000
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    one_call: bool = False  # no calls side by side
    answer: tuple[str, ...] = ()
    effort: str | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """A count: all input with what a cache read and wrote, all output with its reasoning."""

    prompt: int = 40
    cached: int = 0
    written: int = 0
    completion: int = 9
    reasoning: int = 0


@dataclass(frozen=True)
class Told:
    """An answer. `finish` in OpenAI's words."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    finish: str = "stop"
    tokens: Tokens = Tokens()


@dataclass(frozen=True)
class Heard:
    """An answer as a client has it, with n4n's block."""

    told: Told
    n4n: Mapping[str, Any]
    own: tuple[Object, ...] = ()  # the assistant's turn in the client's own words, to be sent back as it came
    others: tuple[Told, ...] = ()  # other choices, where more than one was asked for


@dataclass(frozen=True)
class Refused:
    """An error as a client has it. `status` None: in a stream that had begun, after `before`."""

    status: int | None
    code: str
    kind: str
    n4n: Mapping[str, Any]
    retry_after: str | None = None
    before: str = ""


def says(text: str) -> tuple[Turn, ...]:
    """A user's one text."""
    return (Turn("user", (Text(text),)),)


def merged(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Turns of one side in a row as one, texts in a row as one: some dialects want it so."""
    found: list[Turn] = []
    for turn in turns:
        if found and found[-1].role == turn.role:
            found[-1] = replace(found[-1], parts=_joined((*found[-1].parts, *turn.parts)))
        else:
            found.append(replace(turn, parts=_joined(turn.parts)))
    return tuple(found)


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + part.text)
        elif part != Text(""):
            found.append(part)
    return tuple(found)


def same(arguments: object) -> str:
    """Arguments of a call in one spelling, given as JSON text or as an object."""
    parsed = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    return json.dumps(parsed, sort_keys=True, ensure_ascii=False)


def tool(name: str, description: str | None, parameters: Mapping[str, Any]) -> Tool:
    """A tool as a dialect spells its parts."""
    return Tool(name, description or "", tuple(parameters.get("properties") or ()))
