"""A chat as its client writes it, as far as Converse has words for it. What goes out as it came stays raw JSON.

https://platform.openai.com/docs/api-reference/chat/create, with what others added: `cache_control` (Anthropic), `reasoning` and
`reasoning_details` (OpenRouter).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from n4n.core.errors import MalformedRequest

T = TypeVar("T")
NOTHING = msgspec.Raw(b"null")
_NAMED = msgspec.json.Decoder(str | None)


class Ending(msgspec.Struct):
    """`ttl` of a cache mark."""

    ttl: str | None = None


class Image(msgspec.Struct):
    """`image_url`, where it is more than an address. What may be many MiB long is never decoded."""

    url: msgspec.Raw = NOTHING
    detail: str | None = None


class Sound(msgspec.Struct):
    """`input_audio`."""

    data: msgspec.Raw = NOTHING
    format: str = ""


class File(msgspec.Struct):
    """`file`."""

    file_data: msgspec.Raw = NOTHING
    file_id: str | None = None
    filename: str | None = None


class Part(msgspec.Struct):
    """One content part."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = NOTHING
    input_audio: Sound | None = None
    file: File | None = None
    cache_control: Ending | None = None
    prompt_cache_breakpoint: Ending | None = None
    qualifiers: list[str] | None = None  # of guarded text


class Function(msgspec.Struct):
    """What is called, and with what."""

    name: str = ""
    arguments: str | None = None


class Call(msgspec.Struct):
    """One entry of `tool_calls`."""

    id: str | None = None
    type: str = "function"
    function: Function | None = None


class Message(msgspec.Struct):
    """One message of any role."""

    role: str
    content: list[Part] | str | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    tool_call_id: str | None = None
    reasoning_details: list[object] | None = None
    cache_control: Ending | None = None
    is_error: bool | None = None  # a tool's result that tells of a failure, as Messages says it


class Definition(msgspec.Struct):
    """A function that may be called."""

    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = NOTHING
    strict: bool | None = None
    cache_control: Ending | None = None


class Tool(msgspec.Struct):
    """One entry of `tools`."""

    type: str = "function"
    function: Definition | None = None
    cache_control: Ending | None = None


class Allowed(msgspec.Struct):
    """`allowed_tools` of a choice."""

    mode: str = "auto"
    tools: list[Tool] = []


class Choice(msgspec.Struct):
    """`tool_choice`, where it is more than a word; `function_call` too."""

    type: str = "function"
    function: Function | None = None
    name: str | None = None
    allowed_tools: Allowed | None = None


class Schema(msgspec.Struct):
    """`json_schema` of a `response_format`."""

    name: str | None = None
    description: str | None = None
    schema: object = None


class Format(msgspec.Struct):
    """`response_format`."""

    type: str = "text"
    json_schema: Schema | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, as OpenRouter says it."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None
    exclude: bool | None = None


class Thinking(msgspec.Struct):
    """`thinking`, as Messages says it."""

    type: str = "enabled"
    budget_tokens: int | None = None
    display: str | None = None


def decoded(raw: bytes | None, decoder: msgspec.json.Decoder[T], field: str) -> T:
    """A member of the body, read; None goes in for one that is not there. Raises MalformedRequest, naming the field."""
    try:
        return decoder.decode(b"null" if raw is None else raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{field} cannot be read: {error}", param=field) from error


def word(raw: bytes | None, field: str) -> str | None:
    """A member that is a text."""
    return decoded(raw, _NAMED, field)
