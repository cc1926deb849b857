"""The messages of a chat on their way to Bedrock: turns, calls and results, media, cache marks."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from n4n.core.chat_request import read_chat
from n4n.core.errors import MalformedRequest, Untellable
from tests.support.bedrock import BEDROCK, CALL, GPT, LLAMA, NOVA, POINT, PROFILE, SPEC, TOOL, body, endpoint, request, turns, warned

# ── messages


def test_instructions_are_hoisted_and_turns_alternate() -> None:
    told = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": " "}, {"type": "input_text", "text": "d"}]},
        {"role": "developer", "content": [{"type": "text", "text": "e"}]},
        {"role": "assistant", "content": "f", "refusal": None},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "g"}], "refusal": "h"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "i"},
        {"role": "user", "content": ""},
    ]
    got = body(request(told))

    assert got["system"] == [{"text": "a"}, {"text": "e"}]
    assert got["messages"] == [
        {"role": "user", "content": [{"text": "b"}, {"text": "c"}, {"text": "d"}]},
        {"role": "assistant", "content": [{"text": "f"}, {"text": "g"}, {"text": "h"}]},
        {"role": "user", "content": [{"text": "i"}]},
    ]
    assert warned(request(told)) == ()


@pytest.mark.parametrize(
    ("messages", "expected", "system"),
    [
        ([{"role": "system", "content": "a"}], [("user", "a")], None),
        ([{"role": "user", "content": " "}], [("user", "…")], None),
        ([{"role": "assistant", "content": "a "}], [("user", "…"), ("assistant", "a")], None),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b \n"}], [("user", "a"), ("assistant", "b")], None),
    ],
)
def test_there_is_always_something_of_the_user_to_answer(messages: Any, expected: Any, system: Any) -> None:
    got = body(request(messages))

    assert [(turn["role"], turn["content"][0]["text"]) for turn in got["messages"]] == expected
    assert got.get("system") == system


def test_calls_and_their_results_are_paired_and_results_stand_first() -> None:
    told = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [CALL, {**CALL, "id": "c 2/" + "x" * 70}, {"id": "c3", "type": "custom"}]},
        {"role": "tool", "tool_call_id": "c 2/" + "x" * 70, "content": ""},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}], "is_error": True},
    ]
    got = body(request(told, tools=[TOOL]))

    call, long = got["messages"][1]["content"][1:]
    assert call == {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}}
    assert len(long["toolUse"]["toolUseId"]) <= 64 and long["toolUse"]["toolUseId"].startswith("call_")
    assert got["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": long["toolUse"]["toolUseId"], "content": [{"text": "(no output)"}]}},
        {"toolResult": {"toolUseId": "c1", "content": [{"text": "4"}], "status": "error"}},
        {"text": "and?"},
    ]
    assert warned(request(told, tools=[TOOL])) == ("messages[1].tool_calls[2] was left out: endpoint e1 takes no call of type custom",)


def test_calls_by_the_old_name_are_paired_by_their_order() -> None:
    told = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        {"role": "function", "name": "f", "content": "4"},
        {"role": "function", "name": "f", "content": "5"},
    ]
    got = turns(told, functions=[{"name": "f"}])

    assert got[1]["content"] == [{"toolUse": {"toolUseId": "call_1", "name": "f", "input": {}}}]
    assert [block["toolResult"]["toolUseId"] for block in got[2]["content"]] == ["call_1", "call"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}), (None, {}), ('{"a": "漢"}', {"a": "漢"}), ("[1]", {"arguments": [1]}), ('{"a', {"arguments": '{"a'}),
        ("null", {"arguments": None}),
    ],
)  # fmt: skip
def test_arguments_go_as_an_object(arguments: str | None, expected: object) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    got = turns([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}], tools=[TOOL])

    assert got[1]["content"][0]["toolUse"]["input"] == expected


HISTORY = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "tool_calls": [CALL]},
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "text", "text": "4"}, {"type": "image_url", "image_url": "data:image/png;base64,QQ=="}],
    },
    {"role": "tool", "tool_call_id": "c9", "content": ""},
]


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL], "tool_choice": "none"}, {"tools": []}])
def test_without_tools_the_history_tells_its_calls_as_text(fields: dict[str, Any]) -> None:
    got = body(request(HISTORY, **fields))

    assert "toolConfig" not in got
    assert got["messages"][1]["content"] == [{"text": "b"}, {"text": '[called f: {"a": 1}]'}]
    assert got["messages"][2]["content"] == [
        {"text": "[result of f:]"},
        {"text": "4"},
        {"text": "[result of c9:]"},
        {"text": "(no output)"},
        {"image": {"format": "png", "source": {"bytes": "QQ=="}}},
    ]
    assert warned(request(HISTORY, **fields)) == (
        "calls of tools and their results were told as text: endpoint e1 takes them only beside tools",
    )


def test_images_in_results_stand_beside_them_where_the_model_takes_none_inside() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "QQ=="}}}

    inside = turns(HISTORY, tools=[TOOL])[2]["content"]
    assert inside[0]["toolResult"]["content"] == [{"text": "4"}, image] and len(inside) == 2
    beside = turns(HISTORY, GPT, tools=[TOOL])[2]["content"]
    assert beside[0]["toolResult"]["content"] == [{"text": "4"}] and beside[2] == image


def test_images_documents_and_sounds_go_as_bytes() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/JPG;base64,QQ==", "detail": "auto"}},
        {"type": "image_url", "image_url": "data:image/webp,%41"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ==", "filename": "Q3 – Zahlen (final).pdf"}},
        {"type": "file", "file": {"file_data": "QQ==", "filename": "Q3 Zahlen (final).csv"}},
        {"type": "file", "file": {"file_data": "QQ=="}},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
    ]
    got = turns([{"role": "user", "content": parts}])

    assert got[0]["content"] == [
        {"text": "…"},  # a document has to stand beside a text
        {"image": {"format": "jpeg", "source": {"bytes": "QQ=="}}},
        {"image": {"format": "webp", "source": {"bytes": "QQ=="}}},
        {"document": {"format": "pdf", "name": "Q3 Zahlen (final)", "source": {"bytes": "QQ=="}}},
        {"document": {"format": "csv", "name": "Q3 Zahlen (final) 2", "source": {"bytes": "QQ=="}}},
        {"document": {"format": "pdf", "name": "document", "source": {"bytes": "QQ=="}}},
        {"audio": {"format": "wav", "source": {"bytes": "QQ=="}}},
    ]
    beside = turns([{"role": "user", "content": [{"type": "text", "text": "a"}, parts[2]]}])
    assert [next(iter(block)) for block in beside[0]["content"]] == ["text", "document"]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "image_url", "image_url": "https://x.test/a.png"}, "takes no image by its address; send it as a data URI"),
        ({"type": "image_url", "image_url": "s3://bucket/a.png"}, "takes no image by its address; send it as a data URI"),
        ({"type": "image_url", "image_url": "data:image/tiff;base64,QQ=="}, "takes no image of type image/tiff"),
        ({"type": "image_url", "image_url": "QQ=="}, "takes no image of type that is not told"),
        ({"type": "image_url"}, "takes no image_url there"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "knows no file by an id that another provider gave out; send file_data"),
        ({"type": "file", "file": {"file_data": "https://x.test/a.pdf"}}, "takes no document by its address; send it as a data URI"),
        ({"type": "file", "file": {"file_data": "QQ==", "filename": "a.exe"}}, "takes no document of type exe"),
        ({"type": "file", "file": {"file_data": "data:video/mp4;base64,QQ=="}}, "takes no document of type video/mp4"),
        ({"type": "file"}, "takes no file there"),
        ({"type": "input_audio", "input_audio": {"data": "QQ==", "format": "midi"}}, "takes no audio of type midi"),
        ({"type": "input_audio"}, "takes no input_audio there"),
        ({"type": "video_url"}, "takes no video_url there"),
    ],
)
def test_a_question_that_cannot_be_told_is_not_asked_without_a_part_of_it(part: dict[str, Any], why: str) -> None:
    with pytest.raises(Untellable) as caught:
        body(request([{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]))

    assert (caught.value.message, caught.value.param) == (f"messages[0].content[1]: endpoint e1 {why}", "messages")


def test_instructions_with_a_picture_in_them_are_not_followed_without_it() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
    with pytest.raises(Untellable, match="takes no image_url among instructions"):
        body(request([{"role": "system", "content": [part]}, {"role": "user", "content": "a"}]))


def test_a_guarded_text_that_is_blank_is_nothing() -> None:
    asked = request([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "guarded_text", "text": " "}]}])

    assert body(asked)["messages"][0]["content"] == [{"text": "a"}] and warned(asked) == ()


def test_an_image_may_be_written_with_escapes() -> None:
    raw = (
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image\\/png;base64,Q\\/=="}}]}]}'
    )
    sent_body = json.loads(BEDROCK.encode(read_chat(raw), endpoint(), None).body)

    assert sent_body["messages"][0]["content"] == [{"image": {"format": "png", "source": {"bytes": "Q/=="}}}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": 7},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "file", "file": {"file_data": 7}},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
    ],
)
def test_media_that_are_no_text_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(MalformedRequest, match=r"messages\[0\]\.content\[0\]"):
        body(request([{"role": "user", "content": [part]}]))


def test_other_things_that_cannot_be_told_are_named_once() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "high"}}
    asked = request([{"role": "user", "name": "ann", "content": [part]}, {"role": "user", "name": "bob"}])

    assert warned(asked) == (
        "the name of a message was left out: endpoint e1 has no word for it",
        "messages[0].content[0].image_url.detail was left out: endpoint e1 has no word for it",
    )


def test_guarded_text_goes_to_the_guardrail() -> None:
    guarded = [{"type": "guarded_text", "text": "a"}, {"type": "guarded_text", "text": "b", "qualifiers": ["query"]}]
    config = {"guardrailIdentifier": "g", "guardrailVersion": "1", "streamProcessingMode": "async"}
    asked = request([{"role": "user", "content": guarded}], guardrailConfig=config)

    got = body(asked)
    assert got["messages"][0]["content"] == [
        {"guardContent": {"text": {"text": "a"}}},
        {"guardContent": {"text": {"text": "b", "qualifiers": ["query"]}}},
    ]
    assert got["guardrailConfig"] == {"guardrailIdentifier": "g", "guardrailVersion": "1"}
    assert body(request(guardrailConfig=config, stream=True))["guardrailConfig"] == config
    assert warned(asked) == ()


@pytest.mark.parametrize(
    ("messages", "fields", "message"),
    [
        ([{"role": "critic"}], {}, "messages[0].role must be system, developer, user, assistant or tool"),
        ([{"content": "a"}], {}, "messages cannot be read: Object missing required field `role` - at `$[0]`"),
        ([{"role": "user", "content": 7}], {}, None),
        (None, {"tools": 7}, None),
        (None, {"tool_choice": 7}, None),
        (None, {"stop": 7}, None),
        (None, {"temperature": "warm"}, None),
        (None, {"response_format": {"type": "json_schema", "json_schema": 7}}, None),
        (None, {"reasoning_effort": 7}, None),
        (None, {"metadata": 7}, None),
    ],
)
def test_what_no_provider_could_read_is_refused(messages: Any, fields: dict[str, Any], message: str | None) -> None:
    with pytest.raises(MalformedRequest) as caught:
        body(request(messages, **fields))

    assert message is None or caught.value.message == message


@pytest.mark.parametrize("field", ['"tools":[{"function":{"name":"f","parameters":{"x":%s}}}]', '"additionalModelRequestFields":{"a":%s}'])
def test_no_depth_of_a_body_makes_it_raise_anything_else(field: str) -> None:
    for depth in range(700, 1000):  # from where it can be read to where it cannot
        with suppress(MalformedRequest):
            raw = '{"model":"m","messages":[{"role":"user"}],' + field % ("[" * depth + "]" * depth) + "}"
            BEDROCK.encode(read_chat(raw.encode()), endpoint(), None)


# ── cache marks

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def test_cache_marks_become_points_behind_what_they_mark() -> None:
    told = [
        {"role": "system", "content": [{"type": "text", "text": "a", **HOUR}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}], **MARK},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "d", **MARK}]},
    ]
    got = body(request(told, tools=[{**TOOL, **MARK}]))

    assert got["toolConfig"]["tools"] == [SPEC, POINT]
    assert got["system"] == [{"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]
    assert got["messages"][0]["content"] == [{"text": "b"}, POINT]
    assert got["messages"][2]["content"] == [{"toolResult": {"toolUseId": "c1", "content": [{"text": "d"}]}}, POINT]
    assert warned(request(told, tools=[{**TOOL, **MARK}])) == ()


def test_of_more_than_four_marks_the_first_and_the_last_stay() -> None:
    told = [{"role": "user", "content": [{"type": "text", "text": str(number), **MARK} for number in range(6)]}]
    told[0]["cache_control"] = MARK["cache_control"]
    got = turns(told)

    assert got[0]["content"] == [
        {"text": "0"}, POINT, {"text": "1"}, {"text": "2"}, {"text": "3"}, POINT, {"text": "4"}, POINT, {"text": "5"}, POINT,
    ]  # fmt: skip
    assert warned(request(told)) == ("2 cache_control marks were left out: endpoint e1 takes 4",)


@pytest.mark.parametrize(
    ("fields", "point"),
    [
        ({"cache_control": {"type": "ephemeral"}}, POINT),
        ({"prompt_cache_key": "k"}, POINT),
        ({"prompt_cache_key": "k", "prompt_cache_retention": "24h"}, {"cachePoint": {"type": "default", "ttl": "1h"}}),
    ],
)
def test_a_mark_on_the_whole_stands_behind_the_clients_last_words(fields: dict[str, Any], point: object) -> None:
    told = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    assert turns(told, **fields)[0]["content"] == [{"text": "a"}, point]
    results = [*told[:1], {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "d"}]
    assert turns(results, tools=[TOOL], **fields)[2]["content"][1:] == [point]
    assert warned(request(told, **fields), LLAMA) == (
        ("cache_control was left out: endpoint e1 takes no cache marks",) if "cache_control" in fields else ()
    )


def test_a_mark_that_is_there_is_enough() -> None:
    told = [{"role": "user", "content": [{"type": "text", "text": "a", **MARK}]}]

    assert turns(told, prompt_cache_key="k")[0]["content"] == [{"text": "a"}, POINT]
    assert turns(told, **MARK)[0]["content"] == [{"text": "a"}, POINT]


@pytest.mark.parametrize(
    ("model", "warning", "points"),
    [
        (LLAMA, "cache_control was left out: endpoint e1 takes no cache marks", 0),
        ("anthropic.claude-3-haiku-20240307-v1:0", "cache_control was left out: endpoint e1 takes no cache marks", 0),
        (NOVA, "ttl 1h of cache_control was left out: endpoint e1 caches for minutes only", 1),
        (PROFILE, None, 1),
    ],
)
def test_marks_go_only_where_the_model_takes_them(model: str, warning: str | None, points: int) -> None:
    asked = request([{"role": "user", "content": [{"type": "text", "text": "a", **HOUR}]}])

    assert len(body(asked, model)["messages"][0]["content"]) == 1 + points
    assert warned(asked, model) == (() if warning is None else (warning,))
    tools = request(tools=[{**TOOL, **MARK}])
    assert len(body(tools, NOVA)["toolConfig"]["tools"]) == 1
    assert warned(tools, NOVA) == ("cache_control of tools was left out: endpoint e1 caches no tools",)
