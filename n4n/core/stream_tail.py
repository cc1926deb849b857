"""The tail of a stream: usage as the client asked for it, and n4n's own block on the last chunk.

Chunks pass untouched. The one with the last finish reason waits for the usage, the stream's end or the shell's patience,
because the block with the cost has to ride on it; there is never a chunk more than the client asked for.
"""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Usage
from n4n.core.json_bytes import Members

_NOTE = b'"n4n"'
_BEFORE_END = (b"{", b" ", b"\t", b"\n", b"\r", b"")
_IDENTITY = (("id", b'""'), ("object", b'"chat.completion.chunk"'), ("created", b"0"), ("model", b'""'))


class StreamTail:
    """Stands behind the guard. `include_usage`: the client asked for usage in the stream."""

    __slots__ = ("_finish", "_include", "_latest", "_reported", "_unfinished", "_usage_chunk", "over")

    def __init__(self, include_usage: bool) -> None:
        self._include = include_usage
        self._finish: bytes | None = None  # the waiting chunk
        self._unfinished = False
        self._latest = b"{}"  # the latest chunk, for its id, created and model
        self._usage_chunk: Chunk | None = None  # the latest that reported usage
        self._reported: Usage | None = None
        self.over = False

    @property
    def waiting(self) -> bool:
        """Every choice has finished and nothing but usage is to come: be patient for 2 s, no longer."""
        return self._finish is not None and not self._unfinished

    @property
    def complete(self) -> bool:
        """Every choice has finished and the usage has come: `finish` need not wait for the stream's end."""
        return self.waiting and self._reported is not None

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The payloads that may go out now; after `finish` none."""
        payload = chunk.payload
        if self.over:
            return ()
        if chunk.usage is not None:
            self._usage_chunk, self._reported = chunk, chunk.usage
            if not chunk.choices or (self.waiting and not chunk.content and not chunk.finishes):
                return ()  # carries nothing else
            payload = without_usage(payload)
        self._latest = payload
        if chunk.finishes:
            held, self._finish, self._unfinished = self._finish, payload, chunk.unfinished
            return () if held is None else (held,)
        if self._finish is None or not self._unfinished:
            return (payload,)  # what comes after the last finish reason goes ahead of it
        held, self._finish = self._finish, None
        return (held, payload)

    def finish(self, usage: Usage | None, note: bytes) -> tuple[bytes, ...]:
        """The remaining payloads. `usage` is the truth (the provider's, or ours where that was suspect), `note` JSON for `n4n`."""
        self.over = True
        last = [] if self._finish is None else [self._finish]
        if self._include and usage is not None:
            last.append(self._last_chunk(usage))
        self._finish = None
        if last:
            last[-1] = with_note(last[-1], note)
        return tuple(last)

    def _last_chunk(self, usage: Usage) -> bytes:
        """The provider's own usage chunk where it tells the truth in the right shape, else one made of what is known."""
        identity = _identity(json_bytes.loose_members(self._finish or self._latest))
        told = self._usage_chunk
        if told is None or usage != self._reported or usage.estimated:
            return _made(identity, _spelled(usage))
        known = json_bytes.loose_members(told.payload)
        if not told.choices and json_bytes.is_object(known.get("usage")) and _identity(known) == identity:
            return told.payload
        return _made(identity, _reported(known) or _spelled(usage))


def without_usage(payload: bytes) -> bytes:
    """A chunk without what it says about tokens."""
    known = json_bytes.loose_members(payload)
    return json_bytes.join((name, raw) for name, raw in known.items() if name not in ("usage", "x_groq"))


def with_note(payload: bytes, note: bytes) -> bytes:
    """A JSON object with `n4n` as its last member, in place of one that was there; nothing else is re-encoded."""
    if _NOTE in payload:
        known = json_bytes.loose_members(payload)
        if "n4n" in known:
            del known["n4n"]
            payload = json_bytes.join(known.items())
    if payload[-1:] == b"}" and payload[-2:-1] not in _BEFORE_END:  # nearly always
        return b'%b,"n4n":%b}' % (payload[:-1], note)
    head = payload.rstrip()[:-1].rstrip()
    return b"".join((head, b"" if head == b"{" else b",", _NOTE, b":", note, b"}"))


def _identity(known: Members) -> list[tuple[str, bytes]]:
    return [(name, bytes(known.get(name, default))) for name, default in _IDENTITY]


def _reported(known: Members) -> bytes | None:
    if json_bytes.is_object(known.get("usage")):
        return bytes(known["usage"])
    if json_bytes.is_object(known.get("x_groq")):
        return _reported(json_bytes.loose_members(known["x_groq"]))
    return None


def _made(identity: list[tuple[str, bytes]], usage: bytes) -> bytes:
    return json_bytes.join((*identity, ("choices", b"[]"), ("usage", usage)))


def _spelled(usage: Usage) -> bytes:
    return json_bytes.encode({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })  # fmt: skip
