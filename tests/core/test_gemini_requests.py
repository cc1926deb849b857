"""The dialect `gemini`: what a chat becomes on its way out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.gemini import Gemini
from n4n.core.dialects.gemini.thinking import version_of
from n4n.core.errors import MalformedRequest, Untellable

GEMINI = Gemini()
USER = {"role": "user", "content": "hi"}
FORMAT = "google-gemini-v1"


def request(*messages: object, **fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": messages or [USER], **fields}).encode())


def endpoint(model: str = "gemini-2.5-flash", **fields: Any) -> Endpoint:
    provider = Provider("p", "gemini", "https://example.test/v1beta", headers=fields.pop("headers", {}))
    return Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), model, **fields)


def sent(
    *messages: object, model: str = "gemini-2.5-flash", at: Endpoint | None = None, **fields: object
) -> tuple[dict[str, Any], list[str]]:
    """The body that goes out, and the warnings."""
    made = GEMINI.encode(request(*messages, **fields), at or endpoint(model), "secret")
    return json.loads(made.body), list(made.warnings)


def unchecked(**fields: object) -> tuple[dict[str, Any], list[str]]:
    """The same of members that no skin lets pass."""
    given = {**request().fields, **{name: msgspec.Raw(json.dumps(value).encode()) for name, value in fields.items()}}
    made = GEMINI.encode(msgspec.structs.replace(request(), fields=given), endpoint(), "secret")
    return json.loads(made.body), list(made.warnings)


def generation(**fields: object) -> tuple[dict[str, Any], list[str]]:
    body, warnings = sent(**fields)  # type: ignore[arg-type]
    return body.get("generationConfig", {}), warnings


def turns(*messages: object, model: str = "gemini-2.5-flash") -> list[dict[str, Any]]:
    body, warnings = sent(*messages, model=model)
    assert warnings == []
    return list(body["contents"])


def said(role: str, *parts: object) -> dict[str, object]:
    return {"role": role, "parts": list(parts)}


def calling(*calls: tuple[str, str, str], **more: object) -> dict[str, object]:
    listed = [{"id": name, "type": "function", "function": {"name": of, "arguments": arguments}} for name, of, arguments in calls]
    return {"role": "assistant", "content": None, "tool_calls": listed, **more}


def result(name: str, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": name, "content": content}


# ── the request around the body


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-2.5-pro", False, "models/gemini-2.5-pro:generateContent"),
        ("gemini-2.5-pro", True, "models/gemini-2.5-pro:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-pro", False, "models/gemini-2.5-pro:generateContent"),
        ("tunedModels/mine", False, "tunedModels/mine:generateContent"),
        ("a b?c", False, "models/a%20b%3Fc:generateContent"),
    ],
)
def test_the_model_stands_in_the_url(model: str, stream: bool, path: str) -> None:
    made = GEMINI.encode(request(stream=stream), endpoint(model), "secret")

    assert made.url == f"https://example.test/v1beta/{path}"


def test_the_key_is_a_header_and_never_in_the_url() -> None:
    made: UpstreamRequest = GEMINI.encode(request(), endpoint(headers={"x-title": "n4n"}), "secret")

    assert made.headers == (
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("x-goog-api-key", "secret"),
        ("x-title", "n4n"),
    )
    assert "secret" not in made.url
    assert GEMINI.encode(request(stream=True), endpoint(), None).headers == (
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
    )


def test_a_plain_chat_is_nothing_but_contents() -> None:
    assert sent(USER) == ({"contents": [said("user", {"text": "hi"})]}, [])


# ── messages


def test_system_and_developer_messages_are_the_instruction() -> None:
    body, warnings = sent(
        {"role": "system", "content": "be brief"}, USER, {"role": "developer", "content": [{"type": "text", "text": "and kind"}]}
    )

    assert body["systemInstruction"] == {"parts": [{"text": "be brief"}, {"text": "and kind"}]}
    assert body["contents"] == [said("user", {"text": "hi"})]
    assert warnings == []


def test_an_instruction_alone_is_what_the_user_says() -> None:
    body, _ = sent({"role": "system", "content": "write a poem"})

    assert body == {"contents": [said("user", {"text": "write a poem"})]}


def test_nothing_said_is_an_empty_text() -> None:
    assert sent({"role": "user", "content": ""})[0] == {"contents": [said("user", {"text": ""})]}


def test_turns_of_one_role_in_a_row_are_one_turn_and_empty_ones_are_none() -> None:
    assert turns(
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"text": ""}]},
        {"role": "assistant", "content": ""},
        {"role": "user"},
        {"role": "assistant", "content": "c", "refusal": None},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
    ) == [said("user", {"text": "a"}, {"text": "b"}), said("model", {"text": "c"}, {"text": "no"}, {"text": "never"})]


def test_a_text_goes_out_as_the_bytes_it_came_as() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"\\u00e9\\ud83d\\ude42 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"}]}'
    made = GEMINI.encode(read_chat(raw), endpoint(), None)

    assert b'{"text":"\\u00e9\\ud83d\\ude42 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"}' in made.body


def test_calls_and_their_results_are_paired_by_id_name_and_order() -> None:
    got = turns(
        USER,
        calling(("c1", "tide", '{"port": "a"}'), ("c2", "tide", "")),
        result("c2", "low"),
        result("c1", '{"level": 3}'),
        USER,
    )

    assert got[1:] == [
        said(
            "model",
            {"functionCall": {"id": "c1", "name": "tide", "args": {"port": "a"}}},
            {"functionCall": {"id": "c2", "name": "tide", "args": {}}},
        ),
        said(
            "user",
            {"functionResponse": {"id": "c1", "name": "tide", "response": {"level": 3}}},
            {"functionResponse": {"id": "c2", "name": "tide", "response": {"output": "low"}}},
        ),
        said("user", {"text": "hi"}),
    ]


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": 1.50}', {"a": 1.5}),
        ("[1]", {"arguments": [1]}),
        ("not json", {"arguments": "not json"}),
        ('{"cut": ', {"arguments": '{"cut": '}),
        ('{"x":"\\ud83d"}', {"x": "\ud83d"}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, args: object) -> None:
    assert turns(calling(("c", "f", arguments)))[0]["parts"] == [{"functionCall": {"id": "c", "name": "f", "args": args}}]


@pytest.mark.parametrize(
    ("content", "response"),
    [
        ("42", {"output": "42"}),
        ('{"a":1}', {"a": 1}),
        ('{"a":', {"output": '{"a":'}),
        ("[1]", {"output": "[1]"}),
        ("", {"output": ""}),
        (None, {"output": ""}),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], {"output": "ab"}),
    ],
)
def test_a_result_is_always_an_object(content: object, response: object) -> None:
    got = turns(calling(("c", "f", "{}")), result("c", content))

    assert got[1]["parts"] == [{"functionResponse": {"id": "c", "name": "f", "response": response}}]


def test_an_image_of_a_result_follows_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    got = turns(calling(("c", "f", "{}")), result("c", [picture, {"type": "text", "text": "seen"}]))

    assert got[1]["parts"] == [
        {"functionResponse": {"id": "c", "name": "f", "response": {"output": "seen"}}},
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
    ]


def test_functions_of_the_old_kind_have_no_ids() -> None:
    got = turns({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f", "content": "x"})

    assert got[0]["parts"] == [{"functionCall": {"name": "f", "args": {}}}]
    assert got[1]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]


def test_a_call_of_no_function_is_passed_over() -> None:
    assert turns(USER, {"role": "assistant", "content": "a", "tool_calls": [{"id": "x", "type": "custom", "custom": {}}]})[1] == said(
        "model", {"text": "a"}
    )


# ── signatures


def encrypted(data: object, **more: object) -> dict[str, object]:
    return {"type": "reasoning.encrypted", "data": data, "format": FORMAT, **more}


def test_signatures_go_back_with_the_parts_they_came_with() -> None:
    details = [
        {"type": "reasoning.text", "text": "hm", "signature": "S0", "format": FORMAT},
        encrypted("S1", id="c1"),
        encrypted("S2"),
    ]
    got = turns(
        USER,
        calling(("c1", "f", "{}"), ("c2", "f", "{}"), content="so", reasoning_details=details),
        model="gemini-3.1-pro-preview",
    )

    assert got[1]["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "S0"},
        {"text": "so", "thoughtSignature": "S2"},
        {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "S1"},
        {"functionCall": {"id": "c2", "name": "f", "args": {}}},
    ]


def test_a_signature_of_a_text_that_was_empty_keeps_its_part() -> None:
    got = turns(USER, {"role": "assistant", "content": None, "reasoning_details": [encrypted("S")]})

    assert got[1]["parts"] == [{"text": "", "thoughtSignature": "S"}]


@pytest.mark.parametrize(
    "details",
    [
        None,
        "x",
        [1, None],
        [{"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1"}],
        [{"type": "reasoning.encrypted", "data": "d", "format": "openai-responses-v1"}],
        [{"type": "reasoning.text", "text": "t", "format": FORMAT}, {"type": "reasoning.summary", "format": FORMAT}],
        [encrypted(""), encrypted(5)],
    ],
)
def test_signatures_of_others_are_dropped(details: object) -> None:
    got = turns(USER, {"role": "assistant", "content": "a", "reasoning_content": "hm", "reasoning_details": details})

    assert got[1] == said("model", {"text": "a"})


def test_a_history_from_elsewhere_is_excused_from_signatures_since_the_user_spoke() -> None:
    chat = (
        USER,
        calling(("a", "f", "{}")),
        result("a", "1"),
        {"role": "user", "content": "go on"},
        calling(("b", "f", "{}"), ("c", "f", "{}")),
        result("b", "1"),
        result("c", "2"),
        calling(("d", "f", "{}"), reasoning_details=[encrypted("S", id="d")]),
        result("d", "1"),
        calling(("e", "f", "{}")),
        result("e", "1"),
    )
    signed = [
        (part["functionCall"]["id"], part.get("thoughtSignature"))
        for turn in turns(*chat, model="gemini-3.1-pro-preview")
        for part in turn["parts"]
        if "functionCall" in part
    ]

    excuse = "skip_thought_signature_validator"
    assert signed == [("a", None), ("b", excuse), ("c", None), ("d", "S"), ("e", excuse)]
    assert "thoughtSignature" not in json.dumps(turns(*chat[:7]))  # earlier versions look for none


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("gemini-2.5-flash-lite", (2, 5)),
        ("gemini-3-flash-preview", (3, 0)),
        ("gemini-3.1-pro-preview", (3, 1)),
        ("models/gemini-4-hydrogen", (4, 0)),
        ("gemini-flash-latest", (99, 0)),
        ("tunedModels/mine", (2, 5)),
    ],
)
def test_a_models_name_tells_its_version(model: str, version: tuple[int, int]) -> None:
    assert version_of(model) == version


# ── images, sounds, files


def part(made: object) -> tuple[object, list[str]]:
    body, warnings = sent({"role": "user", "content": [made]})
    return body["contents"][0]["parts"][0], warnings


def image(url: object, **more: object) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def file(**members: object) -> dict[str, object]:
    return {"type": "file", "file": members}


def inline(kind: str, data: str) -> dict[str, object]:
    return {"inlineData": {"mimeType": kind, "data": data}}


def fetched(kind: str, uri: str) -> dict[str, object]:
    return {"fileData": {"mimeType": kind, "fileUri": uri}}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (image("data:image/PNG;base64,QUJD"), inline("image/png", "QUJD")),
        (image("data:image/png;charset=x;base64,QU/+D=", detail="auto"), inline("image/png", "QU/+D=")),
        (image("data:image/svg+xml,%3Csvg%3E"), inline("image/svg+xml", "PHN2Zz4=")),
        (image("data:,hi"), inline("text/plain", "aGk=")),
        ({"type": "image_url", "image_url": "data:image/png;base64,QUJD"}, inline("image/png", "QUJD")),
        (image("https://a.test/b.WEBP?c=d.png#e"), fetched("image/webp", "https://a.test/b.WEBP?c=d.png#e")),
        (image("gs://bucket/b.jpg"), fetched("image/jpeg", "gs://bucket/b.jpg")),
        ({"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}, inline("audio/wav", "QUJD")),
        (file(filename="a.pdf", file_data="data:application/pdf;base64,QUJD"), inline("application/pdf", "QUJD")),
        (file(filename="a.csv", file_data="QUJD"), inline("text/csv", "QUJD")),
        (file(file_data="https://a.test/b.pdf"), fetched("application/pdf", "https://a.test/b.pdf")),
        (file(file_id="https://a.test/b.txt"), fetched("text/plain", "https://a.test/b.txt")),
        ({"type": "input_text", "text": "a"}, {"text": "a"}),
    ],
)
def test_media_go_inline_or_by_their_address(made: object, expected: object) -> None:
    assert part(made) == (expected, [])


def test_escapes_in_a_data_uri_are_undone() -> None:
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": [image("data:image/png;base64,QU/D\n")]}]}).replace("/", "\\/")
    made = json.loads(GEMINI.encode(read_chat(raw.encode()), endpoint(), None).body)

    assert made["contents"][0]["parts"] == [inline("image/png", "QU/D\n")]


@pytest.mark.parametrize(
    ("made", "expected", "warning"),
    [
        (
            image("https://a.test/b"),
            fetched("image/jpeg", "https://a.test/b"),
            "messages[0].content[0].image_url.url was taken to be image/jpeg: its name does not tell",
        ),
        (
            file(file_data="QUJD"),
            inline("application/pdf", "QUJD"),
            "messages[0].content[0] was taken to be application/pdf: its name does not tell",
        ),
        (
            image("data:image/png;base64,QUJD", detail="low"),
            inline("image/png", "QUJD"),
            "detail was left out: Gemini chooses an image's resolution itself",
        ),
    ],
)
def test_what_is_guessed_or_left_out_of_media_is_said(made: object, expected: object, warning: str) -> None:
    assert part(made) == (expected, [warning])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (file(file_id="file-123"), "a file_id is known only to the provider that gave it out; send file_data"),
        ({"type": "hologram"}, "Gemini has no part of type 'hologram'"),
    ],
)
def test_a_question_that_cannot_be_told_is_not_asked_without_a_part_of_it(made: object, why: str) -> None:
    with pytest.raises(Untellable) as caught:
        part(made)

    assert caught.value.message == f"messages[0].content[0]: {why}"


def test_marks_for_a_cache_are_left_out_and_said_once() -> None:
    mark = {"type": "ephemeral"}
    _, warnings = sent(
        {"role": "system", "content": "a", "cache_control": mark},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": mark}]},
        tools=[{"type": "function", "function": {"name": "f"}, "cache_control": mark}],
    )

    assert warnings == ["cache_control was left out: Gemini caches prompts by itself"]


@pytest.mark.parametrize(
    "messages",
    [
        [{"content": "no role"}],
        [{"role": "wizard", "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {"text": "x"}}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [1]}],
        [image("ftp://x/y")],
        [{"role": "user", "content": [image("ftp://x/y.png")]}],
        [{"role": "user", "content": [image(5)]}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "QUJD", "format": "midi"}}]}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": 5, "format": "wav"}}]}],
        [{"role": "user", "content": [file(file_data=5)]}],
        [USER, result("nobody", "x")],
        [USER, {"role": "tool", "content": "x"}],
        [{"role": "assistant", "tool_calls": [{"function": {}}]}],
    ],
)
def test_messages_that_nobody_could_read_are_refused_by_name(messages: list[object]) -> None:
    with pytest.raises(MalformedRequest) as caught:
        sent(*messages)

    assert caught.value.param == "messages" and "messages" in caught.value.message


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"model":"m","messages":[{"role":"user","content":' + b"[" * 5000 + b"]" * 5000 + b"}]}"
    with pytest.raises(MalformedRequest):
        GEMINI.encode(read_chat(deep), endpoint(), None)

    fields = {"messages": msgspec.Raw(b'[{"role":"user"}]'), "reasoning": msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)}
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        GEMINI.encode(ChatRequest(fields, "m"), endpoint(), None)


# ── generationConfig


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0.25, "top_p": 0.5, "top_k": 3}, {"temperature": 0.25, "topP": 0.5, "topK": 3}),
        ({"presence_penalty": 1, "frequency_penalty": -1}, {"presencePenalty": 1, "frequencyPenalty": -1}),
        ({"max_tokens": 5}, {"maxOutputTokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 7}, {"maxOutputTokens": 7}),
        ({"n": 2}, {"candidateCount": 2}),
        ({"n": 1, "temperature": None, "stop": None, "logprobs": False, "top_logprobs": 0}, {}),
        ({"stop": "a"}, {"stopSequences": ["a"]}),
        ({"stop": ["a", "", "b"]}, {"stopSequences": ["a", "b"]}),
        ({"seed": -7}, {"seed": -7}),
        ({"logprobs": True}, {"responseLogprobs": True}),
        ({"logprobs": True, "top_logprobs": 3}, {"responseLogprobs": True, "logprobs": 3}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"responseMimeType": "application/json"}),
        ({"response_format": {"type": "json_schema"}}, {"responseMimeType": "application/json"}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object"}}}},
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        ),
        ({"parallel_tool_calls": True, "store": False, "service_tier": "auto", "modalities": ["text"], "function_call": "auto"}, {}),
    ],
)
def test_each_setting_has_its_place(fields: dict[str, object], expected: object) -> None:
    assert generation(**fields) == (expected, [])


@pytest.mark.parametrize(
    ("fields", "expected", "warning"),
    [
        (
            {"stop": list("abcdefg")},
            {"stopSequences": list("abcde")},
            "stop was shortened to its first 5 texts, the most that Gemini takes",
        ),
        ({"seed": 2**40 + 3}, {"seed": 3}, "seed was folded into 31 bits, the most that Gemini takes"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            {"responseMimeType": "application/json", "responseJsonSchema": {}},
            "of response_format was left out: not",
        ),
        ({"user": "u"}, {}, "user was left out: Gemini has no such field"),
        ({"parallel_tool_calls": False}, {}, "parallel_tool_calls was left out: Gemini has no such field"),
        ({"store": True}, {}, "store was left out: Gemini has no such field"),
        ({"logit_bias": {"5": 1}}, {}, "logit_bias was left out: Gemini has no such field"),
        ({"prompt_cache_key": "k"}, {}, "prompt_cache_key was left out: Gemini has no such field"),
    ],
)
def test_what_gemini_takes_otherwise_or_not_at_all_is_said(fields: dict[str, object], expected: object, warning: str) -> None:
    assert generation(**fields) == (expected, [warning])


@pytest.mark.parametrize(("fields", "param"), [({"stop": 5}, "stop"), ({"seed": "x"}, "seed"), ({"tools": 5}, "tools")])
def test_a_setting_of_the_wrong_kind_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        unchecked(**fields)

    assert caught.value.param == param


def test_more_output_than_the_endpoint_writes_is_lowered_and_said() -> None:
    body, warnings = sent(at=endpoint(max_output_tokens=100), max_tokens=500)

    assert body["generationConfig"] == {"maxOutputTokens": 100}
    assert warnings == ["the output limit was lowered to 100, the most that endpoint e1 writes"]
    assert sent(at=endpoint(max_output_tokens=100), max_tokens=50)[1] == []


def test_what_the_endpoint_lacks_is_left_out_and_said() -> None:
    body, warnings = sent(at=endpoint(supports=frozenset(("vision",))), seed=1, temperature=0, reasoning_effort="low")

    assert body["generationConfig"] == {"temperature": 0}
    assert warnings == [
        "reasoning_effort was left out: endpoint e1 does not support reasoning",
        "seed was left out: endpoint e1 does not support seed",
    ]


def test_a_full_list_of_features_denies_a_temperature_that_it_does_not_name() -> None:
    body, warnings = sent(at=endpoint(supports=frozenset(("stop", "penalties"))), temperature=0, top_p=1, presence_penalty=1)

    assert body["generationConfig"] == {"presencePenalty": 1}
    assert warnings == [
        "temperature was left out: endpoint e1 does not support sampling_params",
        "top_p was left out: endpoint e1 does not support sampling_params",
    ]


def test_the_endpoints_body_is_laid_over_the_requests() -> None:
    at = endpoint(
        body={"generationConfig": {"topK": 4, "thinkingConfig": {"includeThoughts": False}}, "safetySettings": [{"category": "c"}]}
    )
    body, _ = sent(at=at, temperature=1, reasoning_effort="low")

    assert body["generationConfig"] == {
        "temperature": 1,
        "topK": 4,
        "thinkingConfig": {"includeThoughts": False, "thinkingBudget": 1024},
    }
    assert body["safetySettings"] == [{"category": "c"}]


# ── thinking


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-flash", {"reasoning_effort": "medium"}, {"includeThoughts": True, "thinkingBudget": 8192}),
        ("gemini-2.5-pro", {"reasoning_effort": "xhigh"}, {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-3.1-pro-preview", {"reasoning_effort": "low"}, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3-flash-preview", {"reasoning_effort": "minimal"}, {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-3.1-pro-preview", {"reasoning": {"max_tokens": 99}}, {"includeThoughts": True, "thinkingBudget": 99}),
        ("gemini-2.5-flash", {"reasoning": {"effort": "low", "exclude": True}}, {"includeThoughts": False, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", {"reasoning": {"enabled": False}}, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-flash", {"reasoning": {"enabled": True}}, {"includeThoughts": True}),
        ("gemini-2.5-flash", {"include_reasoning": True}, {"includeThoughts": True}),
        ("gemini-2.5-flash", {"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"includeThoughts": True, "thinkingBudget": 2048}),
        ("gemini-2.5-flash", {"thinking": {"type": "disabled"}}, {"includeThoughts": False, "thinkingBudget": 0}),
        (
            "gemini-2.5-flash",
            {"reasoning_effort": "low", "reasoning": {"effort": "high", "max_tokens": 5}, "include_reasoning": False},
            {"includeThoughts": False, "thinkingBudget": 1024},
        ),
    ],
)
def test_effort_becomes_a_budget_or_a_level(model: str, fields: dict[str, object], expected: object) -> None:
    body, warnings = sent(model=model, **fields)  # type: ignore[arg-type]

    assert body["generationConfig"]["thinkingConfig"] == expected
    assert warnings == []


@pytest.mark.parametrize(
    ("model", "effort", "expected", "warning"),
    [
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}, "reasoning was lowered, not turned off: gemini-2.5-pro always thinks"),
        ("gemini-3.8-flash", "none", {"thinkingLevel": "LOW"}, "reasoning effort none became low, the nearest that gemini-3.8-flash has"),
        (
            "gemini-3-flash",
            "none",
            {"thinkingLevel": "MINIMAL"},
            "reasoning effort none became minimal, the nearest that gemini-3-flash has",
        ),
        ("gemini-4-hydrogen", "max", {"thinkingLevel": "HIGH"}, "reasoning effort max became high, the nearest that gemini-4-hydrogen has"),
        (
            "gemini-2.5-pro",
            "a lot",
            {},
            "reasoning effort 'a lot' was left out: Gemini knows none, minimal, low, medium, high, xhigh, max",
        ),
    ],
)
def test_an_effort_that_a_model_lacks_becomes_the_nearest_and_is_said(model: str, effort: str, expected: object, warning: str) -> None:
    body, warnings = sent(model=model, reasoning_effort=effort)

    assert body["generationConfig"]["thinkingConfig"] == {"includeThoughts": effort != "none", **expected}  # type: ignore[dict-item]
    assert warnings == [warning]


@pytest.mark.parametrize("fields", [{"reasoning": {}}, {"thinking": {}}, {"reasoning_effort": 5}, {"include_reasoning": None}])
def test_a_wish_for_nothing_configures_nothing(fields: dict[str, object]) -> None:
    assert generation(**fields) == ({}, [])


@pytest.mark.parametrize("fields", [{"reasoning": "x"}, {"thinking": 5}, {"include_reasoning": "x"}])
def test_a_wish_that_is_none_configures_nothing(fields: dict[str, object]) -> None:
    body, warnings = unchecked(**fields)

    assert (body.get("generationConfig", {}), warnings) == ({}, [])


# ── tools


def function(name: str = "f", **members: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **members}}


def test_functions_are_declared() -> None:
    body, warnings = sent(
        tools=[
            function(
                description="does", parameters={"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
            ),
            function("g", description="", parameters={"type": "object", "properties": {}}),
        ]
    )

    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "does", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}},
                {"name": "g"},
            ]
        }
    ]
    assert warnings == []


def test_what_is_left_out_of_a_tool_is_said() -> None:
    body, warnings = sent(tools=[function(strict=True, parameters={"properties": {"a": {"not": {}}}}), {"type": "custom", "custom": {}}])

    assert len(body["tools"][0]["functionDeclarations"]) == 1
    assert warnings == ["of the tool f was left out: not, strict", "a tool of type 'custom' was left out: Gemini takes functions"]


def test_a_choice_without_functions_is_nothing() -> None:
    body, _ = sent(tools=[{"type": "custom"}], tool_choice="required")

    assert "tools" not in body and "toolConfig" not in body
    assert "toolConfig" not in sent(tool_choice="required")[0]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "f"}}, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        ({"type": "function", "name": "f"}, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("f"), function("g")]}},
            {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("f"), {"type": "x"}, 5]}},
            {"mode": "VALIDATED", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_every_form_of_a_choice_has_a_mode(choice: object, expected: object) -> None:
    body, warnings = sent(tools=[function("f"), function("g")], tool_choice=choice)

    assert body["toolConfig"] == {"functionCallingConfig": expected}
    assert warnings == []


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes",
        {"type": "function"},
        {"type": "custom", "name": "x"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": 5}},
        {"type": "allowed_tools", "allowed_tools": 5},
    ],
)
def test_a_choice_of_no_known_form_is_left_out_and_said(choice: object) -> None:
    body, warnings = sent(tools=[function()], tool_choice=choice)

    assert "toolConfig" not in body
    assert [warning for warning in warnings if warning.startswith("tool_choice was left out: Gemini has none such as ")] == warnings != []
    assert "toolConfig" not in unchecked(tools=[function()], tool_choice=5)[0]
