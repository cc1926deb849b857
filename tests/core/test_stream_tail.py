"""The tail: usage as asked, the block on the last chunk, and never a chunk too many."""

from __future__ import annotations

import json

import pytest

from n4n.core.chat import Chunk, Usage
from n4n.core.stream_tail import StreamTail, with_note, without_usage

HEAD = '"id":"c1","object":"chat.completion.chunk","created":7,"model":"m"'
TOLD = Usage(20, 4)
USAGE = '"usage":{"prompt_tokens":20,"completion_tokens":4,"cost":6.2e-06}'
NOTE = b'{"cost_usd":1.50}'


def raw(choices: str, more: str = "", head: str = HEAD) -> bytes:
    return f'{{{head},"choices":[{choices}]{"," if more else ""}{more}}}'.encode()


TEXT = Chunk(raw('{"index":0,"delta":{"content":"a"},"finish_reason":null}'), content=True)
STOP = Chunk(raw('{"index":0,"delta":{},"finish_reason":"stop"}'), finishes=True)
TOLD_APART = Chunk(raw("", USAGE), choices=False, usage=TOLD)


def noted(payload: bytes) -> bytes:
    return payload[:-1] + b',"n4n":' + NOTE + b"}"


def test_without_a_wish_for_usage_the_block_rides_on_the_finish_chunk() -> None:
    tail = StreamTail(include_usage=False)

    assert tail.receive(TEXT) == (TEXT.payload,)
    assert not tail.waiting
    assert tail.receive(STOP) == ()
    assert (tail.waiting, tail.complete) == (True, False)
    assert tail.receive(TOLD_APART) == ()
    assert tail.complete
    assert tail.finish(TOLD, NOTE) == (noted(STOP.payload),)
    assert tail.receive(TEXT) == ()
    assert tail.over


def test_with_a_wish_the_providers_own_usage_chunk_is_the_last_one() -> None:
    tail = StreamTail(include_usage=True)
    for chunk in (TEXT, STOP, TOLD_APART):
        tail.receive(chunk)

    assert tail.finish(TOLD, NOTE) == (STOP.payload, noted(TOLD_APART.payload))


def test_usage_on_the_finish_chunk_moves_to_a_chunk_of_its_own() -> None:
    tail = StreamTail(include_usage=True)
    tail.receive(Chunk(raw('{"index":0,"delta":{},"finish_reason":"stop"}', USAGE), finishes=True, usage=TOLD))

    assert tail.complete
    assert tail.finish(TOLD, NOTE) == (STOP.payload, noted(TOLD_APART.payload))


def test_usage_in_a_providers_own_field_is_found_there() -> None:
    tail = StreamTail(include_usage=True)
    chunk = Chunk(raw('{"index":0,"delta":{},"finish_reason":"stop"}', f'"usage":null,"x_groq":{{{USAGE}}}'), finishes=True, usage=TOLD)
    tail.receive(chunk)

    assert tail.finish(TOLD, NOTE) == (STOP.payload, noted(TOLD_APART.payload))


def test_a_usage_chunk_after_the_finish_with_an_empty_choice_carries_nothing_else() -> None:
    for include in (True, False):
        tail = StreamTail(include)
        tail.receive(STOP)
        assert tail.receive(Chunk(raw('{"index":0,"delta":{"content":""}}', USAGE), usage=TOLD)) == ()
        sent = tail.finish(TOLD, NOTE)
        assert sent == ((STOP.payload, noted(TOLD_APART.payload)) if include else (noted(STOP.payload),))


def test_usage_on_every_chunk_reaches_the_client_once() -> None:
    tail = StreamTail(include_usage=True)
    role = Chunk(raw('{"index":0,"delta":{"role":"assistant"}}', USAGE), usage=Usage(20, 0))

    assert tail.receive(role) == (raw('{"index":0,"delta":{"role":"assistant"}}'),)
    assert tail.receive(Chunk(raw('{"index":0,"delta":{"content":"a"}}', USAGE), content=True, usage=TOLD)) == (
        raw('{"index":0,"delta":{"content":"a"}}'),
    )


