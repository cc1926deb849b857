"""What of a request and of its answer is text that a model reads or writes, in the words of any dialect, as texts to count.

Prompts: chat, Responses, Anthropic's Messages, Gemini, Bedrock's Converse, text completions, embeddings. Answers: the shapes in which
n4n passes them on. What cannot be counted as text (pictures, sounds, documents, definitions of tools) is left out or counted as its JSON,
and makes the count inexact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from n4n.core import json_bytes

PER_MESSAGE, PER_PROMPT = 3, 3  # tokens around a message, and before the answer: OpenAI's chat models
_PROMPT = ("instructions", "system", "systemInstruction", "system_instruction", "messages", "contents", "input", "prompt", "requests")
_TOOLS = ("tools", "functions", "toolConfig", "tool_config", "response_format", "output_config", "generationConfig")
_SCHEMAS = frozenset(("responseJsonSchema", "responseSchema"))  # of generationConfig, all else of which is numbers
_TEXTS = frozenset((
    "content", "text", "parts", "name", "arguments", "args", "output", "thinking", "reasoning_content", "refusal", "summary", "tool_calls",
    "function_call", "function", "functionCall", "functionResponse", "response", "toolUse", "toolResult", "input", "json",
    "reasoningContent", "reasoningText",
))  # fmt: skip
_AS_JSON = frozenset(("args", "response", "json"))  # values of any shape, which a model sees as their JSON
_OPAQUE = frozenset((
    "image_url", "input_audio", "file", "audio", "inlineData", "inline_data", "fileData", "file_data", "source", "image", "document",
    "video", "file_id", "signature",
))  # fmt: skip
_NOT_TEXT = frozenset(("image", "document", "input_image", "input_file", "image_url", "input_audio", "file", "video", "redacted_thinking"))


class Prompt(msgspec.Struct):
    """Texts of a request. `more`: tokens that are around its messages, or that it brings as such; `exact`: there is nothing else in it."""

    texts: list[str]
    messages: int = 0
    more: int = 0
    exact: bool = True


class Output(msgspec.Struct):
    """Texts of an answer, each as it reads when its pieces are joined."""

    texts: list[str]
    reasoning: list[str]
    exact: bool = True


def prompt_of(body: bytes) -> Prompt | None:
    """Of a request as it was sent; None: there is nothing to count."""
    try:
        asked = json_bytes.parse(body)
    except json_bytes.NotJson:
        return None
    if not isinstance(asked, dict):
        return None
    found = Prompt([])
    for name in _PROMPT:
        if name in asked:
            _read(asked[name], found)
    if found.messages:
        found.more += PER_PROMPT + PER_MESSAGE * found.messages
    for name in _TOOLS:
        _definitions(name, asked.get(name), found)
    return found if found.texts or found.more else None


def _definitions(name: str, value: object, found: Prompt) -> None:
    if name == "generationConfig" and isinstance(value, dict):
        value = {inner: schema for inner, schema in value.items() if inner in _SCHEMAS}
    if value:
        found.texts.append(json_bytes.dump(value).decode(errors="replace"))
        found.exact = False


def _read(value: object, found: Prompt) -> None:
    """A text, a list of them, tokens, messages, parts: whatever stands where text may."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            found.texts.append(one)
        elif type(one) is int:
            found.more += 1  # text that is tokens already
        elif isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            todo.extend(_members(one, found))


def _members(one: Mapping[str, object], found: Prompt) -> Iterator[object]:
    role, kind = one.get("role"), _at(one.get("type"))
    if isinstance(role, str):
        found.messages += 1
        found.texts.append(role)
    if kind in _NOT_TEXT or not _OPAQUE.isdisjoint(one):
        found.exact = False
    if kind in _NOT_TEXT:
        return
    for name, inner in one.items():
        if name in _AS_JSON or (name == "input" and isinstance(inner, dict)):
            yield json_bytes.dump(inner).decode(errors="replace")
        elif name in _TEXTS:
            yield inner


