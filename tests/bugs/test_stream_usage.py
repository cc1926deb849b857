"""Usage in streams, wherever a provider puts it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.bugs.streams import chunk, events, said, stream_of
from tests.support.answers import DONE, EVENTS, usage, usage_chunk
from tests.support.script import Answer, Chunk

TOLD = usage(20, 6, cached=4, reasoning=2)
ROLE, TEXT, STOP = chunk({"role": "assistant", "content": ""}), chunk({"content": "hello"}), chunk(finish="stop")
PLACES: Mapping[str, Answer] = {
    "with the finish reason": (EVENTS, ROLE, TEXT, chunk(finish="stop", usage=TOLD), DONE),
    "with the last content and the finish reason": (EVENTS, ROLE, chunk({"content": "hello"}, finish="stop", usage=TOLD), DONE),
    "in a field of the provider's own": (EVENTS, ROLE, TEXT, chunk(finish="stop", x_groq={"id": "r", "usage": TOLD}), DONE),
    "in a last chunk with choices": (EVENTS, ROLE, TEXT, STOP, chunk(usage=TOLD), DONE),
    "in a last chunk with empty choices": (EVENTS, ROLE, TEXT, STOP, usage_chunk(TOLD), DONE),
    "in a last chunk without choices": (EVENTS, ROLE, TEXT, STOP, Chunk({"id": "c1", "usage": TOLD}), DONE),
    "growing in every chunk": (EVENTS, chunk({"role": "assistant"}, usage=usage(20, 0)), chunk({"content": "hello"}, usage=usage(20, 3)),
                               chunk(finish="stop", usage=TOLD), DONE),
    "without an end mark": (EVENTS, ROLE, TEXT, chunk(finish="stop", usage=TOLD)),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("asked", [True, False, None])
async def test_there_is_one_usage_chunk_with_empty_choices_if_it_was_asked_for_and_none_if_not(place: str, asked: bool | None) -> None:
    """LiteLLM #28735 (case 1) and Portkey #1259 (case 2): usage beside choices broke strict clients, or was lost with its chunk."""
    body = {} if asked is None else {"stream_options": {"include_usage": asked}}

    text, line = await stream_of(PLACES[place], **body)

    chunks = events(text)
    bearing = [one for one in chunks if one.get("usage")]
    assert said(text) == "hello" and text.endswith("data: [DONE]\n\n")
    assert bearing == ([chunks[-1]] if asked else [])
    if asked:
        last = chunks[-1]
        assert (last["choices"], last["id"]) == ([], chunks[0]["id"])
        assert [last["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")] == [20, 6, 26]
    counted = line["usage"]
    assert isinstance(counted, dict) and counted["estimated"] is False
    assert [counted[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")] == [20, 6, 4]
