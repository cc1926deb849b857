"""The one shape that every skin reads into and every dialect answers in: a chat request, and the events of its answer.

An answer that is not a stream is a stream of one chunk. Values are msgspec structs because one is built per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from n4n.core.errors import Failure

CHAT = "chat"  # the shape of chat completions, which every skin and dialect translates from and to


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one answer. `prompt_tokens` is all input, cached and written included; `completion_tokens` is all output,
    reasoning included."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False  # the provider's own count was missing or cannot be, and this is ours, or some of it is, or it was cut to fit
    cache_write_1h_tokens: int = 0  # of `cache_write_tokens`, those kept for an hour
    doubt: str = ""  # why it is estimated: a word of n4n.core.usage.DOUBTS
    service_tier: str = ""  # the answer's own; '': the usual one
    audio_input_tokens: int = 0  # of the input that is neither cached nor written
    audio_output_tokens: int = 0
    image_input_tokens: int = 0  # likewise
    image_output_tokens: int = 0


class Chunk(msgspec.Struct, frozen=True):
    """One event of an answer. `payload` is its JSON as it came, never re-encoded when nothing has to change: in the shape of a
    chat completion's chunk, or in the words of the dialect that `shape` names where the client speaks that dialect too."""

    payload: bytes
    content: bool = False  # holds text, reasoning, a tool call or a refusal: what the client may see as output
    finishes: bool = False  # a choice got its finish reason here
    choices: bool = True  # False: a chunk without choices (usage only, or an annotation)
    usage: Usage | None = None  # cumulative: replaces what came before
    output_bytes: int = 0  # bytes of text, reasoning and arguments in it, for a local count where the provider gives none
    unfinished: bool = False  # finishes one choice, but another one that was asked for is still to finish
    shape: str = CHAT
    event: bytes = b""  # the name of the event, where the shape has names


class Comment(msgspec.Struct, frozen=True):
    """A keep-alive of the upstream: proof of life, not of progress."""


class Failed(msgspec.Struct, frozen=True):
    """The upstream said inside a 200, or by how it ended, that this attempt failed."""

    failure: Failure


class Done(msgspec.Struct, frozen=True):
    """The upstream's own end mark came after every choice had finished."""


Event = Chunk | Comment | Failed | Done


class Translated(Mapping[str, msgspec.Raw]):
    """Members of a body in another shape than the client's, made when somebody first needs them: a provider of the client's own
    dialect never does. `make` may raise RequestError, at that moment."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Mapping[str, msgspec.Raw]]) -> None:
        self._make = make
        self._made: Mapping[str, msgspec.Raw] | None = None

    def _known(self) -> Mapping[str, msgspec.Raw]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> msgspec.Raw:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


@dataclass(frozen=True, slots=True)
class Native:
    """A body in the words of a dialect other than chat: its members as the client wrote them, n4n's own ones taken out."""

    dialect: str  # the name of the dialect: its providers get these members, all others the translation
    fields: Mapping[str, msgspec.Raw]


class ChatRequest(msgspec.Struct, frozen=True):
    """What a client asked for. `fields` are the members of its body, each as raw JSON bytes, in their order, n4n's own ones taken
    out; where the client speaks another dialect than chat, they are the translation, and `native` is what it wrote."""

    fields: Mapping[str, msgspec.Raw]
    model: str
    stream: bool = False
    include_usage: bool = False
    max_output_tokens: int | None = None
    features: frozenset[str] = frozenset()  # optional features the request uses (names of document.FEATURES)
    body_bytes: int = 0
    models: tuple[str, ...] = ()  # the body's ordered list of models the caller accepts
    unsupported_params: str | None = None
    provider_object: object = None  # the body's `provider` preferences as parsed JSON, None: none given
    n: int = 1  # how many choices were asked for
    native: Native | None = None
    marked: bool = False  # a chat that may bear cache marks, or reasoning that one provider has signed
    sealed: bool = False  # it may bear reasoning that only its maker reads
    made_by: frozenset[str] = frozenset()  # the origins of sealed reasoning in it (n4n.core.dialects.origins)
    origin: str = ""  # of what the endpoint seals that it is sent to
    native_tools: tuple[str, ...] = ()  # what a client of another dialect wants its API itself to run, by the names `tools_named` gives
    least_tokens: int | None = None  # fewer than any provider counts in it (n4n.core.fitness), where that has been counted already


class Signing(msgspec.Struct, frozen=True):
    """The request has to be signed before it is sent, which needs a clock and keys that are renewed: not a dialect's work."""

    service: str  # the name that is signed for
    region: str  # empty: that of whoever signs


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One HTTP request to a provider. `url` is absolute and never leaves the router in a log, an error, a metric or a trace."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    warnings: tuple[str, ...] = ()  # what was left out for this endpoint, for `n4n.warnings`
    allow_private: bool = False  # whether the provider may be at an address inside this network
    signing: Signing | None = None  # None: it goes out as it is; else its headers are good for one call
    method: str = "POST"
