"""Failures inside a stream: unseen before release, honest after it."""

from __future__ import annotations

import pytest

from tests.bugs.streams import chunk, events, finishes, said, two_endpoints
from tests.support import answers
from tests.support.answers import DONE, EVENTS, error_event, partial
from tests.support.script import Answer, Chunk, Fin, Hang, Raw, Rst, event

HELD = {"stream_guard": {"chunks": 6, "max_hold_ms": 60_000}}


def together(*steps: Chunk) -> Answer:
    """The events in one read."""
    return (EVENTS, Raw(b"".join(event(step.json) for step in steps)))


ERRORS = {
    "quota": (error_event("insufficient_quota"), "quota_exhausted"),
    "rate": (error_event("rate_limit_exceeded"), "rate_limited"),
    "overloaded": (error_event("x", type="overloaded_error"), "overloaded"),
    "flat": (Chunk({"error": "boom", "code": 429}), "rate_limited"),
    "with choices": (Chunk({"choices": [], "error": {"code": 502, "message": "provider returned error"}}), "server_error"),
    "as a finish reason": (chunk(finish="error"), "server_error"),
}
BEGINNINGS = {
    "nothing": (),
    "a role": (chunk({"role": "assistant"}),),
    "a role and an empty text": (chunk({"role": "assistant", "content": ""}),),
    "some text": (chunk({"role": "assistant"}), chunk({"content": "half an "})),
    "usage only": (Chunk({"choices": [], "usage": answers.usage(1, 0)}),),
}


@pytest.mark.parametrize("in_one_read", [False, True])
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("kind", ERRORS)
async def test_an_error_after_harmless_events_is_replaced_by_a_clean_stream(kind: str, beginning: str, in_one_read: bool) -> None:
    """Bifrost #5395 (case 8): only an error in the very first event was seen in time."""
    fault, failure_class = ERRORS[kind]
    steps = (*BEGINNINGS[beginning], fault)
    async with two_endpoints(HELD) as (e1, e2, house):
        e1.script(together(*steps) if in_one_read else (EVENTS, *steps))
        async with house.chat(stream=True) as answer:
            text = await answer.text()
        (line,) = await house.logged()
        out = house.router.health
    assert said(text) == "pong" and finishes(text) == ["stop"] and text.endswith("data: [DONE]\n\n") and "error" not in text
    assert (len(e1.calls), len(e2.calls)) == (1, 1)
    assert [(one["endpoint"], one["outcome"]) for one in line["routing"]["attempts"]] == [("e1", failure_class), ("e2", "ok")]  # type: ignore[index]
    if failure_class == "quota_exhausted":
        assert "ae1" in out.cooling_accounts
    if failure_class == "rate_limited":
        assert out.views["e1"].cooldown_class == "rate_limited"


TEN = tuple(f"piece{at} " for at in range(10))


@pytest.mark.parametrize("guard", [1, 3, 10])
@pytest.mark.parametrize(
    "end", [(Rst(),), (Fin(),), (), (DONE,), (Raw(b"data: {\n\n"),), (error_event("server_error"),), (Hang(),)], ids=str
)  # fmt: skip
async def test_what_was_shown_is_never_played_again(end: Answer, guard: int) -> None:
    """Apache ShenYu #6647 (case 9): a retry after partial output gave half of one answer and all of another."""
    model = {"stream_guard": {"chunks": guard, "max_hold_ms": 60_000}, "timeouts": {"idle_ms": 200}}
    async with two_endpoints(model) as (e1, e2, house):
        e1.script((*partial(*TEN), *end))
        async with house.chat(stream=True) as answer:
            text = await answer.text()
        (line,) = await house.logged()
    last = events(text)[-1]
    assert said(text) == "".join(TEN) and finishes(text) == ["error"] and "[DONE]" not in text
    assert last["error"]["code"] == "stream_interrupted" and last["error"]["type"] == "server_error"
    assert (len(e1.calls), len(e2.calls)) == (1, 0)
    assert line["outcome"] == "error" and len(line["routing"]["attempts"]) == 1  # type: ignore[index]
