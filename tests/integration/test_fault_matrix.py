"""Every fault × stream or not × chunk k × guard × one or three candidates: one call per attempt, nothing duplicated or lost.

The cells are made from tables and share one router and one upstream: each has a model of its own, whose endpoints call the
upstream under a path of their own, so that a cell knows its calls and no cell's health touches another's. What must happen is
worked out by `expected` from the rules alone.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest

from n4n.core.errors import FailureClass
from tests.support import answers
from tests.support.answers import DONE, completion, delta, error_event, sse
from tests.support.call import Call
from tests.support.provider_errors import ERRORS
from tests.support.router import PROVIDER_SECRET, RunningRouter, running_router
from tests.support.script import Answer, Chunk, Fin, Hang, Headers, Raw, Rst, Whole, event
from tests.support.upstream import ScriptedUpstream

RATE, QUOTA, OVERLOADED, TIMEOUT, SERVER = (
    FailureClass.RATE_LIMITED, FailureClass.QUOTA_EXHAUSTED, FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR,
)  # fmt: skip
AUTH, GONE, CONTEXT, POLICY, BAD = (
    FailureClass.AUTH, FailureClass.MODEL_NOT_FOUND, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY, FailureClass.BAD_REQUEST,
)  # fmt: skip
GOOD, PIECES = "from the other", tuple(f"p{at} " for at in range(8))
AT_ONCE = 40  # cells in flight: more would make timeouts of a busy machine
ATTEMPTS = 3  # the cap of every cell's model
ALONE_MS = 1000  # the caller's deadline where the one candidate limits: shorter than its cooldown, which would be waited for
CORRUPT = Raw(b'data: {"id":"x","choices":[{"index":0,"del\n\n')
HALF_A_CHARACTER = Raw(b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"\xe2\x82"}}]}\n\n')

# What each fault is of, wherever it happens.
INSIDE: Mapping[str, tuple[Answer, FailureClass]] = {
    "hang": ((Hang(),), TIMEOUT),
    "reset": ((Rst(),), SERVER),
    "cut": ((Fin(),), SERVER),
    "silent end": ((), SERVER),
    "done without a finish": ((DONE,), SERVER),
    "corrupt": ((CORRUPT,), SERVER),
    "half a character": ((HALF_A_CHARACTER, Hang()), SERVER),
    "rate limit event": ((error_event("rate_limit_exceeded"),), RATE),
    "quota event": ((error_event("insufficient_quota"), DONE), QUOTA),
    "overloaded event": ((error_event("x", type="overloaded_error"), Hang()), OVERLOADED),
    "server error event": ((error_event("server_error"),), SERVER),
    "finish that is none": ((delta({}, finish="error"), DONE), SERVER),
}
BEFORE: Mapping[str, tuple[Answer, FailureClass]] = {
    "reset": (answers.reset(), SERVER),
    "hung up": (answers.hung_up(), SERVER),
    "hang before headers": (answers.hang_before_headers(), TIMEOUT),
    "page": (answers.html(200), SERVER),
    "empty": (answers.nothing(), SERVER),
    "truncated JSON": (answers.garbled(), SERVER),
    "error inside 200": ((answers.JSON, Whole(b'{"error":{"message":"x","code":"insufficient_quota"}}')), QUOTA),
    "no completion": ((answers.JSON, Whole(b'{"hello":"world"}')), SERVER),
    "unfinished body": ((answers.JSON, Headers((("content-length", "500"),)), Raw(b'{"id":'), Fin()), SERVER),
} | {f"{row.status}: {row.name}": (row.answer, row.means) for row in ERRORS}
REFUSED = "connection refused"
TOLD: Mapping[FailureClass, tuple[int, str]] = {  # what a client is told where a class is all there was
    RATE: (429, "rate_limited"), QUOTA: (503, "quota_exhausted"), OVERLOADED: (503, "overloaded"), TIMEOUT: (504, "timeout"),
    SERVER: (502, "server_error"), AUTH: (502, "upstream_denied"), GONE: (404, "model_not_found"),
    CONTEXT: (400, "context_length_exceeded"), POLICY: (400, "content_filter"), BAD: (400, "invalid_request"),
}  # fmt: skip
ENDS, REPEATS = {BAD, POLICY, CONTEXT}, {SERVER, OVERLOADED}


@dataclass(frozen=True)
class Cell:
    """One request against one fault. `at`: content chunks before it, None where it comes before any."""

    fault: str
    answer: Answer
    means: FailureClass | None  # None: no fault
    stream: bool
    candidates: int
    guard: int = 3
    at: int | None = None
    together: bool = False  # the chunks come in one read
    refused: bool = False
    name: str = field(default="", compare=False)

    @property
    def script(self) -> Answer:
        """The faulty endpoint's answer."""
        if self.at is None:
            return self.answer
        begun = answers.partial(*PIECES[: self.at])
        return _joined(begun, self.answer) if self.together else (*begun, *self.answer)


