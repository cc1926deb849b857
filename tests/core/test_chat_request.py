"""Reading a chat request: typed where the gateway routes, bytes everywhere else, and a clear word for every fault."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.chat_request import FEATURE_FIELDS, missing_features, read_chat
from n4n.core.document import FEATURES
from n4n.core.errors import MalformedRequest

MESSAGES = [{"role": "user", "content": "hi"}]


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()


def features(**fields: object) -> set[str]:
    return set(read_chat(body(**fields)).features)


def refused(raw: bytes) -> MalformedRequest:
    with pytest.raises(MalformedRequest) as caught:
        read_chat(raw)
    return caught.value


def test_a_small_request_reads_with_its_defaults() -> None:
    raw = body()
    request = read_chat(raw)

    assert (request.model, request.stream, request.include_usage, request.max_output_tokens, request.n) == ("m", False, False, None, 1)
    assert (request.features, request.models, request.unsupported_params, request.provider_object) == (frozenset(), (), None, None)
    assert request.body_bytes == len(raw)


def test_everything_the_gateway_routes_on_is_read() -> None:
    request = read_chat(
        body(
            stream=True,
            stream_options={"include_usage": True, "x": 1},
            max_tokens=7,
            n=2,
            models=["a", "b"],
            provider={"order": ["x"]},
            unsupported_params="reject",
        )
    )

    assert (request.stream, request.include_usage, request.max_output_tokens, request.n) == (True, True, 7, 2)
    assert (request.models, request.provider_object, request.unsupported_params) == (("a", "b"), {"order": ["x"]}, "reject")
    assert list(request.fields) == ["model", "messages", "stream", "stream_options", "max_tokens", "n"]


def test_null_is_the_same_as_absent() -> None:
    request = read_chat(
        body(stream=None, stream_options=None, max_tokens=None, n=None, models=None, provider=None, response_format=None, seed=None)
    )

    assert (request.stream, request.max_output_tokens, request.n, request.models, request.features) == (False, None, 1, (), frozenset())


def test_the_newer_name_of_the_output_limit_wins() -> None:
    assert read_chat(body(max_tokens=7, max_completion_tokens=9)).max_output_tokens == 9


def test_unknown_fields_their_order_and_every_digit_survive() -> None:
    raw = b'{"z": {"b" : 1,"a":2.50},"model":"m","big":123456789012345678901234567890 ,"messages":[{}],"\\u00e9":"\\u00e9"}'
    request = read_chat(raw)

    assert [(name, bytes(value)) for name, value in request.fields.items()] == [
        ("z", b'{"b" : 1,"a":2.50}'),
        ("model", b'"m"'),
        ("big", b"123456789012345678901234567890"),
        ("messages", b"[{}]"),
        ("é", b'"\\u00e9"'),
    ]


def test_other_skins_may_name_other_fields_as_the_gateways_own() -> None:
    assert list(read_chat(body(models=["a"], mine=1), own=frozenset(("mine",))).fields) == ["model", "messages", "models"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", None), ("model", 7), ("model", ""), ("model", "x" * 257), ("model", "a\nb"), ("messages", None), ("messages", []),
        ("messages", "hi"), ("messages", ["hi"]), ("stream", "yes"), ("stream", 1), ("stream_options", True),
        ("stream_options", {"include_usage": "yes"}), ("max_tokens", 0), ("max_tokens", 1.5), ("max_tokens", "7"),
        ("max_completion_tokens", -1), ("n", 0), ("n", 129), ("models", []), ("models", "a"), ("models", [""]), ("models", [1]),
        ("provider", "x"), ("unsupported_params", "ignore"), ("unsupported_params", 1), ("response_format", "json"),
        ("api_base", "x"), ("base_url", "x"), ("api_key", "x"), ("api_version", "x"), ("extra_headers", {}), ("organization", "x"),
        ("custom_llm_provider", "x"), ("extra_body", {}),
    ],
)  # fmt: skip
def test_a_fault_names_the_field(field: str, value: object) -> None:
    error = refused(body(**{field: value}))

    assert error.param == field
    assert error.message.startswith(field)
    assert error.status == 400


@pytest.mark.parametrize("field", ["model", "messages"])
def test_what_must_be_there_and_is_not_is_named(field: str) -> None:
    whole = {"model": "m", "messages": MESSAGES}
    del whole[field]

    assert refused(json.dumps(whole).encode()).message.startswith(f"{field} is missing")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"model":"m","messages":[{}],"a":NaN}', "not valid JSON: invalid character (byte 33)"),
        (b'{"model":"\xff"}', "not UTF-8 at byte 10"),
        (b'{"model":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"model":"m","messages":[{"content":"\\ud83d"}]}', "surrogate"),
        (b'{"model":"\\ud800"}', "surrogate"),
        (b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b"[" * 100_000, "must be a JSON object"),
    ],
)
def test_what_is_no_json_object_is_refused_in_words(raw: bytes, says: str) -> None:
    assert says in refused(raw).message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": [{}]}, {"tools"}),
        ({"functions": [{}], "tools": []}, {"tools"}),
        ({"tool_choice": "auto"}, {"tool_choice"}),
        ({"tool_choice": "required"}, {"tool_choice", "forced_tool_choice"}),
        ({"tool_choice": {"type": "function"}}, {"tool_choice", "forced_tool_choice"}),
        ({"parallel_tool_calls": False}, {"parallel_tools"}),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, {"json_schema"}),
        ({"response_format": {"type": "json_object"}}, {"json_object"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"seed": 0, "logit_bias": {"5": 1}}, {"seed", "logit_bias"}),
        ({"logit_bias": {}, "logprobs": False}, set()),
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs"}),
        ({"n": 1}, set()),
        ({"n": 2}, {"n"}),
        ({"reasoning_effort": "low"}, {"reasoning"}),
        ({"temperature": 0, "stop": "x", "presence_penalty": 1}, {"sampling_params", "stop", "penalties"}),
        ({"modalities": ["text", "audio"]}, {"audio_output"}),
        ({"modalities": ["text"]}, set()),
        ({"web_search_options": {"x": 1}, "prompt_cache_key": "k"}, {"web_search", "prompt_caching"}),
        ({"messages": [{"content": [{"type": "image_url"}, {"type": "text"}]}, {"content": "x"}]}, {"vision"}),
        ({"messages": [{"content": [{"type": "input_audio"}, {"type": "file"}]}]}, {"audio_input", "pdf_input"}),
        ({"messages": [{"content": 'about "image_url" and "file"'}]}, set()),
        ({"messages": [{"content": "x"}], "metadata": {"k": "file"}}, set()),
        ({"messages": [{"content": {"type": "file"}}]}, set()),
    ],
)  # fmt: skip
def test_the_optional_features_in_use(fields: dict[str, object], expected: set[str]) -> None:
    assert features(**fields) == expected


def test_every_feature_has_a_name_of_the_catalogs() -> None:
    assert set(FEATURE_FIELDS) <= set(FEATURES)


def test_what_an_endpoint_lacks_is_judged_by_what_it_says_it_has() -> None:
    used = frozenset(("tools", "tool_choice", "seed", "stop", "json_object"))

    assert missing_features(used, None) == frozenset()
    assert missing_features(used, frozenset()) == {"tools", "tool_choice", "seed", "json_object"}
    assert missing_features(used, frozenset(("tools", "json_schema"))) == {"seed"}


def test_what_nearly_all_have_is_denied_only_by_a_list_that_names_some_of_it() -> None:
    used = frozenset(("sampling_params", "penalties", "n", "stream_options", "prompt_caching", "assistant_prefill"))

    assert missing_features(used, frozenset(("tools",))) == frozenset()
    assert missing_features(used, frozenset(("tools", "stop"))) == {"sampling_params", "penalties", "n"}
    assert missing_features(used, frozenset(("n", "sampling_params", "penalties"))) == frozenset()


@given(st.binary(max_size=60))
def test_no_bytes_do_worse_than_a_refusal(raw: bytes) -> None:
    for tried in (raw, b'{"model":"m","messages":[{}],' + raw + b"}", b'{"model":"m","messages":[{}],"stream":' + raw + b"}"):
        with contextlib.suppress(MalformedRequest):
            read_chat(tried)


def test_what_is_kept_of_the_names_of_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: dict[tuple[str, ...], object] = {}
    monkeypatch.setattr("n4n.core.chat_request._shapes", shapes)
    monkeypatch.setattr("n4n.core.chat_request._MOST_SHAPES", 3)

    for number in range(10):
        read_chat(b'{"model":"m","messages":[{}],"x%d":1}' % number)
        assert len(shapes) <= 3
    kept = dict(shapes)
    read_chat(b'{"model":"m","messages":[{}],"%b":1}' % (b"x" * 100_000))
    assert shapes.keys() <= kept.keys(), "a name as long as that is not kept"


def test_parts_in_messages_that_nobody_can_read_are_no_features() -> None:
    assert read_chat(b'{"model":"m","messages":[{"content":[{"type":7},"image_url"]}]}').features == frozenset()
