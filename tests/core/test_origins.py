"""Sealed reasoning goes back where it was made, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from n4n.core.candidates import World
from n4n.core.catalog import Account, Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Chunk, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.origins import origin_of, unread
from n4n.core.dialects.table import DIALECTS
from n4n.core.directives import NONE
from n4n.core.errors import Failure, Untellable
from n4n.core.origin import digits, origins_in
from n4n.core.plan import plan
from n4n.core.skins.anthropic import Messages
from n4n.core.skins.messages import read_messages
from n4n.core.skins.openai_responses import OpenAIResponses
from n4n.core.skins.responses import read_responses
from tests.support.endpoints import NOW, endpoint, snapshot, world

HERE, THERE = digits("here"), digits("there")
LEFT = "reasoning of an earlier answer was left out: endpoint e did not make it and cannot read it"
REASONED = {
    "id": "resp_1", "object": "response", "status": "completed", "model": "theirs", "created_at": 1,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": 'he said "encrypted_content": "x"', "annotations": []}]},
    ],
    "usage": {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18},
}  # fmt: skip


def at(dialect: str, model: str = "theirs", **provider: Any) -> Endpoint:
    provided = Provider("p", dialect, "https://a.example/v1", **provider)
    return Endpoint(EndpointId("e"), ModelId("m"), provided, (Account("here", "p"),), upstream_model=model)


def asked(**fields: object) -> ChatRequest:
    return read_responses(json.dumps({"model": "m", "input": "Think.", **fields}).encode())


def answered(request: ChatRequest, dialect: str = "openai_responses", body: object = REASONED) -> Chunk:
    came = DIALECTS[dialect].decode(json.dumps(body).encode(), "application/json", request)
    assert isinstance(came, Chunk)
    return came


def sent(request: ChatRequest, dialect: str = "openai_responses", model: str = "theirs") -> tuple[Any, UpstreamRequest]:
    call = DIALECTS[dialect].encode(request, at(dialect, model), "s")
    return json.loads(call.body), call


def chat(*details: object, **fields: object) -> ChatRequest:
    said = {"role": "assistant", "content": "Yes.", "reasoning_details": list(details)}
    turns = [{"role": "user", "content": "Hi"}, said, {"role": "user", "content": "Why?"}]
    return read_chat(json.dumps({"model": "m", "messages": turns, **fields}).encode())


# ── what an origin is


def test_responses_seal_for_an_account_and_bedrock_for_a_model_wherever_it_runs() -> None:
    responses, bedrock = DIALECTS["openai_responses"].speech("x"), DIALECTS["bedrock"].speech("us.anthropic.claude-sonnet-4-6")
    here, there = Account("here", "p"), Account("there", "p")

    assert (origin_of(responses, at("openai_responses"), here), origin_of(responses, at("openai_responses"), there)) == (HERE, THERE)
    names = ("us.anthropic.claude-sonnet-4-6", "anthropic.claude-sonnet-4-6", "eu.anthropic.claude-sonnet-4-6", "amazon.nova-2-lite-v1:0")
    assert len({origin_of(bedrock, at("bedrock", name), here) for name in names}) == 2
    assert origin_of(DIALECTS["anthropic"].speech("x"), at("anthropic"), here) == ""


# ── there and back


@pytest.mark.parametrize("stream", [False, True])
def test_a_clients_own_words_of_responses_bear_the_mark_and_lose_it_at_home(stream: bool) -> None:
    request = replace(asked(stream=stream), origin=HERE)
    if stream:
        decoder = DIALECTS["openai_responses"].decoder(request)
        events = decoder.feed(json.dumps(REASONED).encode()) + decoder.end()
        payload = next(event.payload for event in events if isinstance(event, Chunk) and event.finishes)
        output = json.loads(payload)["response"]["output"]
    else:
        output = json.loads(answered(request).payload)["output"]

    assert output[0]["encrypted_content"] == f"n4n.o1.{HERE}.c2VhbGVk" and output[1] == REASONED["output"][1]  # type: ignore[index]
    again = replace(asked(input=[*output, {"role": "user", "content": "On."}]), origin=HERE)
    body, call = sent(again)
    assert body["input"][0]["encrypted_content"] == "c2VhbGVk" and call.warnings == () and again.made_by == {HERE}


def test_without_an_origin_nothing_is_marked_and_marks_are_taken_off() -> None:
    assert json.loads(answered(asked()).payload) == REASONED
    assert sent(replace(asked(), origin=HERE))[0]["input"] == "Think."
    body, _ = sent(asked(input=[{"type": "reasoning", "summary": [], "encrypted_content": f"n4n.o1.{THERE}.c2VhbGVk"}]))
    assert body["input"][0]["encrypted_content"] == "c2VhbGVk"


def test_elsewhere_it_is_left_out_with_a_warning_and_what_bears_no_mark_goes_as_it_came() -> None:
    own = {"type": "reasoning", "summary": [], "encrypted_content": "b3du"}
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": f"n4n.o1.{THERE}.c2VhbGVk"}
    body, call = sent(replace(asked(input=[own, foreign, {"role": "user", "content": "On."}]), origin=HERE))

    assert body["input"] == [own, {"role": "user", "content": "On."}] and call.warnings == (LEFT,)


def test_a_compaction_that_another_account_made_keeps_the_endpoint_out() -> None:
    compacted = {"type": "compaction", "encrypted_content": f"n4n.o1.{THERE}.c2VhbGVk"}
    with pytest.raises(Untellable, match="endpoint e cannot open a compaction that another account made"):
        sent(replace(asked(input=[compacted]), origin=HERE))


@pytest.mark.parametrize("text", [f"n4n.o1.{THERE}.", f'"n4n.o1.{THERE}.x'])
def test_a_text_that_looks_like_a_mark_stays_what_it_is(text: str) -> None:
    for said in (text, [{"role": "user", "content": text}, "odd"]):
        body, call = sent(replace(asked(input=said), origin=HERE))
        assert body["input"] == said and call.warnings == ()


def test_a_chat_carries_it_in_reasoning_details() -> None:
    request = replace(chat(), origin=HERE)
    message = json.loads(answered(request).payload)["choices"][0]["message"]
    (detail,) = message["reasoning_details"]
    assert detail["data"] == f"n4n.o1.{HERE}.c2VhbGVk" and detail["format"] == "openai-responses-v1"

    again = chat(detail, "odd", {"type": "reasoning.text", "text": "t"})
    assert again.made_by == {HERE} and again.sealed
    body, call = sent(replace(again, origin=HERE))
    assert body["input"][1]["encrypted_content"] == "c2VhbGVk" and call.warnings == ()
    body, call = sent(replace(again, origin=THERE))
    assert "encrypted_content" not in str(body) and call.warnings == (LEFT,)


def test_messages_and_responses_of_other_origins_show_the_mark_through_their_wrapping() -> None:
    request = replace(read_messages(b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'), origin=HERE)
    message = json.loads(Messages().whole(answered(request), request, None, b"{}"))
    raw = json.dumps(
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": message["content"]}],
        }
    )
    again = read_messages(raw.encode())
    assert again.made_by == {HERE}
    body, _ = sent(replace(again, origin=HERE))
    assert body["input"][1]["encrypted_content"] == "c2VhbGVk"

    claude = {"type": "reasoning.encrypted", "data": "x", "format": "bedrock-converse-v1", "index": 0}
    told = {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Yes.", "reasoning_details": [claude]}, "finish_reason": "stop"}
        ]
    }
    response = json.loads(OpenAIResponses().whole(Chunk(json.dumps(told).encode()), asked(), None, b"{}"))
    assert unread(asked(input=response["output"]), at("openai_responses"), DIALECTS["openai_responses"].speech("x")) == LEFT


def test_bedrock_marks_what_it_encrypts_by_the_model() -> None:
    blocks = [{"reasoningContent": {"redactedContent": "c2VhbGVk"}}, {"text": "Yes."}]
    usage = {"inputTokens": 1, "outputTokens": 1}
    said = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn", "usage": usage}
    origin = digits("anthropic.claude-sonnet-4-6")
    (detail,) = json.loads(answered(replace(chat(), origin=origin), "bedrock", said).payload)["choices"][0]["message"]["reasoning_details"]
    assert detail["data"] == f"n4n.o1.{origin}.c2VhbGVk"

    body, call = sent(replace(chat(detail), origin=origin), "bedrock", "us.anthropic.claude-sonnet-4-6")
    assert body["messages"][1]["content"][0] == {"reasoningContent": {"redactedContent": "c2VhbGVk"}} and call.warnings == ()
    body, call = sent(replace(chat(detail), origin=digits("other")), "bedrock")
    assert "reasoningContent" not in str(body) and call.warnings == (LEFT,)


def test_failures_and_refusals_pass_as_the_dialect_tells_them() -> None:
    dialect = DIALECTS["openai_responses"]
    assert isinstance(dialect.decode(b"", "", replace(asked(), origin=HERE)), Failure)
    assert dialect.failure(429, {}, b"{}", 0.0).status == 429
    assert dialect.decoder(asked()).end()


# ── who reads what


@pytest.mark.parametrize(
    ("form", "dialect", "model", "reads"),
    [
        ("anthropic-claude-v1", "anthropic", "x", True),
        ("anthropic-claude-v1", "bedrock", "us.anthropic.claude-sonnet-4-6", True),
        ("anthropic-claude-v1", "bedrock", "amazon.nova-2-lite-v1:0", False),
        ("anthropic-claude-v1", "vertex", "claude-sonnet-4-6", True),
        ("anthropic-claude-v1", "gemini", "x", False),
        ("google-gemini-v1", "gemini", "x", True),
        ("google-gemini-v1", "openai", "x", False),
        ("openai-responses-v1", "openai_responses", "x", True),
        ("openai-responses-v1", "azure", "x", False),
        ("somebody-elses-v9", "azure", "x", True),  # nobody knows whose, so nobody misses it
    ],
)
def test_a_move_to_who_cannot_read_it_is_warned_of(form: str, dialect: str, model: str, reads: bool) -> None:
    request = chat({"type": "reasoning.encrypted", "data": "x", "format": form})

    assert unread(request, at(dialect, model), DIALECTS[dialect].speech(model)) == (None if reads else LEFT)


def test_who_takes_marks_takes_all_of_them() -> None:
    request = chat({"type": "reasoning.encrypted", "data": "x", "format": "google-gemini-v1"})
    assert unread(request, at("openai", quirks=frozenset(("marks",))), DIALECTS["openai"].speech("x")) is None


def test_a_clients_own_words_lose_only_what_was_wrapped_for_it() -> None:
    own = read_messages(json.dumps({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
    ]}).encode())  # fmt: skip
    assert own.sealed and unread(own, at("anthropic"), DIALECTS["anthropic"].speech("x")) is None


# ── who goes first


def test_the_account_that_made_it_is_preferred_while_it_is_well() -> None:
    pool = snapshot([
        endpoint("e1", dialect="openai_responses", accounts=("a", "b", "c")),
        endpoint("e2", dialect="openai_responses", accounts=("d",), weight=100.0),
    ])  # fmt: skip
    within = world(pool)
    known = {name: getattr(within, name) for name in type(within).__struct_fields__}
    within = World(**{**known, "speakers": DIALECTS, "dialects": frozenset(DIALECTS)})

    for name, home in (("b", "e1"), ("d", "e2")):
        request = asked(input=[{"type": "reasoning", "summary": [], "encrypted_content": f"n4n.o1.{digits(name)}.x"}])
        made = plan(request, NONE, within, now=NOW, draw=lambda: 0.5)
        assert (made.candidates[0].endpoint.id, made.candidates[0].account.name) == (home, name)
    lost = asked(input=[{"type": "reasoning", "summary": [], "encrypted_content": f"n4n.o1.{digits('nobody')}.x"}])
    assert plan(lost, NONE, within, now=NOW, draw=lambda: 0.5).candidates[0].endpoint.id == "e2"


def test_origins_are_found_in_bodies() -> None:
    assert origins_in(b'{"a":"n4n.o1.0123abcd.x","b":"n4n.v1.n4n.o1.ffffffff.eA=="}') == {"0123abcd", "ffffffff"}
    assert origins_in(b"n4n.o1.nothing") == origins_in(b"") == frozenset()