def _joined(begun: Answer, rest: Answer) -> Answer:
    """All events in one write, the events of the fault included."""
    steps = (*begun, *rest)
    events = b"".join(event(step.json) if isinstance(step, Chunk) else step.content for step in steps if isinstance(step, Chunk | Raw))
    return (answers.EVENTS, Raw(events), *(step for step in steps if isinstance(step, Hang | Rst | Fin)))


@dataclass(frozen=True)
class Expected:
    """What a client and the endpoints must have seen."""

    status: int
    text: str = ""
    code: str | None = None  # of the error, in the body or in the last event
    classes: tuple[str, ...] = ()  # of the failed attempts
    calls: tuple[int, ...] = ()


def expected(cell: Cell) -> Expected:
    """The rules, in words of their own."""
    calls = [0] * cell.candidates
    if cell.means is None:
        calls[0] = 1
        return Expected(200, "".join(PIECES[: cell.at]), calls=tuple(calls))
    released = cell.at is not None and cell.at >= cell.guard
    if released:  # the client has seen output: no other attempt
        calls[0] = 1
        return Expected(200, "".join(PIECES[: cell.at]), "stream_interrupted", (cell.means,), tuple(calls))
    if cell.candidates > 1 and cell.means not in ENDS:
        calls[:2] = [1, 1]
        return Expected(200, GOOD, None, (), _dialled(cell, calls))
    calls[0] = _tries(cell)
    status, code = TOLD[cell.means]
    if cell.means is BAD and cell.fault.startswith("413"):
        status, code = 413, "request_too_large"
    return Expected(status, "", code, (cell.means,) * calls[0], _dialled(cell, calls))


def _tries(cell: Cell) -> int:
    """A lone endpoint is asked again only where that is no second bill and no patience is asked for."""
    return ATTEMPTS if cell.means in REPEATS else 1


def _dialled(cell: Cell, calls: Sequence[int]) -> tuple[int, ...]:
    return (0, *calls[1:]) if cell.refused else tuple(calls)


# The cells.


def cells_inside(fault: str) -> list[Cell]:
    """A stream that fails after k chunks."""
    answer, means = INSIDE[fault]
    return [
        Cell(fault, answer, means, True, candidates, guard, at, together)
        for at in range(7)
        for guard in (0, 1, 3, 6)
        for candidates in (1, 3)
        for together in (False, True)
        if not (together and fault in ("reset", "cut", "silent end") and at > 4)  # nothing new, and time is dear
    ]


def cells_before() -> list[Cell]:
    """An answer that is none, for a stream and for a whole answer."""
    made = [
        Cell(fault, answer, means, stream, candidates)
        for fault, (answer, means) in BEFORE.items()
        for stream in (False, True)
        for candidates in (1, 3)
    ]
    return made + [Cell(REFUSED, (), SERVER, stream, candidates, refused=True) for stream in (False, True) for candidates in (1, 3)]


def cells_good() -> list[Cell]:
    """Streams of every length against every guard."""
    return [
        Cell("none", (delta({}, finish="stop"), *ending), None, True, candidates, guard, at, together)
        for at in range(7)
        for guard in (0, 1, 3, 6)
        for candidates in (1, 3)
        for together in (False, True)
        for ending in ((DONE,), (), (answers.usage_chunk(), DONE))
    ]


# Running them.


