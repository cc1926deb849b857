"""Providers that say back all they were sent, in every dialect's words, asked on every skin: none of it goes where it does not belong."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from n4n.runtime.logs import TALKATIVE, JsonLines
from n4n.runtime.tracing import tracing_of
from tests.support import answers
from tests.support.call import Call
from tests.support.matrix.provider import page
from tests.support.otlp import receiver
from tests.support.router import KEY, SECRET, running_router
from tests.support.script import Answer, Headers, Raw, Rst, Sleep, Status, Whole
from tests.support.sinks import BODIES
from tests.support.upstream import ScriptedUpstream

PROMPT, ANSWER = "canary-prompt-" + secrets.token_hex(8), "canary-answer-" + secrets.token_hex(8)
ODD_KEY = "Zq7!kan@rie~" + secrets.token_hex(4)  # a credential that looks like none, so that no pattern knows it
HOST = "llm.canary-provider.internal"
TOLD = f"You sent {ODD_KEY} with the prompt {PROMPT} to https://{HOST}/v1/x?key={ODD_KEY}; key={ODD_KEY}"
ROOTS = {"gemini": "/v1beta", "vertex": "/v1/projects/p/locations/global", "anthropic": "", "bedrock": ""}
MODELS = {"gemini": "gemini-2.5-flash", "vertex": "gemini-2.5-flash", "bedrock": "amazon.nova-pro-v1:0", "anthropic": "claude-sonnet-4-6"}
DIALECTS = ("openai", "azure", "openai_responses", "anthropic", "gemini", "vertex", "bedrock")
# By the class it is of: status, OpenAI's code and type, Anthropic's type, Google's word, Amazon's name.
ERRORS: Mapping[str, tuple[int, str, str, str, str]] = {
    "bad": (400, "invalid_value", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException"),
    "policy": (400, "content_filter", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException"),
    "context": (400, "context_length_exceeded", "request_too_large", "INVALID_ARGUMENT", "ValidationException"),
    "auth": (401, "invalid_api_key", "authentication_error", "UNAUTHENTICATED", "UnrecognizedClientException"),
    "gone": (404, "model_not_found", "not_found_error", "NOT_FOUND", "ResourceNotFoundException"),
    "limited": (429, "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException"),
    "failed": (500, "server_error", "api_error", "INTERNAL", "InternalServerException"),
    "odd": (500, ODD_KEY, ODD_KEY, ODD_KEY, ODD_KEY),  # the code itself is what nobody should see
}
OTHERS: Mapping[str, Answer] = {
    "page": (Status(502), Headers((("content-type", "text/html"),)), Whole(f"<html>{TOLD}</html>".encode())),
    "text": (Status(400), Headers((("content-type", "text/plain"),)), Whole(TOLD.encode())),
    "redirect": (Status(307), Headers((("location", f"https://{HOST}/{ODD_KEY}"),)), Whole(TOLD.encode())),
    "garbled": (answers.JSON, Whole(f'{{"a": "{ANSWER} {TOLD}'.encode())),
    "strange": (answers.JSON, Whole(json.dumps({"said": [ANSWER, TOLD]}).encode())),
    "inside": page(200, {"error": {"message": TOLD, "code": "server_error", "type": TOLD}}),
    "torn": (answers.EVENTS, Raw(f"data: {{{ANSWER} {TOLD}\n\n".encode()), Rst()),
    "event": (*answers.partial(ANSWER, "two", "three"), Sleep(0.01), answers.error_event("server_error", message=TOLD)),
    "cut": (*answers.partial(ANSWER, "two", "three"), Sleep(0.01), Rst()),
}  # fmt: skip
KINDS = (*ERRORS, *OTHERS)


def refusal(dialect: str, kind: str) -> Answer:
    """An error in a dialect's own shape."""
    status, code, theirs, word, name = ERRORS[kind]
    match dialect:
        case "anthropic":
            return page(status, {"type": "error", "error": {"type": theirs, "message": TOLD}, "request_id": "req_1"})
        case "gemini" | "vertex":
            details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": ODD_KEY, "domain": HOST}]
            return page(status, {"error": {"code": status, "status": word, "message": TOLD, "details": details}})
        case "bedrock":
            return page(status, {"message": TOLD}, headers={"x-amzn-errortype": f"{name}:https://{HOST}/"})
    return page(status, {"error": {"message": TOLD, "type": theirs, "param": ODD_KEY, "code": code}})


