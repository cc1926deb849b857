"""The skin of POST /v1/completions: OpenAI's older way to let a text go on (https://platform.openai.com/docs/api-reference/completions).

Endpoints that say `supports: [text_completions]` get the request as it came. At all others it is a chat whose user says the
prompt, and the answer's text is the completion; what only a text completion can be, is then refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Native, Translated, Usage
from n4n.core.chat_request import OWN_FIELDS, read_chat
from n4n.core.dialects.completions import SHAPE
from n4n.core.errors import MalformedRequest
from n4n.core.json_bytes import Members
from n4n.core.member_kinds import COMPLETIONS, check_kinds, of
from n4n.core.skins.chat import ChatFrames
from n4n.core.skins.skin import Header
from n4n.core.skins.text_choices import TextChoices
from n4n.core.stream_tail import with_note

T = TypeVar("T")
_MESSAGES = b'[{"role":"user"}]'
_SOME = msgspec.Meta(min_length=1)
_Token = Annotated[int, msgspec.Meta(ge=0)]
_PROMPT = msgspec.json.Decoder(str | Annotated[list[str | _Token | Annotated[list[_Token], _SOME]], _SOME])
_LOGPROBS = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=20)] | bool | None)
_NOTHING = (b"null", b"false", b'""', b"0")
_ONLY_TEXT = ("suffix", "echo", "best_of")  # what a chat cannot be asked for
_WHERE = "only endpoints that take text completions can do that; leave it out, or choose a model that has one"


class Completions:
    """See above."""

    keep_alive = b": n4n\n\n"

    def read(self, body: bytes, _: Header) -> ChatRequest:
        """A request for completions. Raises MalformedRequest."""
        return read_completions(body)

    def losses(self, _: ChatRequest) -> tuple[str, ...]:
        """Nothing: what a chat cannot say is refused."""
        return ()

    def frames(self, request: ChatRequest) -> TextFrames:
        """Chunks of text."""
        return TextFrames(request.include_usage)

    def whole(self, chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """A text completion, as it came or made of a chat's."""
        return with_note(chunk.payload if chunk.shape == SHAPE else TextChoices().converted(chunk.payload), note)

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """As it is."""
        return body


class TextFrames(ChatFrames):
    """A stream of text completions; those of a chat are converted on their way."""

    def __init__(self, include_usage: bool) -> None:
        super().__init__(include_usage)
        self._choices = TextChoices()

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The frames that may go out now."""
        return super().receive(chunk if chunk.shape == SHAPE else replace(chunk, payload=self._choices.converted(chunk.payload)))


def read_completions(body: bytes) -> ChatRequest:
    """A request from its body. Raises MalformedRequest, which names the field."""
    try:
        fields = json_bytes.members(body)
    except json_bytes.NotJson:
        return read_chat(body)  # which says what is wrong
    prompts = _prompts(fields)
    kept = {name: raw for name, raw in fields.items() if name not in ("prompt", "messages", "logprobs")}
    plain = read_chat(json_bytes.join({**kept, "messages": _MESSAGES}.items()))
    check_kinds(fields, of(COMPLETIONS, fields))
    logprobs = _read(fields, "logprobs", _LOGPROBS, "must be a whole number from 0 to 20")
    own = {name: raw for name, raw in fields.items() if name not in OWN_FIELDS}
    return ChatRequest(
        fields=Translated(lambda: _as_chat(own, prompts, logprobs)),
        model=plain.model,
        stream=plain.stream,
        include_usage=plain.include_usage,
        max_output_tokens=plain.max_output_tokens,
        features=plain.features | _asked(logprobs),
        body_bytes=len(body),
        models=plain.models,
        unsupported_params=plain.unsupported_params,
        provider_object=plain.provider_object,
        n=plain.n * len(prompts),
        native=Native(SHAPE, own),
    )


def _asked(logprobs: int | None) -> frozenset[str]:
    return frozenset() if logprobs is None or logprobs is False else frozenset(("logprobs",))


def _prompts(fields: Members) -> list[str | None]:
    """The prompts; None for one in tokens. A text, a list of texts, a list of tokens, or a list of such lists."""
    raw = fields.get("prompt")
    if raw is None or bytes(raw) == b"null":
        raise MalformedRequest("prompt is missing: send a text", param="prompt")
    try:
        said = _PROMPT.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        rule = "must be a text, a list of texts, a list of tokens, or a list of such lists; no list may be empty"
        raise MalformedRequest(f"prompt {rule}", param="prompt") from error
    if isinstance(said, str):
        return [said]
    if isinstance(said[0], int):
        return [None]
    return [one if isinstance(one, str) else None for one in said]


def _as_chat(fields: Members, prompts: list[str | None], logprobs: int | None) -> dict[str, msgspec.Raw]:
    """The members of a chat completion's body. MalformedRequest for what a chat cannot be asked for."""
    for name in _ONLY_TEXT:
        raw = bytes(fields.get(name, b"null"))
        if raw not in _NOTHING and not (name == "best_of" and raw == b"1"):
            raise MalformedRequest(f"{name}: {_WHERE}", param=name)
    if len(prompts) != 1 or prompts[0] is None:
        raise MalformedRequest(f"prompt is {'in tokens' if None in prompts else 'more than one'}: {_WHERE}", param="prompt")
    made = {name: raw for name, raw in fields.items() if name not in ("prompt", "max_tokens", "logprobs", *_ONLY_TEXT)}
    made["messages"] = msgspec.Raw(json_bytes.encode([{"role": "user", "content": prompts[0]}]))
    if "max_tokens" in fields:
        made["max_completion_tokens"] = fields["max_tokens"]
    if _asked(logprobs):
        made["logprobs"] = msgspec.Raw(b"true")
        if logprobs:
            made["top_logprobs"] = msgspec.Raw(b"%d" % logprobs)
    return made


def _read(fields: Members, name: str, decoder: msgspec.json.Decoder[T], rule: str) -> T | None:
    raw = fields.get(name)
    try:
        return None if raw is None else decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{name} {rule}", param=name) from error
