"""What else is asked of providers beside chat: text completions and embeddings, where the catalog says so, and nothing elsewhere."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects import Dialect, frames
from n4n.core.dialects.azure import Azure
from n4n.core.dialects.completions import SHAPE, Completions
from n4n.core.dialects.embeddings import SHAPE as EMBEDDED
from n4n.core.dialects.embeddings import Embeddings, GeminiEmbeddings
from n4n.core.dialects.gemini import Gemini
from n4n.core.dialects.kinds import ByKind, Kind
from n4n.core.dialects.openai import OpenAI
from n4n.core.errors import Failure, FailureClass, MalformedRequest, Untellable
from n4n.core.skins.completions import read_completions
from n4n.core.skins.embeddings import read_embeddings

KINDS: dict[str, Kind] = {SHAPE: Completions(), EMBEDDED: Embeddings()}
OPENAI, AZURE = ByKind(OpenAI(), KINDS), ByKind(Azure(), KINDS)
GEMINI = ByKind(Gemini(), {EMBEDDED: GeminiEmbeddings()})
BASE = "https://example.test/v1"
TEXTS, VECTORS = frozenset(("text_completions", "tools")), frozenset(("embeddings",))
C = FailureClass


def endpoint(supports: frozenset[str] | None = None, base_url: str = BASE, **fields: Any) -> Endpoint:
    return Endpoint(EndpointId("e1"), ModelId("m"), Provider("p", "openai", base_url), (), "theirs", supports=supports, **fields)


def completion(**fields: object) -> ChatRequest:
    return read_completions(json.dumps({"model": "m", "prompt": "Once", **fields}).encode())


def embedding(**fields: object) -> ChatRequest:
    return read_embeddings(json.dumps({"model": "m", "input": "Once", **fields}).encode())


CHAT = read_chat(b'{"model":"m","messages":[{"role":"user","content":"a"}]}')


# ── where it goes


def test_a_chat_goes_where_it_always_went() -> None:
    plain = OpenAI()

    for supports in (None, frozenset[str](), TEXTS):
        assert OPENAI.encode(CHAT, endpoint(supports), "k") == plain.encode(CHAT, endpoint(supports), "k")
    assert OPENAI.name == "openai" and OPENAI.speech("m") == plain.speech("m")
    assert repr(OPENAI.decoder(CHAT)) == repr(plain.decoder(CHAT))
    assert OPENAI.decode(b"{}", "", CHAT) == plain.decode(b"{}", "", CHAT)
    assert OPENAI.failure(429, {}, b"", 0.0) == plain.failure(429, {}, b"", 0.0)


def test_a_completion_goes_as_it_came_where_the_catalog_says_so() -> None:
    asked = completion(suffix="end", echo=True, max_tokens=900, stream=True, n=2, custom=1.5)
    sent = OPENAI.encode(asked, endpoint(TEXTS, body={"top_k": 5}, max_output_tokens=100), "k")

    assert sent.url == f"{BASE}/completions"
    assert json.loads(sent.body) == {
        "model": "theirs",
        "prompt": "Once",
        "suffix": "end",
        "echo": True,
        "max_tokens": 100,
        "stream": True,
        "n": 2,
        "custom": 1.5,
        "stream_options": {"include_usage": True},
        "top_k": 5,
    }
    assert dict(sent.headers)["authorization"] == "Bearer k"
    assert sent.warnings == ("max_tokens was lowered to 100, the most that endpoint e1 writes",)


def test_a_completion_calls_its_limit_by_the_one_name_there_is() -> None:
    provider = Provider("p", "openai", BASE, quirks=frozenset(("max_completion_tokens", "random_seed")))
    at = Endpoint(EndpointId("e1"), ModelId("m"), provider, (), "theirs", supports=TEXTS)

    assert json.loads(OPENAI.encode(completion(max_tokens=9, seed=1), at, None).body) == {
        "model": "theirs",
        "prompt": "Once",
        "max_tokens": 9,
        "seed": 1,
    }


@pytest.mark.parametrize("supports", [None, frozenset(("tools",))])
def test_a_completion_is_a_chat_where_it_does_not(supports: frozenset[str] | None) -> None:
    sent = OPENAI.encode(completion(max_tokens=9), endpoint(supports), "k")

    assert sent.url == f"{BASE}/chat/completions"
    assert json.loads(sent.body) == {"model": "theirs", "messages": [{"role": "user", "content": "Once"}], "max_completion_tokens": 9}


def test_embeddings_go_as_they_came_and_only_where_the_catalog_says_so() -> None:
    asked = embedding(encoding_format="base64", dimensions=256, user="u")
    sent = OPENAI.encode(asked, endpoint(VECTORS), "k")

    assert sent.url == f"{BASE}/embeddings"
    assert json.loads(sent.body) == {"model": "theirs", "input": "Once", "encoding_format": "base64", "dimensions": 256, "user": "u"}
    for supports in (None, TEXTS):
        with pytest.raises(Untellable, match="makes no embeddings"):
            OPENAI.encode(asked, endpoint(supports), "k")


def test_an_endpoint_of_embeddings_is_asked_for_nothing_else() -> None:
    for asked in (CHAT, completion()):
        with pytest.raises(Untellable, match="ask for them at /v1/embeddings") as caught:
            OPENAI.encode(asked, endpoint(VECTORS), "k")
        assert caught.value.param == "model"


def test_azure_has_them_beside_its_chat() -> None:
    dated = endpoint(VECTORS, "https://r.openai.azure.com/openai")

    assert AZURE.encode(embedding(), dated, "k").url == (
        "https://r.openai.azure.com/openai/deployments/theirs/embeddings?api-version=2024-10-21"
    )
    sent = AZURE.encode(completion(), endpoint(TEXTS, "https://r.openai.azure.com/openai/v1"), "k")
    assert (sent.url, dict(sent.headers)["api-key"]) == ("https://r.openai.azure.com/openai/v1/completions", "k")


# ── embeddings that come back

ANSWER = b'{"object":"list","data":[ {"index":0,"embedding":[0.1250,-1]}],"model":"x","usage":{"prompt_tokens":3,"total_tokens":3}}'


def test_embeddings_pass_byte_for_byte() -> None:
    got = OPENAI.decode(b" " + ANSWER, "application/json", embedding())

    assert got == Chunk(ANSWER, content=True, finishes=True, usage=Usage(3, 0), shape="openai_embeddings")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", C.SERVER_ERROR),
        (b"<html>", C.SERVER_ERROR),
        (b"{", C.SERVER_ERROR),
        (b'{"data":[{"embedding":"\xff"}]}', C.SERVER_ERROR),
        (b'{"data":[]}', C.SERVER_ERROR),
        (b'{"data":"odd"}', C.SERVER_ERROR),
        (b'{"choices":[]}', C.SERVER_ERROR),
        (b"[]", C.SERVER_ERROR),
        (b'{"error":{"message":"m","code":"rate_limit_exceeded"}}', C.RATE_LIMITED),
        (b'{"data":[{}],"error":{"message":"m","code":"context_length_exceeded"}}', C.CONTEXT_LENGTH),
    ],
)
def test_a_200_without_embeddings_is_a_failure(body: bytes, expected: FailureClass) -> None:
    for dialect in (OPENAI, GEMINI):
        got = dialect.decode(body, "", embedding())
        assert isinstance(got, Failure) and got.failure_class is expected


def test_a_stream_of_embeddings_is_none() -> None:
    assert isinstance(OPENAI.decoder(embedding()).end()[-1], Failed)


def test_gemini_is_asked_and_answers_in_its_own_words() -> None:
    at = endpoint(VECTORS, "https://g.test/v1beta")
    sent = GEMINI.encode(embedding(input=["a", "b"], dimensions=2), at, "k")

    assert sent.url == "https://g.test/v1beta/models/theirs:batchEmbedContents"
    assert dict(sent.headers)["x-goog-api-key"] == "k"
    one = {"model": "models/theirs", "outputDimensionality": 2}
    assert json.loads(sent.body) == {"requests": [{**one, "content": {"parts": [{"text": text}]}} for text in ("a", "b")]}
    assert json.loads(GEMINI.encode(embedding(), at, None).body)["requests"] == [
        {"model": "models/theirs", "content": {"parts": [{"text": "Once"}]}}
    ]
    told = b'{"embeddings":[{"values":[0.5,-2]},{"values":[1,0]}]}'
    plain, packed = GEMINI.decode(told, "", embedding()), GEMINI.decode(told, "", embedding(encoding_format="base64"))
    assert isinstance(plain, Chunk) and isinstance(packed, Chunk)
    assert json.loads(plain.payload) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -2.0]},
            {"object": "embedding", "index": 1, "embedding": [1.0, 0.0]},
        ],
        "model": "m",
    }
    assert struct.unpack("<2f", b64decode(json.loads(packed.payload)["data"][0]["embedding"])) == (0.5, -2.0)
    assert plain.usage is None
    with pytest.raises(MalformedRequest, match="tokens"):
        GEMINI.encode(embedding(input=[1, 2]), at, "k")


# ── text completions that come back


def text(words: str, reason: str | None = None, index: int = 0, **fields: object) -> dict[str, object]:
    choice = {"text": words, "index": index, "logprobs": None, "finish_reason": reason}
    return {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "x", "choices": [choice], **fields}


COUNTS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
LAST: dict[str, object] = {"id": "cmpl-1", "object": "text_completion", "choices": [], "usage": COUNTS}
DELTA = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 7,
    "model": "x",
    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
}
STOP = {**DELTA, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def sse(*events: Mapping[str, object], done: bool = True) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n" * done


def streamed(*pieces: bytes, n: int = 1, dialect: Dialect = OPENAI) -> list[Event]:
    decoder = dialect.decoder(completion(stream=True, n=n))
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def test_a_text_completion_passes_byte_for_byte() -> None:
    body = json.dumps({**text("é!", "stop"), "usage": COUNTS}).encode()
    got = OPENAI.decode(b"\xef\xbb\xbf " + body, "application/json", completion())

    assert got == Chunk(body, content=True, finishes=True, usage=Usage(3, 2), output_bytes=3, shape="openai_completions")


def test_a_stream_of_text_passes_byte_for_byte() -> None:
    said = [text("O"), text("n"), text("", "stop"), LAST]
    *got, done = streamed(sse(*said))

    assert done == Done()
    assert [chunk.payload for chunk in got if isinstance(chunk, Chunk)] == [json.dumps(event).encode() for event in said]
    assert [isinstance(one, Chunk) and (one.content, one.finishes, one.choices, one.shape) for one in got] == [
        (True, False, True, SHAPE),
        (True, False, True, SHAPE),
        (False, True, True, SHAPE),
        (False, False, False, SHAPE),
    ]
    last = got[-1]
    assert isinstance(last, Chunk) and last.usage == Usage(3, 2)


def test_of_several_completions_the_last_one_finishes_the_answer() -> None:
    got = streamed(sse(text("a", "stop"), text("b", "length", 1)), n=2)

    assert [chunk.unfinished for chunk in got if isinstance(chunk, Chunk)] == [True, False]
    assert isinstance(streamed(sse(text("a", "stop"), text("b", None, 1)))[-1], Failed)


def test_the_answer_of_a_chat_is_read_as_one() -> None:
    body = {"id": "c", "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}
    got = OPENAI.decode(json.dumps(body).encode(), "", completion())
    *chunks, done = streamed(b": ping\n\n" + sse(DELTA, STOP))

    assert isinstance(got, Chunk) and got.shape == "chat"
    assert done == Done() and [chunk.shape for chunk in chunks if isinstance(chunk, Chunk)] == ["chat", "chat"]
    assert isinstance(OPENAI.decode(sse(DELTA, STOP), "", completion()), Chunk)
    assert [type(event) for event in streamed(json.dumps(body).encode())[-2:]] == [Chunk, Done]


@pytest.mark.parametrize("said", [{"object": "chat.completion"}, {}])
def test_a_chat_that_says_its_text_twice_is_still_a_chat(said: dict[str, object]) -> None:
    choice = {"index": 0, "text": "a", "message": {"role": "assistant", "content": "a"}, "finish_reason": "eos"}
    whole = OPENAI.decode(json.dumps({"id": "c", **said, "choices": [choice]}).encode(), "", completion())
    pieces = [{**event, "choices": [{**event["choices"][0], "text": ""}]} for event in (DELTA, STOP)]  # type: ignore[index]
    *chunks, done = streamed(sse(*pieces))

    assert isinstance(whole, Chunk) and whole.shape == "chat"
    assert done == Done() and [chunk.shape for chunk in chunks if isinstance(chunk, Chunk)] == ["chat", "chat"]


def test_a_stream_where_a_text_was_asked_is_joined() -> None:
    got = OPENAI.decode(sse(text("a"), text("b", "stop"), text("c", "length", 1), LAST), "text/event-stream", completion(n=2))

    assert isinstance(got, Chunk) and got.shape == SHAPE and got.usage == Usage(3, 2)
    whole = json.loads(got.payload)
    assert [(one["text"], one["finish_reason"]) for one in whole["choices"]] == [("ab", "stop"), ("c", "length")]
    assert isinstance(OPENAI.decode(sse(text("a")), "", completion()), Failure)


def test_a_text_where_a_stream_was_asked_is_told_at_once() -> None:
    body = json.dumps(text("a", "stop")).encode()
    decoder = OPENAI.decoder(completion(stream=True))

    assert decoder.feed(body[:9]) == [Comment()]
    assert [type(event) for event in decoder.feed(body[9:]) + decoder.end()] == [Comment, Chunk, Done]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", C.SERVER_ERROR),
        (sse(text("a")), C.SERVER_ERROR),
        (sse(text("a"), done=False), C.SERVER_ERROR),
        (sse(text("a")).replace(b"[DONE]", b"nonsense"), C.SERVER_ERROR),
        (sse(text("a"), {"error": {"code": "rate_limit_exceeded", "message": "m"}}), C.RATE_LIMITED),
        (sse({"error": {"code": "rate_limit_exceeded", "message": "m"}}), C.RATE_LIMITED),
        (sse(text("a"), {"error": 7}), C.SERVER_ERROR),
        (json.dumps({"error": {"code": "slow_down", "message": "m"}}).encode(), C.RATE_LIMITED),
        (b"{}", C.SERVER_ERROR),
        (b"<html>", C.SERVER_ERROR),
    ],
)
def test_a_stream_that_fails(raw: bytes, expected: FailureClass) -> None:
    last = streamed(raw)[-1]

    assert isinstance(last, Failed) and last.failure.failure_class is expected


def test_an_event_or_a_body_of_endless_length_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_WHOLE", 100)

    last = streamed(b"{" + b" " * 200)[-1]
    assert isinstance(last, Failed) and last.failure.message == "the provider's answer is too long"


def test_oddities_between_chunks_are_signs_of_life() -> None:
    got = streamed(sse(text("a"), done=False) + b"data: \n\n: ping\n\n" + sse(text("", "stop")) + sse(text("late")))

    assert [type(event) for event in got] == [Chunk, Comment, Comment, Chunk, Done]
    half = streamed(b'data: {"choices":[{"text":"\\ud83d","finish_reason":"stop"}]}\n\n')
    assert [type(event) for event in half] == [Chunk, Done]


def test_a_decoder_says_what_it_is() -> None:
    decoder = OPENAI.decoder(completion(stream=True))
    assert repr(decoder) == "<TextDecoder open, 0 of 0 choices finished>"
    decoder.feed(sse(text("a", "stop")))
    assert repr(decoder) == "<TextDecoder over, 1 of 1 choices finished>"
    assert decoder.feed(sse(text("a"))) == decoder.end() == []


@given(st.binary(max_size=12), st.integers(0, 300), st.integers(0, 40), st.integers(1, 99), st.booleans())
def test_no_damage_makes_it_raise(patch: bytes, at: int, lost: int, size: int, chat: bool) -> None:
    raw = sse(DELTA, STOP) if chat else sse(text("é😀"), text("", "stop"), LAST)
    raw = raw[:at] + patch + raw[at + lost :]
    got = streamed(*(raw[start : start + size] for start in range(0, len(raw), size)))

    assert isinstance(got[-1], Done | Failed)
    assert all(isinstance(event, Chunk | Comment) for event in got[:-1])
    for body in (patch, raw, b'{"choices":[{"text":"' + patch + b'"}]}', b'{"data":[' + patch + b"]}"):
        assert isinstance(OPENAI.decode(body, "", completion()), Chunk | Failure)
        assert isinstance(OPENAI.decode(body, "", embedding()), Chunk | Failure)
        assert isinstance(GEMINI.decode(body, "", embedding()), Chunk | Failure)


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "total_tokens": 0}, {}, None])
def test_embeddings_that_nobody_counted_have_no_usage(usage: object) -> None:
    answer = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m", "usage": usage}
    came = OPENAI.decode(json.dumps(answer).encode(), "application/json", embedding())

    assert isinstance(came, Chunk) and came.usage is None