def output_of(pieces: Iterable[bytes]) -> Output | None:
    """Of the events or the body of an answer, in their order; None: there is nothing to count."""
    texts: dict[tuple[object, ...], list[str]] = {}
    reasoning: dict[tuple[object, ...], list[str]] = {}
    exact = True
    for piece in pieces:
        try:
            said = json_bytes.parse(piece)
        except json_bytes.NotJson:
            exact = False
            continue
        for kind, place, text in said_in(said) if isinstance(said, dict) else ():
            into = reasoning if kind == "reasoning" else texts
            into.setdefault(place, []).append(text)
            exact = exact and kind != "call"
    if not texts and not reasoning:
        return None
    return Output(["".join(parts) for parts in texts.values()], ["".join(parts) for parts in reasoning.values()], exact)


_Told = tuple[str, tuple[object, ...], str]  # text, reasoning or call; where it belongs; the piece


def _at(told: object) -> object:
    """A number or a word that says where something belongs; anything else says nothing, and could be no key."""
    return told if isinstance(told, int | str) else None


def said_in(said: Mapping[str, object]) -> Iterator[_Told]:
    """What one event or body of an answer says, in whatever dialect: which kind of thing, where it belongs, and the piece of text."""
    kind = said.get("type")
    if isinstance(choices := said.get("choices"), list):
        for place, choice in enumerate(choices):
            if isinstance(choice, dict):
                yield from _choice(_at(choice.get("index", place)), choice)
    elif kind in ("content_block_start", "content_block_delta"):
        yield from _block(_at(said.get("index")), said.get("delta") or said.get("content_block"))
    elif isinstance(kind, str) and kind.startswith("response."):
        yield from _event(kind, said)
    elif isinstance(items := said.get("output"), list):
        for place, item in enumerate(items):
            yield from _item(place, item)
    elif isinstance(blocks := said.get("content"), list):
        for place, block in enumerate(blocks):
            yield from _block(place, block)


def _choice(index: object, choice: Mapping[str, object]) -> Iterator[_Told]:
    told = choice.get("delta") or choice.get("message") or choice
    if not isinstance(told, dict):
        return
    for name, kind in (
        ("content", "text"),
        ("text", "text"),
        ("refusal", "text"),
        ("reasoning_content", "reasoning"),
        ("reasoning", "reasoning"),
    ):
        if isinstance(text := told.get(name), str):
            yield kind, (index, name), text
    calls = told.get("tool_calls")
    named = [
        (_at(call.get("index", at)), call.get("function"))
        for at, call in enumerate(calls if isinstance(calls, list) else ())
        if isinstance(call, dict)
    ]
    for at, function in (*named, (-1, told.get("function_call"))):
        if isinstance(function, dict):
            yield from _texts("call", (index, "call", at), function, "name", "arguments")
    if told.get("audio") is not None:
        yield "call", (index, "audio"), ""


def _block(index: object, block: object) -> Iterator[_Told]:
    if not isinstance(block, dict):
        return
    yield from _texts("text", (index, "text"), block, "text")
    yield from _texts("reasoning", (index, "thinking"), block, "thinking")
    if block.get("type") in ("tool_use", "input_json_delta"):
        yield from _texts("call", (index, "call"), block, "name", "partial_json")
        if block.get("input"):
            yield "call", (index, "input"), json_bytes.dump(block["input"]).decode(errors="replace")


def _event(kind: str, said: Mapping[str, object]) -> Iterator[_Told]:
    if kind.endswith(".delta"):
        what = "reasoning" if "reasoning" in kind else "call" if "call" in kind else "text"
        place = (_at(said.get("output_index")), _at(said.get("content_index")), _at(said.get("summary_index")), what)
        yield from _texts(what, place, said, "delta")
    elif kind == "response.output_item.added" and isinstance(item := said.get("item"), dict) and item.get("type") == "function_call":
        yield from _texts("call", (_at(said.get("output_index")), "name"), item, "name")


def _item(place: int, item: object) -> Iterator[_Told]:
    """One of the items of a whole response."""
    if not isinstance(item, dict):
        return
    yield from _texts("call", (place, "call"), item, "name", "arguments")
    what = "reasoning" if item.get("type") == "reasoning" else "text"
    for name in ("content", "summary"):
        parts = item.get(name)
        for at, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield from _texts(what, (place, name, at), part, "text", "refusal")


def _texts(kind: str, place: tuple[object, ...], told: Mapping[str, object], *names: str) -> Iterator[_Told]:
    for name in names:
        if isinstance(text := told.get(name), str) and text:
            yield kind, (*place, name), text
