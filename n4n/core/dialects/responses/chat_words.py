"""The words of a chat request that the Responses API has words for too, typed; everything else in it stays unread."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from n4n.core.errors import MalformedRequest

T = TypeVar("T")
_NONE = msgspec.Raw(b"")


class Image(msgspec.Struct, gc=False):
    """`image_url`."""

    url: str
    detail: str | None = None


class File(msgspec.Struct, gc=False):
    """`file`: with its bytes as a data URL, or by an id of OpenAI's."""

    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class Part(msgspec.Struct, gc=False):
    """One part of a content."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: Image | str | None = None
    file: File | None = None
    input_audio: msgspec.Raw = _NONE
    prompt_cache_breakpoint: msgspec.Raw = _NONE
    cache_control: object = None


class Function(msgspec.Struct, gc=False):
    """What is called, with its arguments as JSON text."""

    name: str = ""
    arguments: str | None = None


class Custom(msgspec.Struct, gc=False):
    """A custom tool that is called, with free text."""

    name: str = ""
    input: str = ""


class Call(msgspec.Struct, gc=False):
    """One entry of `tool_calls`."""

    id: str = ""
    type: str = "function"
    function: Function | None = None
    custom: Custom | None = None


class Message(msgspec.Struct, gc=False):
    """One message of a chat."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    function_call: Function | None = None
    reasoning_details: object = None
    audio: object = None
    cache_control: object = None


class Definition(msgspec.Struct, gc=False):
    """The function of a tool."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = _NONE
    strict: bool | None = None


class CustomDefinition(msgspec.Struct, gc=False):
    """The custom tool of a tool."""

    name: str
    description: str | None = None
    format: dict[str, object] | None = None


class Tool(msgspec.Struct, gc=False):
    """One entry of `tools`."""

    type: str = "function"
    function: Definition | None = None
    custom: CustomDefinition | None = None


class Named(msgspec.Struct, gc=False):
    """A tool by its name."""

    name: str


class Reference(msgspec.Struct, gc=False):
    """One entry of the tools that `allowed_tools` lists."""

    type: str = "function"
    function: Named | None = None
    custom: Named | None = None


class Allowed(msgspec.Struct, gc=False):
    """`allowed_tools`."""

    mode: str = "auto"
    tools: list[Reference] = []


class Choice(msgspec.Struct, gc=False):
    """`tool_choice` where it is no word; `name` is how the old `function_call` names one."""

    type: str = "function"
    name: str | None = None
    function: Named | None = None
    custom: Named | None = None
    allowed_tools: Allowed | None = None


class Reasoning(msgspec.Struct, gc=False):
    """`reasoning`, as OpenRouter spells it, with OpenAI's own summary."""

    effort: str | None = None
    summary: str | None = None
    enabled: bool | None = None


def decoded(raw: bytes, decoder: msgspec.json.Decoder[T], name: str) -> T:
    """One member of a request; MalformedRequest, which names the place, where no provider could read it."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        what, at, path = str(error).partition(" - at `$")
        place = name + path.removesuffix("`") if at else name
        raise MalformedRequest(f"{place}: {what[:1].lower()}{what[1:]}", param=place) from error


def given(raw: msgspec.Raw) -> bool:
    """Whether a member was there and not null."""
    return bytes(raw) not in (b"", b"null")