@pytest.mark.parametrize("told", [None, TOLD_APART])
def test_a_usage_that_is_ours_is_spelled_out_in_full(told: Chunk | None) -> None:
    tail = StreamTail(include_usage=True)
    for chunk in (TEXT, STOP, told):
        if chunk is not None:
            tail.receive(chunk)
    last = json.loads(tail.finish(Usage(5, 6, 1, 2, 3, estimated=True), NOTE)[-1])

    assert last["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert (last["id"], last["created"], last["model"], last["choices"], last["n4n"]) == ("c1", 7, "m", [], {"cost_usd": 1.5})


def test_a_usage_chunk_with_another_id_is_told_under_the_streams_own() -> None:
    tail = StreamTail(include_usage=True)
    tail.receive(STOP)
    tail.receive(Chunk(raw("", USAGE, head='"id":""'), choices=False, usage=TOLD))

    assert tail.finish(TOLD, NOTE)[-1] == noted(TOLD_APART.payload)


def test_a_usage_that_the_payload_does_not_show_is_spelled_out() -> None:
    tail = StreamTail(include_usage=True)
    tail.receive(STOP)
    tail.receive(Chunk(raw("", '"x_groq":{"usage":1}'), choices=False, usage=TOLD))

    assert json.loads(tail.finish(TOLD, NOTE)[-1])["usage"]["total_tokens"] == 24


def test_no_usage_at_all_leaves_the_block_on_the_finish_chunk() -> None:
    tail = StreamTail(include_usage=True)
    tail.receive(STOP)

    assert tail.finish(None, NOTE) == (noted(STOP.payload),)


def test_a_stream_without_a_finish_has_nothing_to_say_but_the_usage() -> None:
    assert StreamTail(include_usage=False).finish(TOLD, NOTE) == ()
    (only,) = StreamTail(include_usage=True).finish(TOLD, NOTE)
    assert json.loads(only)["id"] == ""


def test_of_several_choices_only_the_last_finish_waits() -> None:
    tail = StreamTail(include_usage=False)
    first = Chunk(b'{"first":1}', finishes=True, unfinished=True)

    assert tail.receive(first) == ()
    assert not tail.waiting
    assert tail.receive(TEXT) == (first.payload, TEXT.payload)
    assert tail.receive(first) == ()
    assert tail.receive(STOP) == (first.payload,)
    assert tail.waiting
    assert tail.finish(None, NOTE) == (noted(STOP.payload),)


def test_what_comes_after_the_last_finish_goes_ahead_of_it() -> None:
    tail = StreamTail(include_usage=False)
    tail.receive(STOP)
    annotation = Chunk(b'{"choices":[]}', choices=False)

    assert tail.receive(annotation) == (annotation.payload,)
    assert tail.finish(None, NOTE) == (noted(STOP.payload),)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"a":[1 ,2]}', b'{"a":[1 ,2],"n4n":{"cost_usd":1.50}}'),
        (b'{"a":1} \n', b'{"a":1,"n4n":{"cost_usd":1.50}}'),
        (b'{"n4n":{"x":1},"big":123456789012345678901234567890}', b'{"big":123456789012345678901234567890,"n4n":{"cost_usd":1.50}}'),
        (b'{"a":{"n4n":1}}', b'{"a":{"n4n":1},"n4n":{"cost_usd":1.50}}'),
        (b'{"n4n":1}', b'{"n4n":{"cost_usd":1.50}}'),
        (b'{"a":"\\ud83d","n4n":2}', b'{"a":"\\ud83d","n4n":{"cost_usd":1.50}}'),
    ],
)
def test_the_block_is_spliced_in_and_replaces_one_that_was_there(payload: bytes, expected: bytes) -> None:
    assert with_note(payload, NOTE) == expected


def test_usage_is_taken_out_and_all_else_stays_as_written() -> None:
    assert without_usage(b'{ "a": 1.10, "usage": {"x":1}, "x_groq":{"id":"r","usage":{}}, "b": [ ] }') == b'{"a":1.10,"b":[ ]}'
    assert without_usage(b'{"a":"\\udc00","usage":{}}') == b'{"a":"\\udc00"}'