def document(url: str) -> dict[str, object]:
    """A model for each dialect and fault, each through an account of its own."""
    names = [f"{dialect}.{kind}" for dialect in DIALECTS for kind in KINDS]
    root = url.removesuffix("/v1")
    return {
        "providers": {
            name: {"dialect": name, "base_url": root + ROOTS.get(name, "/v1"), "allow_private": True}
            for name in DIALECTS
        },
        "accounts": {name: {"provider": name.partition(".")[0], "credential": "env:CANARY"} for name in names},
        "models": {
            name: {"retry": {"max_retries": 0}, "stream_guard": {"chunks": 1, "max_hold_ms": 1}} for name in names
        },
        "endpoints": {
            f"e-{name}": {"model": name, "account": name, "upstream_model": MODELS.get(name.partition(".")[0], "theirs") + f"?{name}"}
            for name in names
        },
    }  # fmt: skip


class Lines(logging.Handler):
    """What the process says at debug, as it is written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines("data-plane"))
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))


@dataclass
class Left:
    """What was left behind: `answered` by skin, dialect and fault, every other sink as text."""

    answered: dict[str, str] = field(default_factory=dict)
    sinks: dict[str, str] = field(default_factory=dict)
    outcomes: set[str] = field(default_factory=set)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left() -> AsyncIterator[Left]:
    found, lines, root = Left(), Lines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    quiet = {name: logging.getLogger(name).level for name in TALKATIVE}
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with pytest.MonkeyPatch.context() as patched, receiver() as received:
            patched.setattr("tests.support.router.PROVIDER_SECRET", ODD_KEY)
            for name, value in received.environ().items():
                patched.setenv(name, value)
            tracing = tracing_of(received.environ(), "data-plane", "r1")
            assert tracing is not None
            await _gone_through(found, tracing)
            await asyncio.to_thread(tracing.close)
            found.sinks["traces"] = received.raw.decode("latin-1")
    finally:
        root.removeHandler(lines)
        root.setLevel(level)
        for name, before in quiet.items():
            logging.getLogger(name).setLevel(before)
    found.sinks["process log"] = "\n".join(lines.told)
    yield found


async def _gone_through(found: Left, tracing: Any) -> None:
    kind_of: dict[str, str] = {}

    def played(call: Call) -> Answer:
        (name,) = [name for name in kind_of if name.encode() in call.body or name in call.path]
        dialect, _, kind = name.partition(".")
        return refusal(dialect, kind) if kind in ERRORS else OTHERS[kind]

    async with ScriptedUpstream() as upstream:
        upstream.script(then=played)
        made = document(upstream.base_url)
        kind_of |= dict.fromkeys(made["models"], "")  # type: ignore[call-overload]
        async with running_router(made, tracing=tracing) as house:
            for name in made["models"]:  # type: ignore[attr-defined]
                for at, path in enumerate(BODIES):
                    await _asked(house, found, f"{path} {name}", path, name, stream=at % 2 == 0 or name.endswith(("event", "cut", "torn")))
            count = len(found.answered)
            logged = await house.logged(count)
            found.outcomes = {one["outcome"] for line in logged for one in line["routing"]["attempts"]}  # type: ignore[index, union-attr]
            found.sinks["request log"] = json.dumps(logged)
            async with house.http.get(f"http://127.0.0.1:{house.port}/metrics") as answer:
                found.sinks["metrics"] = await answer.text()
            found.sinks["/ready"] = str(upstream.port)


async def _asked(house: Any, found: Left, label: str, path: str, model: str, *, stream: bool) -> None:
    house.router.health.__init__(house.router.clock, lambda: 0.5)
    body = json.dumps({**BODIES[path], "model": model, "stream": stream}).replace("ping", PROMPT)
    url = f"http://127.0.0.1:{house.port}{path}"
    async with house.http.post(url, data=body, headers={**house.headers(), "content-type": "application/json"}) as answer:
        found.answered[label] = f"{answer.status} {answer.headers}\n{await answer.text()}"


def test_every_class_of_failure_was_met(left: Left) -> None:
    wanted = {"bad_request", "content_policy", "context_length", "auth", "model_not_found", "rate_limited", "server_error"}
    assert wanted <= left.outcomes
    assert len(left.answered) == len(DIALECTS) * len(KINDS) * len(BODIES)
    assert any("stream_interrupted" in text for text in left.answered.values())


def test_no_client_is_told_the_providers_key_or_address(left: Left) -> None:
    shown = [(label, secret, text) for label, text in left.answered.items() for secret in (ODD_KEY, HOST, KEY, SECRET) if secret in text]
    assert shown == []


def test_prompts_and_answers_of_failures_are_the_clients_alone(left: Left) -> None:
    for sink, text in left.sinks.items():
        for canary in (PROMPT, ANSWER, ODD_KEY, HOST, KEY, SECRET):
            at = text.find(canary)
            assert at < 0, f"{canary} in {sink}: {text[max(0, at - 200) : at + 60]}"
    assert len(left.sinks["request log"]) > 10_000 and len(left.sinks["traces"]) > 10_000
