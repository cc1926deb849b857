"""What a chat becomes on its way to Bedrock: where it goes, its tools, how it is to be answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.chat import Signing
from n4n.core.dialects.bedrock.request import CANNOT
from n4n.core.document import FEATURES
from tests.support.bedrock import (
    BEDROCK,
    GPT,
    LLAMA,
    NOVA,
    NOVA_2,
    OLDER,
    OPUS,
    PROFILE,
    SONNET,
    SPEC,
    TOOL,
    body,
    endpoint,
    request,
    sent,
    warned,
)

# ── where it goes, and who we are


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        (SONNET, False, "/model/us.anthropic.claude-sonnet-4-6/converse"),
        (OLDER, True, "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"),
        (PROFILE, False, "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Aapplication-inference-profile%2Fabc123/converse"),
    ],
)
def test_the_model_stands_in_the_path_with_every_sign_escaped(model: str, stream: bool, path: str) -> None:
    got = sent(request(stream=stream), model)

    assert got.url == "https://bedrock-runtime.us-east-1.amazonaws.com" + path
    assert json.loads(got.body) == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def test_a_bedrock_key_is_a_bearer_token_and_anything_else_signs() -> None:
    headers = (("content-type", "application/json"), ("accept", "application/json"))
    key = BEDROCK.encode(request(), endpoint(headers={"x-team": "n4n"}), "ABSKQmVkcm9jaw==")
    assert key.headers == (*headers, ("authorization", "Bearer ABSKQmVkcm9jaw=="), ("x-team", "n4n"))
    assert key.signing is None

    for secret in (None, "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "profile:team", '{"AccessKeyId": 1}'):
        pair = BEDROCK.encode(request(stream=True), endpoint(), secret)
        assert pair.headers == (headers[0], ("accept", "application/vnd.amazon.eventstream"))
        assert pair.signing == Signing("bedrock", "us-east-1")


# ── tools


def test_tools_are_told_with_their_schemas() -> None:
    tools = [
        {"type": "function", "function": {"name": "a", "description": "d", "parameters": {"properties": {"x": {}}}, "strict": True}},
        {"type": "function", "function": {"name": "b", "description": " "}},
        {"type": "web_search"},
    ]
    got = body(request(tools=tools, functions=[{"name": "c", "parameters": {"type": "object", "x": 1}}]))["toolConfig"]

    closed = {"properties": {"x": {}}, "type": "object", "additionalProperties": False}
    assert got == {
        "tools": [
            {"toolSpec": {"name": "a", "description": "d", "inputSchema": {"json": closed}, "strict": True}},
            {"toolSpec": {"name": "b", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
            {"toolSpec": {"name": "c", "inputSchema": {"json": {"type": "object", "x": 1}}}},
        ]
    }
    assert warned(request(tools=tools), OPUS) == (
        "tools[2] was left out: endpoint e1 takes no tool of type web_search",
        "strict of tools was left out: endpoint e1 holds no tool to its schema",
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("required", {"any": {}}),
        ("any", {"any": {}}),
        ({"type": "function", "function": {"name": "f"}}, {"tool": {"name": "f"}}),
        ({"type": "function", "name": "f"}, {"tool": {"name": "f"}}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL, {"type": "custom"}]}}, {"any": {}}),
    ],
)
def test_a_choice_of_tools_is_told(choice: object, expected: object) -> None:
    config = body(request(tools=[TOOL], tool_choice=choice))["toolConfig"]

    assert config.get("toolChoice") == expected
    assert config["tools"] == [SPEC]


def test_the_old_choice_is_told_and_an_unknown_one_named() -> None:
    assert body(request(functions=[{"name": "f"}], function_call={"name": "f"}))["toolConfig"]["toolChoice"] == {"tool": {"name": "f"}}
    assert warned(request(tools=[TOOL], tool_choice={"type": "custom"})) == (
        "tool_choice was left out: endpoint e1 knows no choice of type custom",
    )
    assert warned(request(tools=[TOOL], tool_choice="maybe")) == ("tool_choice was left out: endpoint e1 knows no choice maybe",)


def test_only_allowed_tools_are_offered() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"tools": [other]}}

    assert [tool["toolSpec"]["name"] for tool in body(request(tools=[TOOL, other], tool_choice=choice))["toolConfig"]["tools"]] == ["g"]


def test_one_call_at_a_time_is_claudes_to_know() -> None:
    asked = request(tools=[TOOL], parallel_tool_calls=False)

    assert body(asked)["additionalModelRequestFields"] == {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    forced = body(request(tools=[TOOL], parallel_tool_calls=False, tool_choice="required"))
    assert forced["additionalModelRequestFields"] == {"tool_choice": {"disable_parallel_tool_use": True}}
    assert forced["toolConfig"]["toolChoice"] == {"any": {}}
    assert warned(asked, NOVA) == ("parallel_tool_calls was left out: endpoint e1 cannot be held to one call at a time",)
    assert "additionalModelRequestFields" not in body(request(tools=[TOOL], parallel_tool_calls=True))
    assert warned(request(parallel_tool_calls=True)) == ()


# ── how it is answered


def test_inference_is_told_in_converses_words() -> None:
    got = body(request(max_tokens=9, temperature=0.5, stop=["a", " "], top_k=4), OLDER)

    assert got["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["a"]}
    assert got["additionalModelRequestFields"] == {"top_k": 4}
    assert body(request(max_completion_tokens=9, top_p=0.5, stop="a"), LLAMA)["inferenceConfig"] == {
        "maxTokens": 9, "topP": 0.5, "stopSequences": ["a"],
    }  # fmt: skip
    assert body(request(top_k=4), NOVA)["additionalModelRequestFields"] == {"inferenceConfig": {"topK": 4}}


@pytest.mark.parametrize(
    ("fields", "model", "config", "warnings"),
    [
        ({"max_tokens": 99}, SONNET, {"maxTokens": 50}, ["max_tokens was lowered to 50: endpoint e1 writes no more"]),
        ({"max_tokens": 1}, GPT, {"maxTokens": 16}, ["max_tokens was raised to 16: endpoint e1 takes no less"]),
        ({"temperature": 1.5}, LLAMA, {"temperature": 1.0}, ["temperature was lowered to 1: endpoint e1 takes no more"]),
        (
            {"temperature": 0, "top_p": 0.5},
            SONNET,
            {"temperature": 0.0},
            ["top_p was left out: endpoint e1 takes only one of temperature and top_p"],
        ),
        (
            {"temperature": 0, "top_p": 0.5},
            OPUS,
            None,
            [
                "temperature was left out: endpoint e1 takes no sampling parameters",
                "top_p was left out: endpoint e1 takes no sampling parameters",
            ],
        ),
        (
            {"temperature": 1, "top_p": 0.5, "reasoning_effort": "low"},
            SONNET,
            None,
            ["top_p was left out: endpoint e1 takes none while it reasons"],
        ),
        ({"stop": ["a"]}, GPT, None, ["stop was left out: endpoint e1 takes no stop sequences"]),
        ({"stop": ["a"]}, "us.xai.grok-4.7", None, ["stop was left out: endpoint e1 takes no stop sequences"]),
        ({"stop": ""}, SONNET, None, ["a blank stop sequence was left out: endpoint e1 takes none"]),
        ({"stop": None, "temperature": None, "top_p": None, "top_k": None}, SONNET, None, []),
        ({"top_k": 4, "reasoning_effort": "low"}, SONNET, None, ["top_k was left out: endpoint e1 takes none while it reasons"]),
        ({"top_k": 4}, OPUS, None, ["top_k was left out: endpoint e1 has no word for it"]),
        (
            {"max_tokens": 9, "top_p": 0.5, "stop": "a", "reasoning_effort": "high"},
            NOVA_2,
            {"stopSequences": ["a"]},
            [
                "max_tokens was left out: endpoint e1 takes none at its highest effort of reasoning",
                "top_p was left out: endpoint e1 takes none at its highest effort of reasoning",
            ],
        ),
    ],
)
def test_what_a_model_refuses_is_left_out_or_changed_and_named(fields: Any, model: str, config: Any, warnings: list[str]) -> None:
    asked = request(**fields)

    assert body(asked, model, max_output_tokens=50).get("inferenceConfig") == config
    assert list(warned(asked, model, max_output_tokens=50)) == warnings


def test_a_great_many_stop_sequences_are_cut() -> None:
    asked = request(stop=[str(number) for number in range(2501)])

    assert len(body(asked)["inferenceConfig"]["stopSequences"]) == 2500
    assert warned(asked) == ("stop was shortened to 2500 texts: endpoint e1 takes no more",)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}


def test_a_schema_of_the_answer_is_a_text() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": SCHEMA}}
    told = body(request(response_format=form))["outputConfig"]["textFormat"]

    assert told["type"] == "json_schema"
    inner = told["structure"]["jsonSchema"]
    assert (inner["name"], inner["description"]) == ("n", "d")
    assert json.loads(inner["schema"]) == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "minimum: 1"}},
        "additionalProperties": False,
    }
    bare = body(request(response_format={"type": "json_schema", "json_schema": {}}))["outputConfig"]["textFormat"]["structure"]
    assert json.loads(bare["jsonSchema"]["schema"]) == {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("form", "supports", "words"),
    [
        ({"type": "json_object"}, None, "Answer with one JSON object and nothing else."),
        ({"type": "json_schema"}, None, "Answer with one JSON object and nothing else."),
        (
            {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
            frozenset(("tools",)),
            'Answer with JSON and nothing else. It has to conform to this JSON schema: {"type":"object","additionalProperties":false}',
        ),
    ],
)
def test_a_form_that_cannot_be_enforced_is_asked_for_in_words(form: Any, supports: Any, words: str) -> None:
    asked = request([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], response_format=form)

    assert body(asked, supports=supports)["system"] == [{"text": "a"}, {"text": words}]
    assert warned(asked, supports=supports) == (f"response_format is asked for in words: endpoint e1 has no {form['type']}",)


@pytest.mark.parametrize("form", [None, {"type": "text"}])
def test_text_is_asked_for_without_a_word(form: Any) -> None:
    assert body(request(response_format=form)) == body(request())


# ── everything else


def test_metadata_tiers_and_own_fields_pass() -> None:
    got = body(
        request(
            metadata={"team": "sea", "note": "ä", "n": 7, "": "x"},
            service_tier="flex",
            performanceConfig={"latency": "optimized"},
            additionalModelRequestFields={"x": 1, "tool_choice": {"type": "none"}},
            tools=[TOOL],
            parallel_tool_calls=False,
        )
    )

    assert got["requestMetadata"] == {"team": "sea"}
    assert got["serviceTier"] == {"type": "flex"}
    assert got["performanceConfig"] == {"latency": "optimized"}
    assert got["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}, "x": 1}
    own = body(request(metadata={"a": "b"}, requestMetadata={str(n): "v" for n in range(20)}, serviceTier={"type": "reserved"}))
    assert (len(own["requestMetadata"]), own["serviceTier"]) == (16, {"type": "reserved"})


def test_the_endpoints_body_is_laid_over_the_requests() -> None:
    over = {"guardrailConfig": {"guardrailIdentifier": "house"}, "inferenceConfig": {"maxTokens": 5}}
    got = body(request(guardrailConfig={"guardrailIdentifier": "mine", "trace": "enabled"}, max_tokens=9), body=over)

    assert got["guardrailConfig"] == {"guardrailIdentifier": "house", "trace": "enabled"}
    assert got["inferenceConfig"] == {"maxTokens": 5}
    canned = [{"role": "user", "content": [{"text": "always this"}]}]
    assert body(request(max_tokens=9), body={"messages": canned}) == {"inferenceConfig": {"maxTokens": 9}, "messages": canned}


def test_every_field_without_a_place_is_named() -> None:
    asked = request(
        n=2, seed=7, logprobs=True, top_logprobs=2, logit_bias={"1": 2}, presence_penalty=0.5, user="u", store=False, modalities=["text"],
        metadata={"bad": "ä"}, service_tier="scale", made_up=1, min_p=0.1, frequency_penalty=0, stream_options=None,
    )  # fmt: skip

    assert warned(asked) == (
        *(
            f"{name} was left out: endpoint e1 has no word for it"
            for name in ("n", "seed", "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "user", "made_up", "min_p")
        ),
        "part of metadata was left out: endpoint e1 takes 16 short texts of plain characters",
        "service_tier was left out: endpoint e1 has no tier scale",
    )
    assert warned(request(n=1, logprobs=False, service_tier="auto")) == ()
    assert set(FEATURES) >= CANNOT


def test_what_the_endpoint_lacks_is_left_out_and_said() -> None:
    asked = request(tools=[TOOL], tool_choice="required", reasoning_effort="low", seed=1)
    got = sent(asked, supports=frozenset(("vision",)))

    assert json.loads(got.body) == json.loads(sent(request()).body)
    assert got.warnings == (
        "tool_choice was left out: endpoint e1 does not support forced_tool_choice",
        "reasoning_effort was left out: endpoint e1 does not support reasoning",
        "seed was left out: endpoint e1 does not support seed",
        "tools was left out: endpoint e1 does not support tools",
    )
