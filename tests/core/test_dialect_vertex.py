"""The dialect `vertex`: whose model it is, where it is asked, and whose words the answer is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects import StreamDecoder
from n4n.core.dialects.gemini import Vertex
from n4n.core.dialects.gemini.listening import Listening
from n4n.core.dialects.gemini.vertex import publisher_of
from n4n.core.dialects.openai import OpenAI
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, FailureClass
from n4n.core.sse import MAX_LINE
from tests.support.vectors import Vector, check_every_split, check_whole, named, read_whole, vectors_of

BASE = "https://aiplatform.googleapis.com/v1/projects/p/locations/global"


class Claude:
    """Stands for Anthropic's dialect: it keeps what it is given, and every answer in its words is a failure that names it."""

    name = "anthropic"
    heard = Failure(FailureClass.OVERLOADED, "claude's words")

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        headers = (("content-type", "application/json"), ("x-api-key", str(secret)), ("anthropic-version", "v"), ("anthropic-beta", "b"))
        body = json.dumps({"model": endpoint.upstream_model, "stream": request.stream, "max_tokens": 1}).encode()
        return UpstreamRequest(f"{endpoint.provider.base_url}/v1/messages", headers, body, ("a warning",), True)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        return self.heard

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        return _Heard()

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        return self.heard


class _Heard:
    def feed(self, piece: bytes) -> list[Event]:
        return [Failed(Failure(FailureClass.OVERLOADED, piece.decode()))]

    def end(self) -> list[Event]:
        return []


VERTEX = Vertex({"anthropic": Claude(), "mistralai": OpenAI()})


def request(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def endpoint(model: str, **fields: Any) -> Endpoint:
    return Endpoint(EndpointId("e1"), ModelId("asked"), Provider("p", "vertex", BASE), (), model, **fields)


def sent(model: str, secret: str | None = "token", **fields: object) -> UpstreamRequest:
    return VERTEX.encode(request(**fields), endpoint(model), secret)


@pytest.mark.parametrize(
    ("model", "publisher", "name"),
    [
        ("gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("google/gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("publishers/google/models/gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("claude-sonnet-4-6@default", "anthropic", "claude-sonnet-4-6@default"),
        ("anthropic/opus", "anthropic", "opus"),
        ("codestral-2", "mistralai", "codestral-2"),
        ("mistral-medium-3", "mistralai", "mistral-medium-3"),
    ],
)
def test_a_models_name_tells_its_publisher(model: str, publisher: str, name: str) -> None:
    assert publisher_of(model) == (publisher, name)


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-2.5-pro", False, "google/models/gemini-2.5-pro:generateContent"),
        ("google/gemini-2.5-pro", True, "google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"),
        ("claude-sonnet-4-6@default", False, "anthropic/models/claude-sonnet-4-6@default:rawPredict"),
        ("claude-sonnet-4-6@default", True, "anthropic/models/claude-sonnet-4-6@default:streamRawPredict"),
        ("codestral-2", True, "mistralai/models/codestral-2:streamRawPredict"),
        ("meta/llama", False, "meta/models/llama:generateContent"),
    ],
)
def test_publisher_model_and_method_stand_in_the_url(model: str, stream: bool, path: str) -> None:
    assert sent(model, stream=stream).url == f"{BASE}/publishers/{path}"


def test_the_token_is_a_bearer_for_whoevers_model() -> None:
    for model in ("gemini-2.5-pro", "claude-x", "codestral-2"):
        headers = dict(sent(model).headers)
        assert headers["authorization"] == "Bearer token"
        assert not {"x-api-key", "x-goog-api-key", "anthropic-version"} & headers.keys()
        assert "authorization" not in dict(sent(model, None).headers)
    assert dict(sent("claude-x").headers)["anthropic-beta"] == "b"


def test_claude_is_asked_in_anthropics_words_without_the_model() -> None:
    made = sent("anthropic/claude-x", stream=True)

    assert json.loads(made.body) == {"anthropic_version": "vertex-2023-10-16", "stream": True, "max_tokens": 1}
    assert made.warnings == ("a warning",) and made.allow_private


def test_mistral_is_asked_as_at_home_but_for_stream_options() -> None:
    made = json.loads(sent("codestral-2", stream=True).body)

    assert made == {"model": "codestral-2", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_gemini_gets_the_bodies_of_ai_studio() -> None:
    assert json.loads(sent("google/gemini-2.5-pro").body) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


# ── answers

GEMINI_SAYS = b'{"candidates":[{"content":{"parts":[{"text":"g"}]},"finishReason":"STOP"}]}'
MISTRAL_SAYS = b'{"id":"m","object":"chat.completion","choices":[{"index":0,"message":{"content":"m"},"finish_reason":"stop"}]}'
MISTRAL_STREAMS = b'data: {"choices":[{"index":0,"delta":{"content":"m"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
CLAUDE_STREAMS = b'event: message_start\ndata: {"type":"message_start"}\n\n'


def words(body: bytes) -> str:
    got = VERTEX.decode(body, "application/json", request())
    return str(json.loads(got.payload)["choices"][0]["message"]["content"]) if isinstance(got, Chunk) else got.message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (GEMINI_SAYS, "g"),
        (b"[" + GEMINI_SAYS + b"]", "g"),
        (b"data: " + GEMINI_SAYS, "g"),
        (MISTRAL_SAYS, "m"),
        (MISTRAL_STREAMS, "m"),
        (b'{"type":"message","content":[]}', "claude's words"),
        (CLAUDE_STREAMS, "claude's words"),
        (b'data: {"type":"message_start"}', "claude's words"),
        (b"", "the provider's answer was empty"),
        (b"{", "the provider's answer is not valid JSON in UTF-8"),
    ],
)
def test_a_whole_answer_is_read_in_the_words_it_is_in(body: bytes, expected: str) -> None:
    assert words(body) == expected