@asynccontextmanager
async def matrix(cells: Sequence[Cell]) -> AsyncIterator[tuple[RunningRouter, ScriptedUpstream]]:
    """A router and an upstream that know every cell."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=_answering({f"/{cell.name}/e1": cell for cell in cells}))
        async with running_router(_document(cells, upstream)) as house:
            yield house, upstream


def _answering(faulty: Mapping[str, Cell]) -> Callable[[Call], Answer]:
    def answer(call: Call) -> Answer:
        cell = faulty.get(call.path.removesuffix("/chat/completions"))
        if cell is not None:
            return cell.script
        return sse(GOOD) if call.json.get("stream") is True else completion(GOOD)

    return answer


def _closed_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])


def _document(cells: Sequence[Cell], upstream: ScriptedUpstream) -> dict[str, object]:
    root, nobody = f"http://127.0.0.1:{upstream.port}", f"http://127.0.0.1:{_closed_port()}"
    providers, accounts, models, endpoints = {}, {}, {}, {}
    for cell in cells:
        models[cell.name] = {
            "strategy": "cost",
            "retry": {"max_retries": ATTEMPTS - 1, "backoff_ms": 1},
            "stream_guard": {"chunks": cell.guard, "max_hold_ms": 5000},
            "timeouts": {"connect_ms": 1000, "first_token_ms": 1500, "idle_ms": 1500, "total_ms": 20_000},
        }
        for at in range(1, cell.candidates + 1):
            name = f"{cell.name}-e{at}"
            base = nobody if cell.refused and at == 1 else root
            providers[name] = {"dialect": "openai", "base_url": f"{base}/{cell.name}/e{at}", "allow_private": True}
            accounts[name] = {"provider": name, "credential": "env:CANARY"}
            endpoints[f"{name}-x"] = {"model": cell.name, "account": name, "price": {"input_per_1m": at, "output_per_1m": at}}
    return {"providers": providers, "accounts": accounts, "models": models, "endpoints": endpoints}


async def _check(cell: Cell, house: RunningRouter, upstream: ScriptedUpstream) -> None:
    headers = {"x-n4n-timeout-ms": str(ALONE_MS)} if cell.candidates == 1 and cell.means is RATE else {}
    async with house.chat(model=cell.name, stream=cell.stream, headers=headers) as answer:
        text = await answer.text()
    paths = [call.path.removesuffix("/chat/completions") for call in upstream.calls if call.path.startswith(f"/{cell.name}/")]
    calls = tuple(paths.count(f"/{cell.name}/e{at}") for at in range(1, cell.candidates + 1))
    seen = _seen(cell, answer, text, calls)
    assert seen == expected(cell), f"{cell}\n{text[:600]}"
    assert PROVIDER_SECRET not in text and f":{upstream.port}" not in text and "http://" not in text


def _seen(cell: Cell, answer: aiohttp.ClientResponse, text: str, calls: tuple[int, ...]) -> Expected:
    if answer.status != 200:
        told = json.loads(text)["error"]
        assert ("retry-after" in answer.headers) == (answer.status in (429, 503))
        assert (answer.headers.get("x-should-retry") == "false") == (
            answer.status < 429 or told["code"] in ("quota_exhausted", "upstream_denied")
        )
        return Expected(answer.status, "", told["code"], tuple(one["class"] for one in told["n4n"]["attempts"]), calls)
    if not cell.stream:
        return Expected(200, json.loads(text)["choices"][0]["message"]["content"], calls=calls)
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    done = lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in (lines[:-1] if done else lines)]
    error = None if done else chunks.pop()
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    finishes = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    if error is None:
        assert finishes == ["stop"] and "n4n" in chunks[-1] and not any(chunk.get("usage") for chunk in chunks)
        return Expected(200, said, calls=calls)
    assert finishes == [] and error["choices"] == [{"index": 0, "delta": {}, "finish_reason": "error"}]
    return Expected(200, said, error["error"]["code"], tuple(one["class"] for one in error["error"]["n4n"]["attempts"]), calls)


async def _run(cells: Sequence[Cell]) -> None:
    named = [replace(cell, name=f"m{at}") for at, cell in enumerate(cells)]
    gate = asyncio.Semaphore(AT_ONCE)

    async with matrix(named) as (house, upstream):

        async def one(cell: Cell) -> str | None:
            async with gate:
                try:
                    await _check(cell, house, upstream)
                except AssertionError as wrong:
                    return str(wrong)
            return None

        wrong = [told for told in await asyncio.gather(*map(one, named)) if told is not None]
        assert not wrong, f"{len(wrong)} of {len(cells)} cells:\n" + "\n\n".join(wrong[:5])
        lines = await house.logged(len(cells))
    attempts = [attempt["attempt_id"] for line in lines for attempt in line["routing"]["attempts"]]
    refused = sum(expected(cell).classes.count(SERVER) or 1 for cell in named if cell.refused)
    assert len(attempts) == len(set(attempts)) == len(upstream.calls) + refused, "every dispatch is one call and one record"
    assert [line["model"] for line in lines if line["outcome"] == "cancelled"] == []


@pytest.mark.parametrize("fault", INSIDE)
async def test_a_stream_that_fails_at_chunk_k_is_replaced_before_release_and_broken_off_after_it(fault: str) -> None:
    await _run(cells_inside(fault))


async def test_an_answer_that_is_none_is_followed_by_the_right_step() -> None:
    await _run(cells_before())


async def test_a_good_stream_arrives_whole_whatever_its_length_and_the_guard() -> None:
    await _run(cells_good())
