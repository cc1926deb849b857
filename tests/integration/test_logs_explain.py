"""`n4n logs explain` over what real processes left: log files of routers, rows in Postgres, spans at a receiver."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.answers import completion, error, garbled, hang_before_headers, partial, sse
from tests.support.call import Call, Reply
from tests.support.fleet import ADMIN_TOKEN, Fleet, Role, eventually, ready, running_fleet
from tests.support.house import bare_environ
from tests.support.otlp import Receiver, receiver
from tests.support.script import Rst, Sleep
from tests.support.upstream import running_upstream

TURNS = [{"role": "user", "content": "ping"}]
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
LABELS = ("first", "fell-back", "refused", "left", "cut", "once-1", "limited", "nobodys", "unknown-key", "lost", "twice-the-same",
          "in-line-0", "in-line-1")  # fmt: skip
PLAYED: Mapping[str, Reply] = {
    "overloaded": error(503), "garbled": garbled(), "cut": (*partial("one", "two", "three", "four"), Sleep(0.05), Rst()),
    "hang": hang_before_headers(),
}  # fmt: skip


def document(url: str) -> dict[str, object]:
    names = {"overloaded": "twice", "garbled": "twice", "good": "twice", "plain": "m", "line": "line", "cut": "cut", "hang": "hang"}
    prices = {name: {"input_per_1m": 1 + at, "output_per_1m": 10 + at} for at, name in enumerate(names)}
    return {
        "providers": {"p": {"dialect": "openai", "base_url": url, "allow_private": True}},
        "accounts": {
            name: {"provider": "p", "credential": "env:CANARY", **({"limits": {"rpm": 120, "burst": 1}} if name == "line" else {})}
            for name in names
        },
        "models": {
            "twice": {"strategy": "cost"}, "m": {}, "line": {}, "hang": {"retry": {"max_retries": 0}},
            "cut": {"retry": {"max_retries": 0}, "stream_guard": {"chunks": 1, "max_hold_ms": 1}},
        },
        "endpoints": {
            f"e-{name}": {"model": model, "account": name, "upstream_model": name, "price": prices[name]} for name, model in names.items()
        },
    }  # fmt: skip


def played(call: Call) -> Any:
    known = PLAYED.get(str(call.json["model"]))
    return known if known is not None else sse("po", "ng") if call.json.get("stream") else completion("pong")


@dataclass
class Left:
    """A fleet that went through it all, and goes on."""

    fleet: Fleet
    router: Role
    key: str
    received: Receiver
    logs: Path
    stories: dict[str, tuple[list[str], dict[str, Any]]] = field(default_factory=dict)

    def said(self, *asked: list[str]) -> list[tuple[int, str, str]]:
        """Status, output and errors of `n4n logs explain` with each of these arguments."""
        return self.fleet.tools(*(["logs", "explain", *one] for one in asked))

    def told(self, label: str) -> tuple[list[str], dict[str, Any]]:
        """Text and JSON of one request."""
        if not self.stories:
            asked = [[label, str(self.logs), *more] for label in LABELS for more in ((), ("-o", "json"))]
            said = self.said(*asked)
            assert all(code == 0 and not errors for code, _, errors in said), said
            self.stories |= {
                label: (text.splitlines(), json.loads(told))
                for label, (_, text, _), (_, told, _) in zip(LABELS, said[::2], said[1::2], strict=True)
            }
        return self.stories[label]


def ask(router: Role, key: str, label: str, path: str = CHAT, *, leave_after: float | None = None, **fields: object) -> int:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "x-request-id": label}
    named = {name[2:].replace("_", "-"): str(fields.pop(name)) for name in list(fields) if name.startswith("h_")}
    asks = {CHAT: {"messages": TURNS}, MESSAGES: {"messages": TURNS, "max_tokens": 9}, RESPONSES: {"input": "ping"}}
    connection = http.client.HTTPConnection("127.0.0.1", int(router.environ["N4N_PORT"]), timeout=leave_after or 20)
    connection.request("POST", path, json.dumps({"model": "m", **asks[path], **fields}), {**headers, **named})
    try:
        with connection.getresponse() as answer:
            answer.read()
            return answer.status
    except (TimeoutError, OSError):
        return 0
    finally:
        connection.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, module_postgres_url: str, redis_server: str) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("explained")
    with redis.Redis.from_url(redis_server) as client:
        client.flushdb()
    with receiver() as received, running_upstream() as upstream, running_fleet(folder, module_postgres_url) as fleet:
        upstream.script(then=played)
        fleet.control_plane(N4N_REDIS_URL=redis_server, N4N_ALERT_LOOK_SEC="0")
        router = fleet.data_plane("router", CANARY="sk-provider-canary", N4N_REDIS_URL=redis_server, **received.environ())
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(document(upstream.base_url))
        key, poor = fleet.create_key(), fleet.create_key("poor", "--rpm", "1", "--burst", "1")
        eventually(lambda: ready(router) and ask(router, key, "first") == 200 and ask(router, poor, "takes") == 200, "the router")
        assert ask(router, key, "fell-back", MESSAGES, model="twice", stream=True) == 200
        waiting = [threading.Thread(target=ask, args=(router, key, f"in-line-{at}"), kwargs={"model": "line"}) for at in range(2)]
        for thread in waiting:
            thread.start()
        assert ask(router, key, "refused", RESPONSES, **{"h_x-n4n-routing": "region=eu"}) == 400
        assert ask(router, key, "left", model="hang", leave_after=0.3) == 0
        assert ask(router, key, "cut", MESSAGES, model="cut", stream=True) == 200
        assert [ask(router, key, f"once-{at}", **{"h_idempotency-key": "k"}) for at in range(2)] == [200, 200]
        assert ask(router, poor, "limited") == 429
        assert ask(router, key, "nobodys", model="nobodys") == 404
        assert ask(router, key, "twice-the-same") == ask(router, key, "twice-the-same", MESSAGES) == 200
        assert ask(router, key, "no-key") == 200 and ask(router, key + "x", "unknown-key") == 401
        for thread in waiting:
            thread.join()
        calls = len(upstream.calls)
        lost = threading.Thread(target=ask, args=(router, key, "lost"), kwargs={"model": "hang"})
        lost.start()
        upstream.arrived(calls + 1)
        (worker,) = router.workers()
        os.kill(worker, signal.SIGKILL)
        lost.join()
        eventually(lambda: "unknown" in fleet.n4n("logs", "explain", "lost", check=False).stdout, "the row of the lost router")
        yield Left(fleet, router, key, received, router.output)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("first", ["answered 200 success", "1. e-plain ok after ", "ledger: ok, 11 tokens in, 7 out, "]),
        ("fell-back", ["twice for acme (key ", "1. e-overloaded overloaded after ",
                       "ledger: failed (overloaded), 0 tokens in, 0 out, 0 USD",
                       "2. e-garbled server_error after ", "3. e-good ok after ", "first token ", "account good"]),
        ("refused", ["answered 400 rejected (no_eligible_endpoint)", "directives: region=eu, selected: none", "ruled out: 1 by region=eu"]),
        ("left", ["answered 499 cancelled", "1. e-hang cancelled after ", "ledger: cancelled, ", "by our own count"]),
        ("cut", ["answered 200 error (stream_interrupted)", "1. e-cut server_error after ", "ledger: partial (server_error), "]),
        ("once-1", ["answered 200 success", "with the answer of an earlier request under the same idempotency-key"]),
        ("limited", ["limited: m for poor (key ", "answered 429 rate_limited (rate_limited)"]),
        ("nobodys", ["answered 404 rejected (model_not_found)"]),
        ("unknown-key", ["unknown-key: no model for nobody we know at ", "answered 401 rejected (invalid_api_key)"]),
        ("lost", ["lost: its log line was not found; what the ledger has:", "1. e-hang, ledger: unknown, ", "account hang"]),
    ],
)  # fmt: skip
def test_a_request_is_told_by_what_it_left(left: Left, label: str, says: list[str]) -> None:
    text, told = left.told(label)
    for words in says:
        assert any(words in line for line in text), f"{words!r} is not in\n" + "\n".join(text)
    assert (told["request_id"], told["earlier"], told["ledger_problem"]) == (label, [], None)
    line = told["log"]
    if line is None:
        assert [row["state"] for row in told["attempts"]] == ["unknown"]
        return
    assert f"  trace {line['trace_id']}" in text
    by_row = [(row["attempt_id"], row["endpoint"], row["account"]) for row in told["attempts"]]
    assert by_row == [(one["attempt_id"], one["endpoint"], one["account"]) for one in line["routing"]["attempts"]]
    eventually(lambda: any(span.trace_id == line["trace_id"] for span in left.received.spans), "the trace")
    (server,) = [span for span in left.received.spans if span.trace_id == line["trace_id"] and span.kind == "SERVER"]
    assert (server.attributes["n4n.request_id"], server.attributes["http.response.status_code"]) == (label, line["status"])
    assert server.resource["service.name"] == "n4n-data-plane"


def test_who_waited_in_line_is_told_how_long(left: Left) -> None:
    stories = [left.told(f"in-line-{at}") for at in range(2)]
    (text, told) = max(stories, key=lambda one: one[1]["log"]["queue_ms"])
    assert told["log"]["queue_ms"] > 100
    assert f"  first token {told['log']['ttft_ms']} ms, in the queue {told['log']['queue_ms']} ms" in text


def test_a_label_that_was_used_twice_has_both_stories(left: Left) -> None:
    text, told = left.told("twice-the-same")
    assert sum(line.startswith("twice-the-same: m for acme") for line in text) == 2
    assert (len(told["earlier"]), len(told["attempts"])) == (1, 2)
    assert not any("ledger alone" in line or "no row yet" in line for line in text)


def test_logs_may_be_several_packed_piped_and_behind_a_prefix(left: Left, tmp_path: Path) -> None:
    lines = left.logs.read_text().splitlines(keepends=True)
    old, new, packed, prefixed = (tmp_path / name for name in ("old.log", "new.log", "all.log.1.gz", "compose.log"))
    old.write_text("".join(lines[:2]))
    new.write_text("n4n up says something\n" + "".join(lines[2:]))
    packed.write_bytes(gzip.compress("".join(lines).encode()))
    wrapped = [json.dumps({"log": line, "stream": "stdout", "time": "2026"}) + "\n" for line in lines[:3]]
    prefixed.write_text("".join(wrapped) + "".join(f"router-1  | {line}" for line in lines[3:]))
    (_, wanted, _), *same = left.said(*(["refused", *map(str, files)] for files in ([left.logs], [old, new], [packed], [prefixed])))
    assert "ruled out" in wanted
    assert same == [(0, wanted, "")] * 3
    environ = {**bare_environ(), "N4N_ADMIN_URL": left.fleet.admin_url, "N4N_ADMIN_TOKEN": ADMIN_TOKEN, "N4N_DATA_DIR": "nowhere"}
    command = [sys.executable, "-m", "n4n", "logs", "explain", "refused", "-"]
    for content in (left.logs.read_bytes(), packed.read_bytes()):
        done = subprocess.run(command, input=content, capture_output=True, env=environ, timeout=30, cwd=tmp_path)
        assert done.stdout.decode() == wanted, done.stderr


def test_what_cannot_be_told_says_why_and_where_to_look(left: Left, tmp_path: Path) -> None:
    log, empty, torn, foreign = left.logs, tmp_path / "empty.log", tmp_path / "torn.gz", tmp_path / "a.zst"
    empty.write_text("nothing of ours\n")
    torn.write_bytes(gzip.compress(log.read_bytes())[:-20])
    foreign.write_bytes(b"\x28\xb5\x2f\xfd....")
    seen = len(log.read_text().splitlines())
    wrong = (
        (["req_nobody", str(log)], f"among {seen} requests of these logs (20"),
        (["req_nobody", str(empty)], f"no request log is in {empty}"),
        (["req_nobody"], "give its files"),
        (["refused"], "a request that was refused is in the request log alone: give its files"),
        (["refused", "gone.log"], "gone.log: cannot be read (no such file or directory)"),
        (["refused", str(tmp_path)], "cannot be read (is a directory)"),
        (["refused", str(torn)], f"{torn}: is not whole"),
        (["refused", str(foreign)], f"zstdcat {foreign} | n4n logs explain REQUEST_ID -"),
    )
    for (arguments, says), (code, out, errors) in zip(wrong, left.said(*(arguments for arguments, _ in wrong)), strict=True):
        assert (code, out) == (1, ""), arguments
        (line,) = errors.splitlines()
        assert says in line, line


def test_the_log_alone_is_told_where_no_control_plane_is(left: Left, tmp_path: Path) -> None:
    environ = {**bare_environ(), "N4N_ADMIN_URL": "127.0.0.1:1", "N4N_ADMIN_TOKEN": "x", "N4N_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "n4n", "logs", "explain", "fell-back", str(left.logs)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3. e-good ok after " in done.stdout and "ledger:" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("n4n: the ledger could not be asked, so this is what the log says: ")
    assert time.monotonic() - began < 30
