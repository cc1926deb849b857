"""The dialect `azure`: its addresses and header, its filter's annotations, and the errors that only their text tells apart."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, Comment, Done, Event, Failed
from n4n.core.chat_request import read_chat
from n4n.core.dialects.azure import API_VERSION
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, FailureClass

AZURE = DIALECTS["azure"]
C = FailureClass
V1 = "https://r.openai.azure.com/openai/v1"
DATED = "https://r.openai.azure.com/openai"
FILTER = b'{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}],"x":1}'
POLICY = {"code": "ResponsibleAIPolicyViolation"}
TEXT = b'{"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}'
STOP = b'{"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
ODD = (b'{"choices":[]}', b"{}", b"x", b'{"choices":[{"index":0,"delta":"\\ud83d"}]}')
USAGE = b'{"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'


def request(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [{"role": "user"}], **fields}).encode())


def endpoint(base_url: str = V1, upstream_model: str = "my deployment", **known: str) -> Endpoint:
    provider = Provider("p", "azure", base_url, headers={"x-team": "a"}, vars=known)
    return Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), upstream_model)


def events(*payloads: bytes) -> list[Event]:
    decoder = AZURE.decoder(request())
    return decoder.feed(b"".join(b"data: " + payload + b"\n\n" for payload in payloads)) + decoder.end()


def failure(status: int, body: object, headers: Mapping[str, str] | None = None) -> Failure:
    return AZURE.failure(status, headers or {}, json.dumps(body).encode(), 0.0)


@pytest.mark.parametrize(
    ("base_url", "version", "expected"),
    [
        (V1, None, f"{V1}/chat/completions"),
        (V1, "preview", f"{V1}/chat/completions?api-version=preview"),
        (DATED, "2025-04-01-preview", f"{DATED}/deployments/my%20deployment/chat/completions?api-version=2025-04-01-preview"),
        (DATED, None, f"{DATED}/deployments/my%20deployment/chat/completions?api-version={API_VERSION}"),
        ("https://r.openai.azure.com", "a b", f"{DATED}/deployments/my%20deployment/chat/completions?api-version=a+b"),
    ],
)
def test_the_base_url_tells_which_of_the_two_apis_it_is(base_url: str, version: str | None, expected: str) -> None:
    at = endpoint(base_url, **({} if version is None else {"api_version": version}))

    assert AZURE.encode(request(), at, "k").url == expected


def test_the_deployment_is_the_model_of_the_body_and_all_else_is_as_for_openai() -> None:
    sent = AZURE.encode(request(stream=True, temperature=1, custom={"a": 1.50}), endpoint(), "key1")

    assert json.loads(sent.body) == {
        "model": "my deployment",
        "messages": [{"role": "user"}],
        "stream": True,
        "temperature": 1,
        "custom": {"a": 1.5},
        "stream_options": {"include_usage": True},
    }
    assert dict(sent.headers) == {"content-type": "application/json", "accept": "text/event-stream", "api-key": "key1", "x-team": "a"}


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ("0123456789abcdef", ("api-key", "0123456789abcdef")),
        ("eyJhbGciOi.eyJhdWQi.c2ln", ("authorization", "Bearer eyJhbGciOi.eyJhdWQi.c2ln")),
        (None, None),
    ],
)
def test_a_key_has_its_own_header_and_a_token_is_a_bearer(secret: str | None, header: tuple[str, str] | None) -> None:
    headers = AZURE.encode(request(), endpoint(), secret).headers

    found = [pair for pair in headers if pair[0] in ("api-key", "authorization")]
    assert found == ([] if header is None else [header])


def test_what_the_filter_says_of_the_prompt_rides_on_the_first_chunk_with_a_choice() -> None:
    comment, text, stop, usage, done = events(FILTER, TEXT, STOP, USAGE, b"[DONE]")

    assert comment == Comment()
    assert isinstance(text, Chunk) and text.content
    assert json.loads(text.payload) == {**json.loads(TEXT), "prompt_filter_results": [{"prompt_index": 0}], "x": 1}
    assert isinstance(stop, Chunk) and stop.payload == STOP
    assert isinstance(usage, Chunk) and usage.payload == USAGE
    assert done == Done()


def test_a_chunk_that_has_the_annotation_itself_keeps_its_own() -> None:
    own = TEXT[:-1] + b',"prompt_filter_results":[]}'
    _, text, *_ = events(FILTER, own, STOP)

    assert isinstance(text, Chunk)
    assert json.loads(text.payload) == {**json.loads(own), "x": 1}


def test_a_chunk_of_the_filter_without_a_delta_gets_an_empty_one() -> None:
    late = b'{"id":"c","choices":[{"index":0,"finish_reason":null,"content_filter_results":{"hate":{"filtered":false}}}]}'
    _, filtered, *_ = events(TEXT, late, STOP)

    assert isinstance(filtered, Chunk) and not filtered.content
    (choice,) = json.loads(filtered.payload)["choices"]
    assert choice["delta"] == {}
    assert choice["content_filter_results"] == {"hate": {"filtered": False}}


def test_a_stream_that_is_filtered_ends_well() -> None:
    blocked = STOP.replace(b'"stop"', b'"content_filter"')

    assert events(FILTER, blocked)[-1] == Done()
    assert isinstance(events(FILTER)[-1], Failed)
    assert isinstance(events(TEXT, b'{"error":{"code":"content_filter","message":"m"}}')[-1], Failed)


def test_a_whole_answer_passes_as_it_came() -> None:
    body = b'{"id":"c","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"prompt_filter_results":[]}'
    got = AZURE.decode(body, "application/json", request())

    assert isinstance(got, Chunk) and got.payload == body


@pytest.mark.parametrize(
    ("status", "body", "headers", "expected"),
    [
        (400, {"error": {"code": "content_filter", "message": "m", "innererror": POLICY}}, {}, C.CONTENT_POLICY),
        (400, {"error": {"code": "BadRequest", "message": "m", "innererror": POLICY}}, {}, C.CONTENT_POLICY),
        (400, {"error": {"code": "context_length_exceeded", "message": "m"}}, {}, C.CONTEXT_LENGTH),
        (400, {"error": {"code": "BadRequest", "message": "API version not supported"}}, {}, C.BAD_REQUEST),
        (401, {"error": {"code": "401", "message": "Access denied due to invalid subscription key"}}, {}, C.AUTH),
        (401, {"error": {"code": "PermissionDenied", "message": "m"}}, {}, C.AUTH),
        (401, {"statusCode": 401, "message": "Unauthorized"}, {}, C.AUTH),
        (403, {"error": {"code": "403", "message": "Access denied due to Virtual Network/Firewall rules."}}, {}, C.AUTH),
        (404, {"error": {"code": "DeploymentNotFound", "message": "m"}}, {}, C.MODEL_NOT_FOUND),
        (404, {"error": {"code": "404", "message": "Resource not found"}}, {}, C.MODEL_NOT_FOUND),
        (408, {"error": {"code": "Timeout", "message": "m"}}, {}, C.TIMEOUT),
        (429, {"error": {"code": "429", "message": "Requests have exceeded token rate limit"}}, {"retry-after": "6"}, C.RATE_LIMITED),
        (429, {"error": {"code": "RateLimitReached", "message": "m"}}, {}, C.RATE_LIMITED),
        (429, {"error": {"code": "429", "message": "The system is experiencing high demand"}}, {}, C.OVERLOADED),
        (429, {"error": {"code": "RateLimitReached", "message": "We are under High Demand"}}, {}, C.OVERLOADED),
        (429, {"error": {"code": "429", "message": "The request parameters exceed the token limit"}}, {}, C.CONTEXT_LENGTH),
        (429, {"error": {"code": "429", "message": "m"}}, {"retry-after": "86400"}, C.QUOTA_EXHAUSTED),
        (429, [], {}, C.RATE_LIMITED),
        (500, {"error": {"code": "InternalServerError", "message": "m"}}, {}, C.SERVER_ERROR),
        (503, {"error": {"code": "ServiceUnavailable", "message": "m"}}, {}, C.OVERLOADED),
    ],
)  # fmt: skip
def test_what_an_error_means(status: int, body: object, headers: dict[str, str], expected: FailureClass) -> None:
    assert failure(status, body, headers).failure_class is expected


def test_a_decoder_says_what_it_is() -> None:
    assert repr(AZURE.decoder(request())) == "<AnnotationDecoder of <ChunkDecoder open, 0 of 0 choices finished>>"


@given(st.lists(st.sampled_from([FILTER, TEXT, STOP, USAGE, *ODD])))
def test_nothing_that_comes_makes_it_raise(payloads: list[bytes]) -> None:
    for event in events(*payloads):
        assert not isinstance(event, Chunk) or isinstance(json.loads(event.payload)["choices"], list)
