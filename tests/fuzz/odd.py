"""Odd requests by every skin to every dialect, and odd answers back: refused by name or written as JSON, never anything else.

A good body is taken and a few of its values are made odd: of another type, far too deep or large, half a pair, a part out of place. By
hand: `python -m tests.fuzz.odd SEED SECONDS`.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from bench.answers import answers
from n4n.core import large
from n4n.core.affinity import kept
from n4n.core.catalog import Account, Endpoint, EndpointId, ModelId, Price, PriceList, Provider
from n4n.core.chat import Chunk, Failed, Usage
from n4n.core.dialects.counting import COUNTERS
from n4n.core.dialects.origins import unread
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, RequestError
from n4n.core.fitness import barred_kind, lacking, least_tokens, untaken_tools
from n4n.core.skins.table import SKINS

Path = tuple[str | int, ...]
PIXEL = "data:image/png;base64,aGk="
MARK = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/q"}]}},
    "$defs": {"q": {"$ref": "#/$defs/q"}},
}
DETAILS = [
    {"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
    *({"type": "reasoning.encrypted", "data": f"n4n.o1.0123abc{at}.x", "format": form, "id": "c1", "index": at}
      for at, form in enumerate(("openai-responses-v1", "google-gemini-v1", "bedrock-converse-v1"))),
]  # fmt: skip
CHAT: dict[str, Any] = {
    "model": "m", "max_tokens": 9, "n": 2, "stop": ["a"], "seed": 1, "logprobs": True, "top_logprobs": 2, "temperature": 0.5, "top_k": 5,
    "messages": [
        {"role": "system", "content": "s", "cache_control": MARK},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                                     {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}}]},
        {"role": "assistant", "content": "x", "reasoning_details": DETAILS, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "t", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "z", "input": "i"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "function", "name": "f", "content": "q"},
        {"role": "user", "name": "n", "content": "b"},
    ],
    "tools": [{"type": "function", "function": {"name": "t", "parameters": SCHEMA, "strict": True}, "cache_control": MARK}],
    "tool_choice": {"type": "function", "function": {"name": "t"}}, "parallel_tool_calls": False, "functions": [{"name": "f"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}, "service_tier": "auto",
    "reasoning_effort": "low", "reasoning": {"effort": "low", "max_tokens": 100}, "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k", "logit_bias": {"1": 1}, "stream_options": {"include_usage": True},
    "web_search_options": {"user_location": {"approximate": {"country": "CH"}}}, "models": ["m"], "provider": {"order": ["p"]},
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "model": "m", "max_tokens": 100, "system": [{"type": "text", "text": "s", "cache_control": MARK}], "stream": True, "top_k": 4,
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "document", "source": {"type": "content", "content": []}},
                                     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "n4n.v1.eyJhIjoxfQ=="},
            {"type": "tool_use", "id": "t1", "name": "t", "input": {"a": 1}}, {"type": "server_tool_use", "id": "s", "name": "w"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
            {"type": "text", "text": "q"}, {"type": "image", "source": {"type": "url", "url": "https://a.example/a.png"}}]}]},
    ],
    "tools": [{"name": "t", "input_schema": SCHEMA, "cache_control": MARK}, {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "tool", "name": "t", "disable_parallel_tool_use": True}, "thinking": {"type": "enabled", "budget_tokens": 2000},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}, "stop_sequences": ["a"],
    "metadata": {"user_id": "u" * 80}, "unsupported_params": "drop",
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "model": "m", "instructions": "i", "max_output_tokens": 99, "store": True, "include": ["reasoning.encrypted_content"],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": PIXEL}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "n4n.o1.0123abcd.xx"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "q"}, {"type": "refusal", "refusal": "n"}]},
        {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "z"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "cc", "input": "i"}, {"type": "web_search_call", "id": "w"},
    ],
    "tools": [{"type": "function", "name": "t", "parameters": SCHEMA}, {"type": "custom", "name": "cc", "format": {"type": "text"}},
              {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "q"}]}, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "t"}]}, "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}, "reasoning": {"effort": "low"}, "top_logprobs": 3,
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/completions": {"model": "m", "prompt": ["a"], "echo": False, "best_of": 1, "logprobs": 2, "max_tokens": 5, "n": 1, "stop": "x"},
    "/v1/embeddings": {"model": "m", "input": ["a", "b"], "dimensions": 8, "encoding_format": "base64"},
}
MODELS = {"bedrock": ("claude-sonnet-4-6", "amazon.nova-2-lite-v1:0"), "vertex": ("claude-sonnet-4-6", "gemini-3.1-pro", "mistral-large")}
DEEP = 10_000


class Raw(str):
    """JSON as it is."""


ODD: list[Any] = [
    None, 7, -1, 0, 1.5, True, False, "", " ", [], {}, [None], [[]], [{}], {"type": "x"}, {"type": None}, [7, "a"], 10**30, "漢🏔\0\x1f",
    Raw('"\\ud83d"'), Raw('{"\\udc00":1}'), Raw("1e400"), Raw("-0"), Raw("[" * 900 + "]" * 900), Raw("[" * DEEP + "]" * DEEP),
    Raw('{"a":' * 2000 + "1" + "}" * 2000), Raw('{"type":"text","type":"image_url","text":"a","text":null}'), {"type": "text"},
    {"type": "image_url", "image_url": "https://a.example/x"}, {"type": "tool_result"}, {"type": "tool_use"}, {"type": "function"},
    {"type": "function", "function": {"name": ""}}, {"type": "input_audio"}, {"type": "file", "file": {"file_id": "f"}}, "data:;base64,",
    "data:text/plain,hi%20there", "file:///etc/passwd", "s3://b/k", "n4n.v1.!!!", "n4n.v1.n4n.o1.0123abcd.bnVsbA==", "n4n.o1.0123abcd.",
    {"$ref": "#"}, {"$ref": "#/a/b"}, {"type": ["string", "null"], "items": [], "additionalProperties": 7},
    {"role": "user", "content": "x"},
]  # fmt: skip


def one_request(dice: random.Random) -> None:
    """One odd body by its skin to every dialect."""
    path = dice.choice(list(BODIES))
    skin, body = SKINS[path], written(oddly(BODIES[path], dice))
    try:
        request = large.read(skin, body, lambda _: None)
    except RequestError:
        return
    for name, dialect in DIALECTS.items():
        endpoint = endpoint_of(name, dice)
        speech = dialect.speech(endpoint.upstream_model)
        lacking(request, endpoint, speech), untaken_tools(request, endpoint, speech), barred_kind(request, endpoint)
        kept(request, "t", [endpoint], {}), least_tokens(replace(request, least_tokens=None))
        try:
            sent = dialect.encode(replace(request, origin=dice.choice(("", "0123abcd"))), endpoint, "k")
            assert isinstance(json.loads(sent.body.decode()), dict)
            skin.losses(request), unread(request, endpoint, speech)
            if path == "/v1/messages" and name in COUNTERS:
                COUNTERS[name].encode(dialect, request, endpoint, "k")
        except RequestError:
            pass


def one_answer(dice: random.Random) -> None:
    """One odd answer of a dialect, whole or as a stream, said by a skin."""
    name, told = dice.choice(list(answers().items()))
    path = dice.choice(list(BODIES)[:4])
    skin, dialect = SKINS[path], DIALECTS[name]
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x", "max_tokens": 9}
    request = skin.read(written({field: asked[field] for field in asked if field in BODIES[path]}), lambda _: None)
    if dice.random() < 0.5 or name == "bedrock":
        came = dialect.decode(written(oddly(json.loads(told.whole), dice)), "application/json", request)
        assert isinstance(came, Failure) or json.loads(skin.whole(came, request, Usage(1, 2), b'{"a":1}'))
        return
    pieces = list(told.pieces)
    at = dice.randrange(len(pieces) - 1)
    head, _, data = pieces[at].partition(b"data: ")
    pieces[at] = head + b"data: " + written(oddly(json.loads(data), dice)) + b"\n\n"
    decoder, frames, said = dialect.decoder(request), skin.frames(request), list[bytes]()
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()
    for event in events:
        if isinstance(event, Chunk):
            said += frames.receive(event)
    broke = any(isinstance(event, Failed) for event in events)
    said += [frames.error({"error": {"message": "m", "code": "c", "n4n": {}}})] if broke else frames.finish(Usage(1, 2), b'{"a":1}')
    for line in b"".join(said).split(b"\n"):
        assert not line.startswith(b"data: ") or line == b"data: [DONE]" or json.loads(line[6:].decode())


def endpoint_of(dialect: str, dice: random.Random) -> Endpoint:
    """An endpoint that has this and lacks that."""
    supports = dice.choice((None, None, frozenset(("tools", "stop")), frozenset(("embeddings",)), frozenset[str]()))
    provider = Provider("p", dialect, "https://a.example/v1", quirks=frozenset(dice.sample(("max_tokens", "random_seed", "marks"), 1)))
    return Endpoint(
        EndpointId("e"), ModelId("m"), provider, (Account("a", "p"), Account("b", "p")), supports=supports, context_window=1000,
        upstream_model=dice.choice(MODELS.get(dialect, ("theirs",))), max_output_tokens=dice.choice((None, 50)),
        price=PriceList(Price(9, 9, 1)),
    )  # fmt: skip


def oddly(body: Any, dice: random.Random) -> Any:
    """A copy with one to three values made odd, taken away or put somewhere else."""
    made = copy.deepcopy(body) if dice.random() < 0.3 else plain(body)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        places = [place for place in paths(made) if place]
        if not places:
            continue
        *outer, last = dice.choice(places)
        around = made
        for step in outer:
            around = around[step]
        chance = dice.random()
        if chance < 0.7:
            around[last] = copy.deepcopy(dice.choice(ODD))
        elif chance < 0.85:
            del around[last]
        elif isinstance(around, list):
            around.insert(int(last), copy.deepcopy(dice.choice(ODD)))
        else:
            around[dice.choice(("type", "text", "content", "role", "id", "name", "input", "source"))] = copy.deepcopy(dice.choice(ODD))
    return made


def plain(body: Any) -> Any:
    """Without pictures and documents, which few dialects take and which end the reading early."""
    if isinstance(body, list):
        kinds = ("image_url", "file", "image", "document", "input_image")
        return [plain(one) for one in body if not (isinstance(one, dict) and one.get("type") in kinds)]
    return {name: plain(value) for name, value in body.items()} if isinstance(body, dict) else body


def paths(body: Any, path: Path = ()) -> Iterator[Path]:
    """To every value."""
    yield path
    for step, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        yield from paths(value, (*path, step))


def written(body: Any) -> bytes:
    """As JSON, with what is raw as it is."""
    if isinstance(body, Raw):
        return body.encode()
    if isinstance(body, dict):
        return b"{%b}" % b",".join(json.dumps(name).encode() + b":" + written(value) for name, value in body.items())
    if isinstance(body, list):
        return b"[%b]" % b",".join(map(written, body))
    return json.dumps(body, ensure_ascii=False).encode()


if __name__ == "__main__":
    chance, until = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        one_request(chance)
        one_answer(chance)
