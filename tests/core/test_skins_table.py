"""The table of skins: which path is answered in whose words, and that each one is put together rightly."""

from __future__ import annotations

import json

import pytest

from n4n.core.chat import Chunk, Usage
from n4n.core.errors import MalformedRequest
from n4n.core.skins.skin import Skin
from n4n.core.skins.table import MESSAGES, SKINS, skin_of

CHAT = SKINS["/v1/chat/completions"]
WHOLE = b'{"id":"x","model":"u","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
DELTA = b'{"id":"x","model":"u","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}'
LAST = b'{"id":"x","model":"u","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
ERROR = {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "model_not_found", "n4n": {"request_id": "r"}}}
BODY = b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":"u"},"top_k":4}'


@pytest.mark.parametrize(
    ("path", "skin"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/messages", MESSAGES),
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/messagesque", CHAT),
        ("/", CHAT),
    ],
)
def test_an_error_is_said_in_the_words_of_the_skin_that_was_asked(path: str, skin: Skin) -> None:
    assert skin_of(path) is skin


def test_a_chat_stream_is_framed_noted_and_ended() -> None:
    frames = CHAT.frames(CHAT.read(BODY, lambda _: None))
    first = frames.receive(Chunk(DELTA, content=True))
    assert first == (b"data: " + DELTA + b"\n\n",)
    assert frames.receive(Chunk(LAST, finishes=True)) == ()
    assert frames.waiting
    last, done = frames.finish(Usage(1, 2), b"{}")
    assert json.loads(last.removeprefix(b"data: "))["n4n"] == {}
    assert done == b"data: [DONE]\n\n"


def test_a_broken_chat_stream_ends_in_an_error_with_a_finish_of_its_own() -> None:
    told = json.loads(CHAT.frames(CHAT.read(BODY, lambda _: None)).error(ERROR).removeprefix(b"data: "))
    assert told["error"] == ERROR["error"]
    assert told["choices"] == [{"index": 0, "delta": {}, "finish_reason": "error"}]


def test_a_chat_loses_nothing_and_its_answers_and_errors_stay_as_they_are() -> None:
    assert CHAT.losses(CHAT.read(BODY, lambda _: None)) == ()
    assert json.loads(CHAT.whole(Chunk(WHOLE), CHAT.read(BODY, lambda _: None), None, b'{"a":1}'))["n4n"] == {"a": 1}
    assert CHAT.envelope(ERROR) is ERROR


def test_messages_are_read_answered_and_refused_in_their_own_words() -> None:
    asked = MESSAGES.read(BODY, {"anthropic-beta": "b-1"}.get)
    assert asked.native is not None
    assert MESSAGES.read(BODY, lambda _: None).model == "m"
    assert all("left out" in loss for loss in MESSAGES.losses(asked))
    assert json.loads(MESSAGES.whole(Chunk(WHOLE), asked, Usage(1, 2), b"{}"))["type"] == "message"
    assert MESSAGES.envelope(ERROR)["type"] == "error"
    frames = MESSAGES.frames(asked)
    assert b"message_start" in b"".join(frames.receive(Chunk(DELTA, content=True)))
    with pytest.raises(MalformedRequest, match="model"):
        MESSAGES.read(b"{}", lambda _: None)
