"""One real request for `n4n bench`, pinned to an endpoint, read as it streams."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 120.0
PROMPT = "Count from one to one hundred in words, separated by commas."


@dataclass(frozen=True, slots=True)
class Call:
    """What one request took, in seconds; None: not measured. `error`: why it did not end well, in a word."""

    ttft_s: float | None = None
    tokens_per_s: float | None = None
    error: str | None = None


def measure(base_url: str, key: str, model: str, endpoint: str, max_tokens: int) -> Call:
    """Sends one chat to one endpoint, without fallback, and reads it to its end."""
    place = urlsplit(base_url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname or "", place.port, timeout=TIMEOUT_S)
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "stream": True, "max_tokens": max_tokens}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "x-n4n-routing": f"require={endpoint},max_attempts=1"}
    begun = time.perf_counter()
    try:
        connection.request("POST", place.path.rstrip("/") + "/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            return Call(error=_code(response.read()) or f"status {response.status}")
        return _read(response, begun)
    except (OSError, http.client.HTTPException) as error:
        return Call(error=type(error).__name__)
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, begun: float) -> Call:
    first: float | None = None
    last, tokens = begun, 0
    for line in response:
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            continue
        chunk = json.loads(line[5:])
        if "error" in chunk:
            return Call(error=str(chunk["error"].get("code") or "stream_interrupted"))
        if _has_output(chunk):
            last = time.perf_counter()
            first = last if first is None else first
        usage = (chunk.get("n4n") or {}).get("usage") or {}
        tokens = int(usage.get("completion_tokens", tokens))
    if first is None:
        return Call(error="no output")
    return Call(first - begun, tokens / (last - first) if tokens > 1 and last > first else None)


def _has_output(chunk: Mapping[str, object]) -> bool:
    choices = chunk.get("choices")
    deltas = [choice.get("delta") or {} for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    return any(delta.get(name) for delta in deltas for name in ("content", "reasoning_content", "reasoning", "tool_calls", "refusal"))


def _code(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None
