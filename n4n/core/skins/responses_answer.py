"""Answers of the Responses skin: the response object with what the request said in it, and whole answers.

A response is made of a chat completion, or is a provider's own.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.dialects.responses import counts
from n4n.core.dialects.responses.words import SHAPE, whole_seconds
from n4n.core.skins.responses_tools import Called, called_in, free_text
from n4n.core.skins.responses_turns import sealed
from n4n.core.stream_tail import with_note

Object = dict[str, object]
# What a response repeats of its request, and what it says where the request says nothing.
_ECHOED = {
    "instructions": b"null", "max_output_tokens": b"null", "max_tool_calls": b"null", "metadata": b"{}", "parallel_tool_calls": b"true",
    "prompt_cache_key": b"null", "reasoning": b'{"effort":null,"summary":null}', "safety_identifier": b"null", "service_tier": b'"auto"',
    "temperature": b"null", "text": b'{"format":{"type":"text"}}', "tool_choice": b'"auto"', "tools": b"[]", "top_logprobs": b"null",
    "top_p": b"null", "truncation": b'"disabled"', "user": b"null",
}  # fmt: skip
_NEVER = {"background": b"false", "previous_response_id": b"null", "store": b"false"}
_PREFIX = re.compile(r"(?:chatcmpl|cmpl|gen|msg|resp)[-_]")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Function(msgspec.Struct, gc=False):
    """What a call calls."""

    name: str | None = None
    arguments: str | None = None


class Fragment(msgspec.Struct, gc=False):
    """A tool call, or what a delta brings of one."""

    index: int = 0
    id: str | None = None
    function: Function | None = None


class Speech(msgspec.Struct, gc=False):
    """A message or a delta."""

    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None
    reasoning_details: list[Object] | None = None
    annotations: list[Object] | None = None


class Logprobs(msgspec.Struct, gc=False):
    """`logprobs` of a choice."""

    content: list[Object] | None = None


class Choice(msgspec.Struct, gc=False):
    """A choice of a completion or of a chunk."""

    index: int = 0
    message: Speech | None = None
    delta: Speech | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, gc=False):
    """A completion or a chunk of one."""

    id: str | None = None
    model: str | None = None
    created: int | float = 0
    choices: list[Choice] = []

    @property
    def first(self) -> Choice:
        """The one choice that a response can hold."""
        return next((choice for choice in self.choices if choice.index == 0), Choice())


_READ = msgspec.json.Decoder(Completion).decode


def read(payload: bytes) -> Completion:
    """A chunk's payload in the shape of chat; what is in another shape reads as nothing."""
    try:
        return _READ(payload)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json_bytes.parse(payload), Completion)  # half a surrogate pair in an escape
    except ValueError:
        return Completion()


class Envelope:
    """The response object that answers one request, of which `completion` is the first or only chunk: everything but its state and
    its output. `identity` goes into the ids of its items."""

    __slots__ = ("_head", "_model", "_tail", "identity")

    def __init__(self, request: ChatRequest, completion: Completion, payload: bytes) -> None:
        self.identity = _identity(request, completion, payload)
        self._model = json_bytes.dump(completion.model or request.model)
        name = json_bytes.encode(f"resp_{self.identity}")
        self._head = b'"id":%b,"object":"response","created_at":%d' % (name, whole_seconds(completion.created))
        said = request.native.fields if request.native is not None else {}
        echoed: dict[str, bytes] = {name: said.get(name, default) for name, default in _ECHOED.items()}
        echoed |= {name: _ECHOED[name] for name, raw in echoed.items() if bytes(raw) == b"null"}
        self._tail = json_bytes.join({**echoed, **_NEVER}.items())[1:-1]

    def response(
        self, status: str, output: bytes = b"[]", usage: bytes = b"null", *, incomplete: bytes = b"null", error: bytes = b"null"
    ) -> bytes:
        """The object; `output`, `usage` and the rest are JSON."""
        state = b'"status":"%b","error":%b,"incomplete_details":%b,"model":%b,"output":%b,"usage":%b' % (
            status.encode(),
            error,
            incomplete,
            self._model,
            output,
            usage,
        )
        return b"{%b,%b,%b}" % (self._head, state, self._tail)

    def ended(self, finish_reason: str | None, output: list[Object], usage: Usage | None) -> tuple[str, bytes]:
        """How it ended, and the object of that."""
        status = "incomplete" if is_cut(finish_reason) else "completed"
        incomplete = json_bytes.encode({"reason": _REASONS[finish_reason]}) if finish_reason in _REASONS else b"null"
        spelled = b"null" if usage is None else json_bytes.encode(counts.spelled(usage))
        return status, self.response(status, json_bytes.dump(output), spelled, incomplete=incomplete)


