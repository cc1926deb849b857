"""Whole answers of the Responses API: reading one, the chat completion it is, and the events that would have told it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import cast

from n4n.core import json_bytes
from n4n.core.chat import CHAT, Chunk
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.completion import NOT_UTF8
from n4n.core.dialects.responses import chat_items, counts, failures
from n4n.core.dialects.responses.words import SHAPE, Answer, Object, read_answer, whole_seconds
from n4n.core.errors import Failure

NOT_FINISHED = frozenset(("failed", "cancelled", "queued", "in_progress"))
_NO_RESPONSE = "the provider's answer holds no response"


def read_whole(body: bytes, *, native: bool) -> Chunk | Failure:
    """One whole answer with status 200 as a chunk: its own bytes where the client speaks Responses, else a chat completion."""
    body = body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    answer = read_answer(body)
    if answer is None or answer.error or answer.output is None or answer.status in NOT_FINISHED:
        return _failure(body)
    payload = body if native else json_bytes.dump(_completion(answer))
    return Chunk(
        payload,
        content=any(map(chat_items.speaks, answer.output)),
        finishes=True,
        usage=counts.read(answer.usage, answer.service_tier),
        output_bytes=sum(map(chat_items.size, answer.output)),
        shape=SHAPE if native else CHAT,
    )


def _failure(body: bytes) -> Failure:
    if not body:
        return garbled("the provider's answer was empty")
    if body[:1] == b"<":
        return garbled("the provider answered with a web page")
    try:
        body.decode()
        said = json_bytes.parse(body)
    except ValueError:
        return garbled(NOT_UTF8)
    if failures.read_error(said) is not None:
        return failures.failure_inside(said)
    unfinished = isinstance(said, dict) and str(said.get("status")) in NOT_FINISHED
    return garbled("the provider did not finish its response" if unfinished else _NO_RESPONSE)


def _completion(answer: Answer) -> Object:
    items = answer.output or []
    parts, places = chat_items.parts_of(items), chat_items.Places()
    seed = hashlib.sha256((answer.id or "").encode(errors="replace")).hexdigest()[:16]
    calls = [chat_items.call(item, f"{seed}_{at}") for at, item in enumerate(items) if item.type in chat_items.CALLS]
    details = [chat_items.detail(item, place) for item in items for place in (places.next(item),) if chat_items.is_sealed(item)]
    spoken = "".join(part.text or "" for part in parts if part.type == "output_text")
    message: Object = {
        "role": "assistant",
        "content": spoken or None,
        "refusal": "".join(part.refusal or "" for part in parts if part.type == "refusal") or None,
    }
    extras: Object = {
        "reasoning_content": "".join(chat_items.reasoning(item) for item in items if item.type == "reasoning"),
        "reasoning_details": details,
        "tool_calls": calls,
        "annotations": [cited for part in parts for cited in chat_items.citations(part.annotations)],
    }
    message.update((name, value) for name, value in extras.items() if value)
    logprobs = [one for part in parts for one in part.logprobs or ()]
    usage = counts.read(answer.usage, answer.service_tier)
    return {
        "id": answer.id or "",
        "object": "chat.completion",
        "created": whole_seconds(answer.created_at),
        "model": answer.model or "",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
                "finish_reason": chat_items.finish_reason(answer, calls=bool(calls)),
            }
        ],
        "usage": None if usage is None else counts.in_chat(usage),
    }


def as_events(whole: Object) -> Iterator[Object]:
    """A parsed response as the events that would have told it."""
    for number, event in enumerate(_events(whole)):
        yield {"type": event.pop("type"), "sequence_number": number, **event}


def _events(whole: Object) -> Iterator[Object]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(_objects(whole.get("output"))):
        at: Object = {"item_id": item.get("id"), "output_index": index}
        parts = _objects(item.get("content")) if item.get("type") == "message" else []
        called = item.get("type") == "function_call"
        opened: Object = {**item, "content": []} if parts else {**item, "arguments": ""} if called else item
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        if called:
            yield {"type": "response.function_call_arguments.delta", **at, "delta": item.get("arguments")}
            yield {"type": "response.function_call_arguments.done", **at, "name": item.get("name"), "arguments": item.get("arguments")}
        for place, part in enumerate(parts):
            where = {**at, "content_index": place}
            word = "refusal" if part.get("type") == "refusal" else "text"
            kind = "refusal" if word == "refusal" else "output_text"
            more: Object = {} if word == "refusal" else {"logprobs": part.get("logprobs") or []}
            yield {"type": "response.content_part.added", **where, "part": {**part, word: ""}}
            yield {"type": f"response.{kind}.delta", **where, "delta": part.get(word), **more}
            yield {"type": f"response.{kind}.done", **where, word: part.get(word), **more}
            yield {"type": "response.content_part.done", **where, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    ended = "incomplete" if whole.get("status") == "incomplete" else "completed"
    yield {"type": f"response.{ended}", "response": {**whole, "status": ended}}


def joined(payloads: Iterable[bytes]) -> Object:
    """The whole response that a stream of events told. Its last event may leave out the items, which had events of their own."""
    whole: Object = {}
    items: dict[int, Object] = {}
    for payload in payloads:
        said = cast(Object, json_bytes.parse(payload))
        if said.get("type") == "response.output_item.done":
            items[cast(int, said.get("output_index", 0))] = cast(Object, said.get("item"))
        if isinstance(said.get("response"), dict):
            whole = cast(Object, said["response"])
    if not whole.get("output"):
        whole["output"] = [items[index] for index in sorted(items)]
    return whole


def _objects(value: object) -> list[Object]:
    return [cast(Object, one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []
