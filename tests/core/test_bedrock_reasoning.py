"""Reasoning on Bedrock: how each model is asked for it, and how what it thought before comes back to it."""

from __future__ import annotations

from typing import Any

import pytest

from n4n.core.dialects.bedrock.models import Reasoning, Traits, traits_of
from tests.support.bedrock import (
    CALL,
    GPT,
    LLAMA,
    NOVA,
    NOVA_2,
    OLDER,
    OPUS,
    OSS,
    PROFILE,
    SONNET,
    TOOL,
    body,
    endpoint,
    request,
    turns,
    warned,
)

FABLE = "us.anthropic.claude-fable-5-1"
HAIKU_3 = "anthropic.claude-3-haiku-20240307-v1:0"
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "EpkB", "format": "anthropic-claude-v1", "index": 0}
HIDDEN = {"type": "reasoning.encrypted", "data": "U0lH", "format": "bedrock-converse-v1", "index": 2}


@pytest.mark.parametrize(
    ("fields", "model", "own"),
    [
        ({"reasoning_effort": "high"}, SONNET, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ({"reasoning_effort": "minimal"}, OPUS, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ({"reasoning_effort": "odd"}, OPUS, {"thinking": {"type": "adaptive"}}),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, OPUS, {"thinking": {"type": "adaptive", "display": "summarized"}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5000}},
            OPUS,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 99999}},
            OPUS,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        ({"reasoning_effort": "none"}, SONNET, {"thinking": {"type": "disabled"}}),
        ({"thinking": {"type": "disabled"}}, SONNET, {"thinking": {"type": "disabled"}}),
        ({"reasoning": {"enabled": False}}, SONNET, {"thinking": {"type": "disabled"}}),
        (
            {"reasoning": {"enabled": True, "exclude": True}},
            SONNET,
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "medium"}},
        ),
        (
            {"reasoning": {"effort": "low"}, "include_reasoning": True},
            SONNET,
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        ),
        ({"reasoning_effort": "medium"}, OLDER, {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        ({"reasoning": {"max_tokens": 5}}, OLDER, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 3000}, "max_tokens": 4000},
            OLDER,
            {"thinking": {"type": "enabled", "budget_tokens": 3000}},
        ),
        ({"reasoning_effort": "high", "max_tokens": 4000}, OLDER, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ({"reasoning_effort": "odd"}, OLDER, {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        ({"thinking": {"type": "adaptive"}}, OLDER, {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        ({"reasoning_effort": "none"}, OLDER, {"thinking": {"type": "disabled"}}),
        ({"reasoning_effort": "max"}, NOVA_2, {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ({"thinking": {"type": "adaptive"}}, NOVA_2, {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}}),
        ({"reasoning_effort": "none"}, NOVA_2, {"reasoningConfig": {"type": "disabled"}}),
        ({"reasoning_effort": "xhigh"}, GPT, {"reasoning": {"effort": "xhigh"}}),
        ({"thinking": {"type": "adaptive"}}, GPT, {"reasoning": {"effort": "medium"}}),
        ({"reasoning_effort": "none"}, GPT, {"reasoning": {"effort": "none"}}),
        ({"reasoning_effort": "low"}, OSS, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "low"}, PROFILE, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "deepseek.v3-v1:0", {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, LLAMA, None),
        ({"reasoning": {"exclude": True}}, SONNET, None),
        ({}, SONNET, None),
    ],
)
def test_a_wish_for_reasoning_goes_in_the_models_own_fields(fields: Any, model: str, own: Any) -> None:
    got = body(request(**fields), model)

    assert got.get("additionalModelRequestFields") == own
    counted = (own or {}).get("thinking", {}).get("type") in ("adaptive", "enabled")
    assert got.get("additionalModelResponseFieldPaths") == (["/usage/output_tokens_details"] if counted else None)


@pytest.mark.parametrize(
    ("fields", "model", "warning"),
    [
        ({"reasoning_effort": "low"}, HAIKU_3, "reasoning was left out: endpoint e1 cannot be told how much to reason"),
        ({"reasoning_effort": "low"}, NOVA, "reasoning was left out: endpoint e1 cannot be told how much to reason"),
        ({"reasoning_effort": "low"}, "us.deepseek.r1-v1:0", "reasoning was left out: endpoint e1 cannot be told how much to reason"),
        (
            {"reasoning_effort": "low", "max_tokens": 900},
            OLDER,
            "reasoning was left out: endpoint e1 needs more than 1024 max_tokens for it",
        ),
        ({"reasoning_effort": "none"}, FABLE, "reasoning_effort none was left out: endpoint e1 always reasons"),
        ({"reasoning_effort": "none"}, OSS, "reasoning_effort none was left out: endpoint e1 always reasons"),
        (
            {"reasoning_effort": "low", "tools": [TOOL], "tool_choice": "required"},
            SONNET,
            "reasoning was left out: endpoint e1 does not reason where a tool call is forced",
        ),
    ],
)
def test_a_wish_that_cannot_be_told_is_named(fields: Any, model: str, warning: str) -> None:
    assert warned(request(**fields), model) == (warning,)
    assert "additionalModelRequestFields" not in body(request(**fields), model)


CHAT = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "d"},
]


def chat(*details: object) -> list[Any]:
    return [CHAT[0], {**CHAT[1], "reasoning_details": list(details)}, CHAT[2]]


def test_reasoning_comes_back_at_its_place_with_its_signature() -> None:
    got = turns(chat(HIDDEN, SIGNED), tools=[TOOL])

    assert got[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "EpkB"}}},
        {"text": "b"},
        {"reasoningContent": {"redactedContent": "U0lH"}},
        {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}},
    ]


