"""Counting tokens at providers: what is asked where, and what is understood."""

from __future__ import annotations

import json

import pytest

from n4n.core.catalog import Account, Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import Signing
from n4n.core.dialects.counting import COUNTERS, read_count
from n4n.core.dialects.table import DIALECTS
from n4n.core.skins.messages import read_messages

TOOL = {"name": "t", "input_schema": {"type": "object", "properties": {}}}
ASKED = read_messages(
    json.dumps({
        "model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "ping"}], "tools": [TOOL], "max_tokens": 5,
        "temperature": 0.5, "stream": True,
    }).encode()
)  # fmt: skip


def asked(dialect: str, model: str = "theirs", secret: str = "s") -> tuple[str, dict[str, object]]:
    """Path and body of the call."""
    provider = Provider("p", dialect, "https://a.example/v1")
    endpoint = Endpoint(EndpointId("e"), ModelId("m"), provider, (Account("a", "p"),), upstream_model=model)
    call = COUNTERS[dialect].encode(DIALECTS[dialect], ASKED, endpoint, secret)
    assert call is not None
    return call.url.removeprefix("https://a.example/v1"), json.loads(call.body)


def test_anthropic_counts_the_input_alone() -> None:
    path, body = asked("anthropic")

    assert path == "/messages/count_tokens"
    assert body.keys() == {"model", "messages", "system", "tools"}


def test_responses_counts_what_would_be_sent() -> None:
    path, body = asked("openai_responses")

    assert path == "/responses/input_tokens"
    assert body.keys() == {"model", "input", "tools"} and body["model"] == "theirs"


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "models/gemini-2.5-pro"])
def test_gemini_counts_the_whole_request(model: str) -> None:
    path, body = asked("gemini", model)

    assert path == "/models/gemini-2.5-pro:countTokens"
    assert body.keys() == {"generateContentRequest"}
    inner = body["generateContentRequest"]
    assert isinstance(inner, dict) and inner["model"] == "models/gemini-2.5-pro"
    assert {"contents", "systemInstruction", "tools", "generationConfig"} <= inner.keys()


def test_vertex_counts_gemini_and_claude() -> None:
    path, body = asked("vertex", "gemini-2.5-pro")
    assert path == "/publishers/google/models/gemini-2.5-pro:countTokens"
    assert body.keys() == {"contents", "systemInstruction", "tools", "generationConfig"}

    path, body = asked("vertex", "claude-sonnet-4-6")
    assert path == "/publishers/anthropic/models/count-tokens:rawPredict"
    assert body.keys() == {"model", "messages", "system", "tools", "anthropic_version"} and body["model"] == "claude-sonnet-4-6"


def test_vertex_counts_nobody_elses_models() -> None:
    endpoint = Endpoint(
        EndpointId("e"), ModelId("m"), Provider("p", "vertex", "https://a.example/v1"), (Account("a", "p"),), upstream_model="mistral-large"
    )
    assert COUNTERS["vertex"].encode(DIALECTS["vertex"], ASKED, endpoint, "s") is None


def test_bedrock_counts_a_conversation_and_signs_for_it() -> None:
    path, body = asked("bedrock", "anthropic.claude-sonnet-4-6")
    assert path == "/model/anthropic.claude-sonnet-4-6/count-tokens"
    inner = body["input"]
    assert isinstance(inner, dict) and inner["converse"].keys() == {"messages", "system", "toolConfig"}

    endpoint = Endpoint(
        EndpointId("e"), ModelId("m"), Provider("p", "bedrock", "https://a.example"), (Account("a", "p"),), upstream_model="x"
    )
    call = COUNTERS["bedrock"].encode(DIALECTS["bedrock"], ASKED, endpoint, "AKIA" + "A" * 16 + ":" + "s" * 40)
    assert call is not None and call.signing == Signing("bedrock", "")


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"input_tokens":14}', 14),
        (b'{"totalTokens":31,"totalBillableCharacters":96}', 31),
        (b'{"inputTokens":0}', 0),
        (b'{"input_tokens":-1}', None),
        (b'{"input_tokens":"many"}', None),
        (b"{}", None),
        (b"<html>", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_count_is_read_or_there_is_none(body: bytes, count: int | None) -> None:
    assert read_count(body) == count