def whole(chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
    """The body of a whole answer, n4n's block as its last member. `usage` is the truth, `note` JSON."""
    if chunk.shape == SHAPE:
        return with_note(chunk.payload if usage is None or usage == chunk.usage else with_usage(chunk.payload, usage), note)
    completion = read(chunk.payload)
    envelope = Envelope(request, completion, chunk.payload)
    output = _output(completion.first, envelope.identity, called_in(request))
    return with_note(envelope.ended(completion.first.finish_reason, output, usage)[1], note)


def _identity(request: ChatRequest, completion: Completion, payload: bytes) -> str:
    """The provider's own id of the answer, where it is one; the same words in a later turn are another answer: the request has grown."""
    name = _PREFIX.sub("", completion.id or "")
    return name if _PLAIN.match(name) else hashlib.sha256(b"%d %b" % (request.body_bytes, payload)).hexdigest()[:24]


def is_cut(finish_reason: str | None) -> bool:
    """Whether an answer with this reason broke off."""
    return finish_reason in _REASONS


def with_usage(payload: bytes, usage: Usage) -> bytes:
    """A response whose usage tells the truth; what else is told there stays."""
    known = json_bytes.loose_members(payload)
    told: dict[str, bytes] = dict(json_bytes.loose_members(known["usage"])) if json_bytes.is_object(known.get("usage")) else {}
    told.update((name, json_bytes.encode(value)) for name, value in counts.spelled(usage).items())
    return json_bytes.join({**known, "usage": json_bytes.join(told.items())}.items())


def _output(choice: Choice, identity: str, called: dict[str, Called]) -> list[Object]:
    said = choice.message or Speech()
    items: list[Object] = []
    details = sealed(said.reasoning_details or [])
    if said.reasoning_content or details:
        items.append(reasoning_item(f"rs_{identity}_0", said.reasoning_content or "", details))
    parts: list[Object] = []
    if said.content:
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        parts.append(text_part(said.content, citations(said.annotations), logprobs or []))
    if said.refusal:
        parts.append({"type": "refusal", "refusal": said.refusal})
    if parts:
        items.append(message_item(f"msg_{identity}_{len(items)}", parts))
    for call in said.tool_calls or ():
        function = call.function or Function()
        name = f"{identity}_{len(items)}"
        items.append(call_item(name, call.id, called.get(function.name or "") or Called(function.name or ""), function.arguments or "{}"))
    if is_cut(choice.finish_reason) and items:
        items[-1]["status"] = "incomplete"
    return items


# ── items


def message_item(name: str, parts: list[Object], status: str = "completed") -> Object:
    """A message of the assistant."""
    return {"id": name, "type": "message", "status": status, "role": "assistant", "content": parts}


def text_part(text: str | msgspec.Raw, annotations: list[Object], logprobs: list[Object]) -> Object:
    """A part of a message that is text."""
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": logprobs}


def reasoning_item(name: str, text: str | msgspec.Raw, encrypted: str | None, status: str = "completed") -> Object:
    """Reasoning, and what of it has to come back unread."""
    item: Object = {"id": name, "type": "reasoning", "status": status, "summary": [{"type": "summary_text", "text": text}] if text else []}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def call_item(name: str, call_id: str | None, tool: Called, arguments: str, status: str = "completed") -> Object:
    """A call of a tool; `arguments` are those of the function that stands for it in a chat."""
    call: Object = {"status": status, "call_id": call_id or f"call_{name}", "name": tool.name}
    if tool.namespace is not None:
        call["namespace"] = tool.namespace
    if tool.custom:
        return {"id": f"ctc_{name}", "type": "custom_tool_call", **call, "input": free_text(arguments) if arguments else ""}
    return {"id": f"fc_{name}", "type": "function_call", **call, "arguments": arguments}


def citations(found: list[Object] | None) -> list[Object]:
    """A chat's annotations, flat."""
    inner = [one.get("url_citation") for one in found or () if one.get("type") == "url_citation"]
    return [{"type": "url_citation", **one} for one in inner if isinstance(one, dict)]
