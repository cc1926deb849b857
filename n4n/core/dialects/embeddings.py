"""Embeddings as OpenAI and its likes make them (https://platform.openai.com/docs/api-reference/embeddings): in and out as they came.

And Gemini's, which are asked for and told in other words (https://ai.google.dev/api/embeddings).
"""

from __future__ import annotations

import struct
from base64 import b64encode

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Native, UpstreamRequest
from n4n.core.dialects import Dialect, StreamDecoder
from n4n.core.dialects.classify import failure_inside, garbled, read_error
from n4n.core.dialects.completion import NOT_UTF8
from n4n.core.dialects.kinds import EMBEDDINGS
from n4n.core.errors import Failure, MalformedRequest
from n4n.core.usage import normalise

SHAPE = "openai_embeddings"  # of requests and answers in these words
_CHAT_PATH, _PATH = "/chat/completions", "/embeddings"
_NO_EMBEDDINGS = "the provider's answer holds no embeddings"
_NO_MESSAGES = {"messages": msgspec.Raw(b'[{"role":"user","content":"-"}]')}


class _Answer(msgspec.Struct, gc=False):
    data: msgspec.Raw
    usage: object = None
    error: object = None


class _Vector(msgspec.Struct, gc=False):
    values: list[float]


class _Vectors(msgspec.Struct, gc=False):
    embeddings: list[_Vector]


_READ = msgspec.json.Decoder(_Answer).decode
_VECTORS = msgspec.json.Decoder(_Vectors).decode
_INPUT = msgspec.json.Decoder(str | list[str])
_COUNT = msgspec.json.Decoder(int | None)


class Embeddings:
    """At OpenAI, Azure, and who speaks like them."""

    feature = EMBEDDINGS

    def encode(self, chat: Dialect, request: ChatRequest, words: Native, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST where the dialect's embeddings are, what the client wrote."""
        sent = chat.encode(ChatRequest(words.fields, request.model), endpoint, secret)
        return UpstreamRequest(beside_chat(sent.url, _PATH), sent.headers, sent.body, sent.warnings, sent.allow_private)

    def decode(self, chat: Dialect, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer, its bytes as they came."""
        return read_whole(body)

    def decoder(self, chat: Dialect, request: ChatRequest) -> StreamDecoder:
        """Embeddings are never streamed: what comes is read as the dialect reads a stream, and fails as one."""
        return chat.decoder(request)


class GeminiEmbeddings(Embeddings):
    """At Gemini, by way of its own words; it tells no usage."""

    def encode(self, chat: Dialect, request: ChatRequest, words: Native, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST …:batchEmbedContents. MalformedRequest for an input of tokens, which are another model's."""
        sent = chat.encode(ChatRequest(_NO_MESSAGES, request.model), endpoint, secret)
        model = endpoint.upstream_model.removeprefix("models/")
        body = json_bytes.encode({"requests": _requests(words, f"models/{model}")})
        head, _, _ = sent.url.rpartition(":")
        return UpstreamRequest(f"{head}:batchEmbedContents", sent.headers, body, (), sent.allow_private)

    def decode(self, chat: Dialect, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """The answer in OpenAI's words, as numbers or packed, as the client wants them."""
        try:
            told = _VECTORS(body)
        except (msgspec.DecodeError, RecursionError):
            return read_whole(body)  # which says what is wrong
        packed = request.native is not None and bytes(request.native.fields.get("encoding_format", b"")) == b'"base64"'
        vectors = [_packed(one.values) if packed else one.values for one in told.embeddings]
        answer = {
            "object": "list",
            "data": [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)],
            "model": request.model,
        }
        return Chunk(json_bytes.encode(answer), content=True, finishes=True, shape=SHAPE)


def beside_chat(url: str, path: str) -> str:
    """The address of something else where a dialect has its chat."""
    head, _, query = url.rpartition(_CHAT_PATH)
    return head + path + query


def read_whole(body: bytes) -> Chunk | Failure:
    """One answer with status 200, of which only the usage is read."""
    body = body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    try:
        body if body.isascii() else body.decode()
        answer = _READ(body)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        return _failure(body)
    data = bytes(memoryview(answer.data)[:64]).split()
    if answer.error or not b"".join(data).startswith(b"[{"):
        return _failure(body)
    usage = normalise(answer.usage)
    if usage is not None and not usage.prompt_tokens:  # nothing was embedded? Somebody does not count
        usage = None
    return Chunk(body, content=True, finishes=True, usage=usage, shape=SHAPE)


def _failure(body: bytes) -> Failure:
    if not body:
        return garbled("the provider's answer was empty")
    if body[:1] == b"<":
        return garbled("the provider answered with a web page")
    try:
        body.decode()
        said = json_bytes.parse(body)
    except ValueError:
        return garbled(NOT_UTF8)
    told = read_error(said)
    return garbled(_NO_EMBEDDINGS) if told is None else failure_inside(told)


def _requests(words: Native, model: str) -> list[object]:
    try:
        said = _INPUT.decode(words.fields["input"])
        dimensions = _COUNT.decode(words.fields.get("dimensions", b"null"))
    except msgspec.DecodeError as error:
        raise MalformedRequest("input must be a text or a list of texts: this model knows no tokens of others", param="input") from error
    size = {} if dimensions is None else {"outputDimensionality": dimensions}
    return [{"model": model, "content": {"parts": [{"text": text}]}, **size} for text in ([said] if isinstance(said, str) else said)]


def _packed(values: list[float]) -> str:
    """32-bit floats, little end first, in base64: the way of OpenAI's own clients."""
    return b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