@pytest.mark.parametrize(
    ("detail", "model"),
    [
        (SIGNED, GPT),  # whose model knows no signatures of Claude's
        ({**SIGNED, "signature": ""}, SONNET),
        ({**SIGNED, "signature": None}, SONNET),
        ({**SIGNED, "format": "google-gemini-v1"}, SONNET),
        ({**HIDDEN, "format": "anthropic-claude-v1"}, SONNET),  # what Anthropic encrypted nobody says to be Bedrock's
        ({**HIDDEN, "data": 7}, SONNET),
        ({"type": "reasoning.summary", "summary": "s", "format": "bedrock-converse-v1"}, SONNET),
        ("odd", SONNET),
    ],
)
def test_reasoning_that_only_others_can_read_is_left_out(detail: object, model: str) -> None:
    assert [next(iter(block)) for block in turns(chat(detail), model, tools=[TOOL])[1]["content"]] == ["text", "toolUse"]


def test_reasoning_without_a_place_or_a_text_comes_back_first() -> None:
    bare = {name: value for name, value in SIGNED.items() if name not in ("index", "text")}

    assert turns(chat(bare, {**HIDDEN, "index": -1}), tools=[TOOL])[1]["content"][:2] == [
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "EpkB"}}},
        {"reasoningContent": {"redactedContent": "U0lH"}},
    ]


def test_a_model_that_is_told_a_budget_does_not_reason_between_calls_of_others() -> None:
    asked = request(CHAT, tools=[TOOL], reasoning_effort="low")
    left_out = ("reasoning was left out: endpoint e1 does not reason on between calls that it did not make",)

    assert warned(asked, OLDER) == left_out
    assert warned(asked, SONNET) == ()
    assert warned(request(chat(SIGNED), tools=[TOOL], reasoning_effort="low"), OLDER) == ()
    assert warned(request([*CHAT, {"role": "assistant", "content": "e"}, CHAT[0]], tools=[TOOL], reasoning_effort="low"), OLDER) == ()


@pytest.mark.parametrize(
    ("upstream", "model", "vendor", "reasoning"),
    [
        ("anthropic.claude-opus-4-20250514-v1:0", "m", "anthropic", Reasoning.BUDGET),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", "m", "anthropic", Reasoning.BUDGET),
        ("anthropic.claude-mythos-preview", "m", "anthropic", Reasoning.ADAPTIVE),
        (PROFILE, "claude-3-5-sonnet", "anthropic", Reasoning.NONE),
        (PROFILE, "m", "", Reasoning.FLAT),
        ("moonshotai.kimi-k3", "m", "moonshot", Reasoning.FLAT),
        ("moonshot.kimi-k2-thinking", "m", "moonshot", Reasoning.FLAT),
        ("us.xai.grok-4.7", "m", "xai", Reasoning.NONE),
        ("qwen.qwen3-32b-v1:0", "m", "qwen", Reasoning.NONE),
    ],
)
def test_a_models_name_tells_what_it_is(upstream: str, model: str, vendor: str, reasoning: Reasoning) -> None:
    traits = traits_of(endpoint(upstream, model=model))

    assert (traits.vendor, traits.reasoning) == (vendor, reasoning)
    assert traits_of(endpoint(PROFILE)) == Traits()
