"""The skins of /v1/completions and /v1/embeddings: what is read, what is refused by name, and how a chat's answer reads there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.chat_request import read_chat
from n4n.core.errors import MalformedRequest, Untellable
from n4n.core.skins.completions import Completions, TextFrames, read_completions
from n4n.core.skins.embeddings import MOST_INPUTS, Embeddings, read_embeddings
from n4n.core.skins.text_choices import TextChoices

TEXTS, VECTORS = Completions(), Embeddings()
NOTE = b'{"cost_usd":1.50}'
USAGE = Usage(3, 2)


def read(**fields: object) -> ChatRequest:
    return read_completions(json.dumps({"model": "m", "prompt": "Once", **fields}).encode())


def embed(**fields: object) -> ChatRequest:
    return read_embeddings(json.dumps({"model": "m", "input": "Once", **fields}).encode())


def chat(**fields: object) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in read(**fields).fields.items() if name != "model"}


# ── what is asked


def test_a_request_for_a_completion_reads_like_a_chats() -> None:
    request = read(stream=True, stream_options={"include_usage": True}, max_tokens=7, n=2, models=["a"], seed=1, logprobs=2)

    assert (request.model, request.stream, request.include_usage, request.max_output_tokens, request.n) == ("m", True, True, 7, 2)
    assert (request.models, request.features) == (("a",), frozenset(("seed", "n", "stream_options", "logprobs")))
    assert request.native is not None and request.native.dialect == "openai_completions"
    assert "models" not in request.native.fields and "logprobs" in request.native.fields
    assert read(logprobs=None).features == read(logprobs=False).features == frozenset()


@pytest.mark.parametrize(
    ("prompt", "n"), [("", 1), (["a"], 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2), (["a", [1]], 2), ("日本 👩‍👩‍👧", 1)]
)
def test_a_prompt_is_a_text_or_tokens_or_several_of_them(prompt: object, n: int) -> None:
    assert read(prompt=prompt).n == n
    assert read_completions(json.dumps({"model": "m", "prompt": prompt}, ensure_ascii=False).encode()).n == n


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"prompt": ["Once"], "best_of": 1, "echo": False, "suffix": None, "logprobs": None}, {}),
        ({"max_tokens": 7, "stop": ["x"], "custom": 1}, {"max_completion_tokens": 7, "stop": ["x"], "custom": 1}),
        ({"logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"logprobs": 0}, {"logprobs": True}),
    ],
)
def test_a_prompt_is_what_the_user_of_a_chat_says(fields: dict[str, object], expected: dict[str, object]) -> None:
    assert chat(**fields) == {"messages": [{"role": "user", "content": "Once"}], **expected}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"prompt": None}, "prompt", "is missing"),
        ({"prompt": []}, "prompt", "no list may be empty"),
        ({"prompt": [[]]}, "prompt", "no list may be empty"),
        ({"prompt": {"a": 1}}, "prompt", "must be a text"),
        ({"prompt": [-1]}, "prompt", "must be a text"),
        ({"logprobs": 21}, "logprobs", "from 0 to 20"),
        ({"max_tokens": 0}, "max_tokens", "from 1"),
        ({"api_key": "k"}, "api_key", "cannot be set"),
        ({"model": 5}, "model", "the name of a model"),
        ({"prompt": [1, 2]}, "prompt", "in tokens"),
        ({"prompt": ["a", "b"]}, "prompt", "more than one"),
        ({"suffix": "x"}, "suffix", "only endpoints that take text completions"),
        ({"echo": True}, "echo", "only endpoints that take text completions"),
        ({"best_of": 2}, "best_of", "only endpoints that take text completions"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_name(fields: dict[str, object], param: str, words: str) -> None:
    raw = json.dumps({"model": "m", "prompt": "Once", **fields}).encode()
    with pytest.raises(MalformedRequest) as caught:
        dict(read_completions(raw).fields)

    assert caught.value.param == param
    assert words in caught.value.message


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"model":"m"}', b'{"model":"m","prompt":"\xff"}', b'{"prompt":"a"}'])
def test_what_is_no_request_for_a_completion_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_completions(raw)


@pytest.mark.parametrize(
    "said", ["a", ["a"], ["a"] * MOST_INPUTS, [1, 2], [[1], [2]], [[1]] * MOST_INPUTS, list(range(MOST_INPUTS + 1)), "日本 👩‍👩‍👧"]
)
def test_an_input_is_a_text_or_tokens_or_several_of_them(said: object) -> None:
    request = read_embeddings(json.dumps({"model": "m", "input": said, "models": ["b"]}, ensure_ascii=False, indent=1).encode())

    assert (request.model, request.models, request.features, request.stream) == ("m", ("b",), frozenset(("embeddings",)), False)
    assert request.native is not None and set(request.native.fields) == {"model", "input"}
    with pytest.raises(Untellable, match="makes no embeddings"):
        dict(request.fields)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": None}, "input", "is missing"),
        ({"input": ""}, "input", "none of them may be empty"),
        ({"input": []}, "input", "none of them may be empty"),
        ({"input": ["a", ""]}, "input", "none of them may be empty"),
        ({"input": [[]]}, "input", "none of them may be empty"),
        ({"input": ["a", 1]}, "input", "must be a text"),
        ({"input": {"text": "a"}}, "input", "must be a text"),
        ({"input": ["a"] * (MOST_INPUTS + 1)}, "input", "send at most 2048"),
        ({"input": [[1]] * (MOST_INPUTS + 1)}, "input", "holds 2049 entries"),
        ({"dimensions": 0}, "dimensions", "from 1"),
        ({"encoding_format": "hex"}, "encoding_format", "float or base64"),
        ({"encoding_format": 5}, "encoding_format", "float or base64"),
        ({"api_base": "https://x"}, "api_base", "cannot be set"),
        ({"model": None}, "model", "the name of a model"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_name(fields: dict[str, object], param: str, words: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        embed(**fields)

    assert caught.value.param == param
    assert words in caught.value.message


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"model":"m"}', b'{"model":"m","input":"\xff"}'])
def test_what_is_no_request_for_embeddings_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_embeddings(raw)


# ── what is answered

HEAD = {"id": "c1", "created": 7, "model": "x"}


def chunk(delta: object, reason: str | None = None, **fields: object) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **fields}
    return Chunk(json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": [choice]}).encode(), finishes=reason is not None)


def test_a_chats_completion_is_one_of_text() -> None:
    logprobs = {
        "content": [{"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1}]}, {"token": "bc", "logprob": -2}]
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": "abc"}, "logprobs": logprobs, "finish_reason": "stop"}
    other = {"index": 1, "message": {"content": None, "refusal": "no", "tool_calls": []}, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    payload = json.dumps({**HEAD, "object": "chat.completion", "choices": [choice, other], "usage": usage}).encode()
    got = json.loads(TEXTS.whole(Chunk(payload), read(), USAGE, NOTE))

    assert got == {
        **HEAD,
        "object": "text_completion",
        "choices": [
            {
                "text": "abc",
                "index": 0,
                "logprobs": {
                    "tokens": ["a", "bc"],
                    "token_logprobs": [-0.5, -2],
                    "top_logprobs": [{"b": -1}, {}],
                    "text_offset": [0, 1],
                },
                "finish_reason": "stop",
            },
            {"text": "no", "index": 1, "logprobs": None, "finish_reason": "stop"},
        ],
        "usage": usage,
        "n4n": {"cost_usd": 1.5},
    }
    Completion.model_validate(got)


def test_a_chats_stream_is_one_of_text() -> None:
    usage = Chunk(
        json.dumps({**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode(), choices=False, usage=USAGE
    )
    tail = TEXTS.frames(read(stream=True, stream_options={"include_usage": True}))
    frames = [
        frame
        for one in (chunk({"role": "assistant"}), chunk({"content": "a"}, logprobs={"content": [{"token": "a"}]}), chunk({"content": "b"}))
        for frame in tail.receive(one)
    ]
    frames += tail.receive(chunk({}, "stop")) + tail.receive(usage)
    assert tail.complete
    frames += tail.finish(USAGE, NOTE)

    assert frames.pop() == b"data: [DONE]\n\n"
    events = [json.loads(frame.decode().removeprefix("data: ")) for frame in frames]
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == "ab"
    assert [choice["finish_reason"] for event in events for choice in event["choices"]][-1] == "stop"
    assert {event["object"] for event in events} == {"text_completion"}
    assert events[-1]["choices"] == [] and events[-1]["usage"]["prompt_tokens"] == 3 and events[-1]["n4n"] == {"cost_usd": 1.5}


def test_logprobs_of_a_stream_count_from_the_beginning_of_the_text() -> None:
    choices = TextChoices()
    choices.converted(chunk({"content": "abc"}).payload)
    got = json.loads(choices.converted(chunk({"content": "de"}, logprobs={"content": [{"token": "d"}, {"token": "e"}]}).payload))

    assert got["choices"][0]["logprobs"]["text_offset"] == [3, 4]


def test_a_providers_own_text_passes() -> None:
    payload = b'{"id":"cmpl-1","choices":[{"text":"a","index":0,"finish_reason":"stop"}],"x":1.50}'
    own = Chunk(payload, finishes=True, shape="openai_completions")
    tail = TextFrames(include_usage=False)

    assert TEXTS.whole(own, read(), USAGE, NOTE) == payload[:-1] + b',"n4n":' + NOTE + b"}"
    assert tail.receive(own) == ()
    assert tail.finish(USAGE, NOTE) == (b"data: " + payload[:-1] + b',"n4n":' + NOTE + b"}\n\n", b"data: [DONE]\n\n")


def test_embeddings_pass_with_the_block() -> None:
    payload = b'{"object":"list","data":[{"embedding":"AAAA"}]}'

    assert VECTORS.whole(Chunk(payload, shape="openai_embeddings"), read(), USAGE, NOTE) == payload[:-1] + b',"n4n":' + NOTE + b"}"


def test_both_skins_say_errors_and_signs_of_life_as_a_chat_does() -> None:
    body = {"error": {"message": "m"}}
    for skin in (TEXTS, VECTORS):
        assert skin.envelope(body) == body
        assert skin.losses(read()) == ()
        assert skin.keep_alive.startswith(b":")
        assert b'"finish_reason":"error"' in skin.frames(read()).error(body)
    assert TEXTS.read(b'{"model":"m","prompt":"a"}', lambda name: None).model == "m"
    assert VECTORS.read(b'{"model":"m","input":"a"}', lambda name: None).model == "m"


@given(st.binary(max_size=40))
def test_no_payload_makes_it_raise(raw: bytes) -> None:
    for payload in (raw, b'{"choices":' + raw + b"}", b'{"choices":[{"delta":' + raw + b',"logprobs":' + raw + b"}]}"):
        assert isinstance(TextChoices().converted(payload), bytes)


def test_odd_choices_are_texts_too() -> None:
    odd = b'{"message":{"content":5},"logprobs":{"content":[5,{"top_logprobs":[5]}]},"finish_reason":5}'
    raw = b'{"choices":[5,{"delta":5,"logprobs":5},' + odd + b"]}"

    assert [choice["text"] for choice in json.loads(TextChoices().converted(raw))["choices"]] == ["", ""]
    assert json.loads(TextChoices().converted(b'{"choices":5}'))["choices"] == []
    assert read_chat(b'{"model":"m","messages":[{}]}').native is None
