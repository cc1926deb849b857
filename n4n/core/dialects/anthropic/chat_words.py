"""The words of a chat request that Messages has words for too, typed; everything else in it stays unread."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from n4n.core.errors import MalformedRequest

T = TypeVar("T")
_NONE = msgspec.Raw(b"")


class Image(msgspec.Struct, gc=False):
    """`image_url`; the URL stays raw, for it may hold a whole image."""

    url: msgspec.Raw
    detail: str | None = None


class File(msgspec.Struct, gc=False):
    """`file`: with its bytes as a data URL, or by an id that only its own provider knows."""

    file_data: msgspec.Raw = _NONE
    file_id: str | None = None
    filename: str | None = None


class Part(msgspec.Struct, gc=False):
    """One part of a content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Image | str | None = None
    file: File | None = None
    cache_control: msgspec.Raw = _NONE
    prompt_cache_breakpoint: object = None


class Function(msgspec.Struct, gc=False):
    """What is called, with its arguments as JSON text."""

    name: str = ""
    arguments: str | None = None


class Call(msgspec.Struct, gc=False):
    """One entry of `tool_calls`."""

    id: str | None = None
    type: str = "function"
    function: Function | None = None


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
    cache_control: msgspec.Raw = _NONE


class Definition(msgspec.Struct, gc=False):
    """The function of a tool."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = _NONE
    strict: bool | None = None
    cache_control: msgspec.Raw = _NONE


class Tool(msgspec.Struct, gc=False):
    """One entry of `tools`."""

    type: str = "function"
    function: Definition | None = None
    cache_control: msgspec.Raw = _NONE


class Named(msgspec.Struct, gc=False):
    """A function by its name."""

    name: str


class Reference(msgspec.Struct, gc=False):
    """One entry of the tools that `allowed_tools` lists."""

    type: str = "function"
    function: Named | None = None


class Allowed(msgspec.Struct, gc=False):
    """`allowed_tools`."""

    mode: str = "auto"
    tools: list[Reference] = []


class Choice(msgspec.Struct, gc=False):
    """`tool_choice` where it is no word; `name` is how the old `function_call` names one."""

    type: str = "function"
    name: str | None = None
    function: Named | None = None
    allowed_tools: Allowed | None = None


class Format(msgspec.Struct, gc=False):
    """`response_format`; the schema stays raw."""

    type: str = "text"
    json_schema: msgspec.Raw = _NONE


class Schema(msgspec.Struct, gc=False):
    """`response_format.json_schema`."""

    schema: dict[str, object]


class Reasoning(msgspec.Struct, gc=False):
    """`reasoning`, as OpenRouter spells it."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None
    exclude: bool | None = None


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
