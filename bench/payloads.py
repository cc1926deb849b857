"""What is asked and answered in the bench: bodies of about 2 KB, a completion of half a kilobyte, a stream of 22 events."""

from __future__ import annotations

import json
from pathlib import Path

MODEL = "bench-model"
TEXT = "The river is widest where the old mill stood, so the ferry crosses there."
EVENTS = 22  # role and first token, 18 tokens, finish, usage, [DONE]
GAP_MS = 5

_CREATED = 1_764_460_800
_RULES = "Answer from the passage alone, in one sentence, and name the line that the answer stands on. "
_PASSAGE = "The ferry leaves the eastern bank at dawn and carries what the farms have to sell. "


def request(*, stream: bool, model: str = MODEL) -> bytes:
    """A chat request as an application sends it; a streamed one asks for usage too."""
    messages = [
        {"role": "system", "content": _RULES * 8},
        {"role": "user", "content": _PASSAGE * 12 + "Where does the ferry cross?"},
    ]
    body: dict[str, object] = {"model": model, "messages": messages, "temperature": 0.2, "max_tokens": 256}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return _compact(body)


def answer() -> bytes:
    """The whole HTTP response with a completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT, "refusal": None}, "logprobs": None, "finish_reason": "stop"}
    body = _compact(_head("chat.completion") | {"choices": [choice], "usage": _usage(412, 28)})
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def stream_pieces() -> list[bytes]:
    """The pieces of the HTTP response with a stream, one per event; the last ends the body too."""
    events = [_event({"delta": {"role": "assistant", "content": "The"}, "finish_reason": None})]
    events += [_event({"delta": {"content": f" word{number}"}, "finish_reason": None}) for number in range(EVENTS - 4)]
    events.append(_event({"delta": {}, "finish_reason": "stop"}))
    events.append(_compact(_head("chat.completion.chunk") | {"choices": [], "usage": _usage(412, EVENTS - 3)}))
    events.append(b"[DONE]")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [_chunk(b"data: " + event + b"\n\n") for event in events]
    return [head + chunks[0], *chunks[1:-1], chunks[-1] + b"0\r\n\r\n"]


def fault_in(answer: bytes, *, stream: bool) -> str | None:
    """What an answer lacks, whoever rewrote it on its way; None: nothing."""
    wanted = [b" word%d" % number for number in range(EVENTS - 4)] if stream else [TEXT.encode()]
    missing = [word for word in wanted if word not in answer] or ([b"[DONE]"] if stream and b"data: [DONE]" not in answer else [])
    return f"{'a stream' if stream else 'a completion'} without {missing[0].decode()!r}: {answer[:200]!r}" if missing else None


def write(folder: Path) -> tuple[Path, list[Path]]:
    """The answer and the pieces as files, for an upstream that only sends bytes."""
    files = [folder / "answer", *(folder / f"piece{number:02}" for number in range(EVENTS))]
    for file, content in zip(files, [answer(), *stream_pieces()], strict=True):
        file.write_bytes(content)
    return files[0], files[1:]


def _head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-0123456789abcdefghijklmn", "object": kind, "created": _CREATED, "model": MODEL, "system_fingerprint": "fp_0"}


def _usage(prompt: int, completion: int) -> dict[str, object]:
    details: dict[str, object] = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
    return details | {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _event(choice: dict[str, object]) -> bytes:
    return _compact(_head("chat.completion.chunk") | {"choices": [{"index": 0, "logprobs": None} | choice]})


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def _compact(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