def streamed(*pieces: bytes) -> list[Event]:
    decoder = VERTEX.decoder(request())
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def test_a_stream_is_read_in_the_words_it_begins_with_in_every_split() -> None:
    for raw, expected in ((b": hi\r\n\r\ndata: " + GEMINI_SAYS + b"\r\n\r\n", "g"), (MISTRAL_STREAMS, "m")):
        for cut in range(1, len(raw)):
            got = [event for event in streamed(raw[:cut], raw[cut:]) if not isinstance(event, Comment)]
            assert isinstance(got[0], Chunk) and got[1:] == [Done()]
            assert json.loads(got[0].payload)["choices"][0]["delta"]["content"] == expected


def test_claudes_stream_is_handed_over_from_its_first_byte() -> None:
    for cut in range(len(CLAUDE_STREAMS)):
        decoder = VERTEX.decoder(request())
        got = decoder.feed(CLAUDE_STREAMS[:cut]) + decoder.feed(CLAUDE_STREAMS[cut:])
        said = "".join(event.failure.message for event in got if isinstance(event, Failed))
        assert said == CLAUDE_STREAMS.decode()


def test_what_is_no_stream_is_judged_at_its_end() -> None:
    assert [type(event) for event in streamed(GEMINI_SAYS[:9], GEMINI_SAYS[9:] + b"\n")] == [Comment, Chunk, Done]
    assert [type(event) for event in streamed(b" [", GEMINI_SAYS, b"]")] == [Chunk, Done]
    assert isinstance(streamed(b'{"type":"error"}')[0], Failed)
    assert isinstance(streamed()[-1], Failed)
    assert isinstance(streamed(b": only\n", b": comments\n")[-1], Failed)


def test_a_first_line_without_end_is_googles() -> None:
    got = streamed(b"data: " + b"x" * MAX_LINE, b"yy")

    assert isinstance(got[0], Failed) and got[0].failure.message == "one event of the provider's stream is too long"


def test_a_listener_shows_what_it_keeps() -> None:
    listening = Listening(lambda publisher: VERTEX.decoder(request()))
    listening.feed(b"data")
    assert repr(listening) == "<Listening, 4 bytes kept>"
    listening.feed(b": {}\n")
    assert repr(listening) == "<GeminiDecoder open>"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', "claude's words"),
        (b'{"object":"error","message":"capacity exceeded","type":"x","code":"3505"}', "the provider is overloaded"),
        (b'[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]', "the provider is overloaded"),
    ],
)
def test_an_error_is_read_in_the_words_it_is_in(body: bytes, message: str) -> None:
    assert VERTEX.failure(429, {}, body, 0.0).message == message


# ── with the dialects it is made of

ANTHROPIC = vectors_of("anthropic_messages")


@pytest.mark.parametrize("vector", [vector for vector in ANTHROPIC if vector["stream"]], ids=named)
def test_a_recorded_stream_of_claudes_reads_the_same_in_every_split(vector: Vector) -> None:
    check_every_split(DIALECTS["vertex"], vector)


@pytest.mark.parametrize("vector", [vector for vector in ANTHROPIC if not vector["stream"]], ids=named)
def test_a_recorded_answer_of_claudes_reads_whole(vector: Vector) -> None:
    check_whole(vector, read_whole(DIALECTS["vertex"], vector))


def test_claude_is_asked_in_its_own_dialect() -> None:
    made = DIALECTS["vertex"].encode(request(stream=True, max_tokens=5), endpoint("claude-sonnet-4-6@default"), "token")

    assert made.url == f"{BASE}/publishers/anthropic/models/claude-sonnet-4-6@default:streamRawPredict"
    assert json.loads(made.body) == {
        "anthropic_version": "vertex-2023-10-16",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "stream": True,
    }
    assert dict(made.headers) == {"content-type": "application/json", "accept": "text/event-stream", "authorization": "Bearer token"}
