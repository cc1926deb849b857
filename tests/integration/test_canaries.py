"""Keys, prompts, answers and provider addresses, made recognisable and then looked for in everything that a fleet leaves behind."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.support import answers
from tests.support.answers import completion, error, fails_after, partial, sse
from tests.support.call import Call, Reply
from tests.support.fleet import ADMIN_TOKEN, NODE_TOKEN, Fleet, Role, eventually, ready, running_fleet
from tests.support.house import command_line, descendants
from tests.support.otlp import Receiver, receiver
from tests.support.script import Headers, Rst, Status, Whole
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream

PROMPT, ANSWER = "canary-prompt-" + secrets.token_hex(8), "canary-answer-" + secrets.token_hex(8)
PROVIDER_KEY, FILE_KEY = "sk-canary-" + secrets.token_hex(12), "sk-canary-file-" + secrets.token_hex(12)
METRICS_TOO = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
COOKIE = "canary-cookie-" + secrets.token_hex(8)
LONG = (f"{ANSWER} one ", "two ", "three ", "four ")


def faults(prompt: str) -> dict[str, Reply]:
    """What a provider does, by model. It says back all that it was sent, `prompt` too."""
    telltale = f"Incorrect API key provided: {PROVIDER_KEY} {FILE_KEY}. You asked: {prompt}"

    def telling(status: int, code: str, kind: str = "api_error") -> Reply:
        return error(status, code=code, type=kind, message=telltale, headers={"set-cookie": COOKIE, "x-echo": PROVIDER_KEY})

    return {
        "good": lambda call: sse(*LONG) if call.json.get("stream") else completion(ANSWER),
        "uncounted": lambda call: sse(*LONG, usage=None) if call.json.get("stream") else completion(ANSWER, usage=None),
        "bad-request": telling(400, "invalid_value", "invalid_request_error"),
        "context": telling(400, "context_length_exceeded", "invalid_request_error"),
        "policy": telling(400, "content_filter", "invalid_request_error"),
        "auth": telling(401, "invalid_api_key"),
        "denied": telling(403, "forbidden"),
        "gone": telling(404, "model_not_found"),
        "limited": telling(429, "rate_limit_exceeded"),
        "quota": telling(429, "insufficient_quota"),
        "server": telling(500, "server_error"),
        "overloaded": telling(503, "overloaded"),
        "page": (Status(502), Headers((("content-type", "text/html"),)), Whole(f"<html>{telltale}</html>".encode())),
        "redirect": (Status(302), Headers((("location", f"http://127.0.0.1/{PROVIDER_KEY}"),)), Whole(telltale.encode())),
        "garbled": (answers.JSON, Whole(f'{{"choices": [{{"message": {{"content": "{ANSWER} {prompt}'.encode())),
        "error-in-200": (answers.JSON, Whole(json.dumps({"error": {"message": telltale, "code": "server_error"}}).encode())),
        "empty": answers.nothing(),
        "reset": answers.reset(),
        "cut-early": (*partial(ANSWER), Rst()),
        "cut-late": (*partial(*LONG), Rst()),
        "silent-end": answers.silent_end(*LONG),
        "error-event": fails_after(*LONG, code="server_error", type=telltale),
        "corrupt": (*partial(*LONG), answers.Raw(f"data: {{{telltale}\n\n".encode())),
        "hang": answers.hang_after(*LONG),
    }


FAULTS, PROBED = faults(PROMPT), faults("ping")


def document(upstream: HostedUpstream, key_file: Path) -> dict[str, object]:
    """One model for each fault, each through an account of its own, so that none cools another."""
    times = {"connect_ms": 500, "first_token_ms": 400, "idle_ms": 400, "total_ms": 3000}
    return {
        "providers": {"canary": {"dialect": "openai", "base_url": upstream.base_url, "allow_private": True}},
        "accounts": {
            name: {"provider": "canary", "credential": f"file:{key_file}" if at % 2 else "env:N4N_KEY_CANARY"}
            for at, name in enumerate(FAULTS)
        },
        "models": {
            name: {"timeouts": times, "retry": {"max_retries": 1, "backoff_ms": 1}, "probe": {"interval_sec": 2, "timeout_ms": 400}}
            for name in FAULTS
        },
        "endpoints": {f"e-{name}": {"model": name, "account": name, "upstream_model": name} for name in FAULTS},
    }


@dataclass
class Left:
    """What a fleet left behind: text by where it was found. `told`: what clients were answered, heads and bodies; `traced`: all of OTLP."""

    key: str
    upstream_port: int
    found: dict[str, str]
    told: list[str]
    calls: tuple[Call, ...]
    traced: Receiver
    stores: tuple[str, ...]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, module_postgres_url: str, redis_server: str) -> Iterator[Left]:
    """A fleet that has been through everything, and was stopped."""
    folder, apart = tmp_path_factory.mktemp("fleet"), tmp_path_factory.mktemp("apart")
    key_file = apart / "key"
    key_file.write_text(FILE_KEY + "\n")
    with running_upstream() as upstream, receiver() as traced, running_fleet(folder, module_postgres_url) as fleet:
        upstream.script(then=lambda call: _played((FAULTS if PROMPT.encode() in call.body else PROBED)[str(call.json["model"])], call))
        fleet.control_plane(**traced.environ(), **METRICS_TOO)
        router = fleet.data_plane("router", N4N_KEY_CANARY=PROVIDER_KEY, N4N_DRAIN_SEC="5", **traced.environ(), **METRICS_TOO)
        eventually(lambda: _answers(fleet), "the control plane")
        fleet.apply(document(upstream, key_file))
        _apply_nonsense(fleet, apart / "nonsense.json")
        fleet.prober("prober", redis_server, N4N_KEY_CANARY=PROVIDER_KEY, **traced.environ(), **METRICS_TOO)
        key = fleet.create_key()
        eventually(lambda: ready(router) and _asked(router, key, "good", stream=False)[0] == 200, "the key at the router")
        told = [_asked(router, key, name, stream=stream)[1] for name in FAULTS for stream in (False, True)]
        told += _odd_requests(router, key)
        found = {"/metrics": _get(router, "/metrics"), "/ready": _get(router, "/ready")}
        pids = [pid for role in fleet.roles if role.process for pid in (role.process.pid, *descendants(role.process.pid))]
        found["command lines"] = "\n".join(command_line(pid) for pid in pids)
        found["command line tools"] = "\n".join(_tool(fleet, line) for line in ("nodes", "key list", "catalog show", "catalog history"))
        assert "error" in found["/metrics"]
        eventually(lambda: len(router.output.read_text().splitlines()) >= len(told), "the log")
        eventually(lambda: _probed(traced) >= set(FAULTS), "a probe of every fault")
        for role in reversed(fleet.roles):
            role.stop()
        for path in folder.rglob("*"):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes().decode("latin-1")
        found |= dict(_tables(module_postgres_url))
        assert {one.resource["service.name"] for one in traced.metrics} == {"n4n-control-plane", "n4n-data-plane", "n4n-prober"}
        found["traces"] = traced.raw.decode("latin-1")
        port = int(upstream.base_url.split(":")[2].split("/")[0])
        yield Left(key, port, found, told, upstream.calls, traced, (module_postgres_url, redis_server))


def _apply_nonsense(fleet: Fleet, path: Path) -> None:
    """A catalog that is refused, whose names and values are what belongs nowhere."""
    path.write_text(json.dumps({"providers": {PROMPT: {"dialect": PROVIDER_KEY}}, PROMPT: {}}))
    assert fleet.n4n("catalog", "apply", "-f", str(path), "--author", PROMPT, check=False).returncode == 1


def _probed(traced: Receiver) -> set[str]:
    return {str(span.attributes["n4n.endpoint"]).removeprefix("e-") for span in tuple(traced.spans) if span.name == "n4n probe"}


def _played(reply: Reply, call: Call) -> answers.Answer:
    return reply(call) if callable(reply) else reply


def _answers(fleet: Fleet) -> bool:
    return fleet.n4n("nodes", check=False).returncode == 0


def _tool(fleet: Fleet, line: str) -> str:
    done = fleet.n4n(*line.split(), check=False)
    return done.stdout + done.stderr


def _get(role: Role, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", int(role.environ["N4N_PORT"]), timeout=10)
    connection.request("GET", path)
    with connection.getresponse() as answer:
        text = answer.read().decode()
    connection.close()
    return text


def _asked(role: Role, key: str, model: str, *, stream: bool) -> tuple[int, str]:
    body = {"model": model, "stream": stream, "user": PROMPT, "messages": [{"role": "user", "content": PROMPT}]}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "cookie": COOKIE, "x-secret": PROMPT}
    connection = http.client.HTTPConnection("127.0.0.1", int(role.environ["N4N_PORT"]), timeout=10)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    with connection.getresponse() as answer:
        text = f"{answer.headers}\n{answer.read().decode()}"
    connection.close()
    return answer.status, text


def _odd_requests(role: Role, key: str) -> list[str]:
    """Requests that fail before any provider, each of which holds the key or the prompt where it does not belong."""
    body = json.dumps({"model": "good", "messages": [{"role": "user", "content": PROMPT}]})
    head = f"HTTP/1.1\r\nHost: n4n\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n"
    sized = f"Content-Length: {len(body)}\r\n\r\n{body}"
    return [
        _raw(role, text.encode())
        for text in (
            f"POST /v1/chat/completions?key={key}&prompt={PROMPT} {head}{sized}",
            f"POST /v1/{key}/{PROMPT} {head}{sized}",
            f"POST /v1/chat/completions {head}X-N4n-Routing: {PROMPT}={key}\r\n{sized}",
            f"POST /v1/chat/completions {head}X-N4n-Timeout-Ms: {key}\r\n{sized}",
            f"POST /v1/chat/completions {head}X-N4n-Priority: {key}\r\n{sized}",
            f"POST /v1/chat/completions {head}A: \x01{key}\r\n{sized}",
            f"POST /v1/chat/completions {head}Transfer-Encoding: {key}\r\n\r\n{body}",
            f"POST /v1/chat/completions {head}A: {key}{'x' * 20_000}\r\n{sized}",
            f"POST /v1/chat/completions {head}Content-Encoding: gzip\r\n{sized}",
            f"POST /v1/chat/completions {head}Content-Length: 5\r\n\r\n{PROMPT}",
            f"POST /v1/chat/completions {head}Transfer-Encoding: chunked\r\n\r\n{PROMPT}\r\n",
            f"{key} {PROMPT}\r\n\r\n",
            f"GET /v1/models/{PROMPT} {head}\r\n",
            f"GET /v1/models HTTP/1.1\r\nHost: n4n\r\nConnection: close\r\nAuthorization: Bearer {key}x\r\n\r\n",
            f"GET /v1/models HTTP/1.1\r\nHost: n4n\r\nConnection: close\r\nAuthorization: Basic {key}\r\n\r\n",
        )
    ]


def _raw(role: Role, content: bytes) -> str:
    with socket.create_connection(("127.0.0.1", int(role.environ["N4N_PORT"])), timeout=10) as sock:
        sock.sendall(content)
        received = b""
        while piece := sock.recv(1 << 16):
            received += piece
    return received.decode("latin-1")


def _tables(url: str) -> Iterator[tuple[str, str]]:
    """Every row of every table, as text."""
    with psycopg.connect(libpq_url(url)) as connection:
        listed = (
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        for schema, table in connection.execute(listed).fetchall():
            named = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, table))
            yield f"table {table}", "\n".join(str(row[0]) for row in connection.execute(named).fetchall())


def places(left: Left, *canaries: str) -> list[str]:
    """Where any of these stands, also in other writings of the same bytes."""
    return [
        f"{canary[:14]}… in {place}: {text[max(0, text.find(canary) - 300) : text.find(canary) + 20]}"
        for place, text in left.found.items()
        for canary in canaries
        if canary in text
    ]


def test_the_search_sees_what_is_there(left: Left):
    assert left.found.keys() >= {"router.out", "router.err", "control-plane.err", "catalog.json", "/metrics"}
    assert any("catalog.snapshot" in place for place in left.found)
    assert any(place.startswith("table ") and "e-good" in text for place, text in left.found.items())
    assert "e-good" in left.found["router.out"]
    assert any(PROMPT.encode() in call.body for call in left.calls)
    assert {call.header("authorization") for call in left.calls} == {f"Bearer {PROVIDER_KEY}", f"Bearer {FILE_KEY}"}


def test_every_fault_was_gone_through(left: Left):
    lines = [json.loads(line) for line in left.found["router.out"].splitlines()]
    outcomes = {attempt["outcome"] for line in lines for attempt in line["routing"]["attempts"]}
    wanted = {"rate_limited", "quota_exhausted", "overloaded", "timeout", "server_error", "auth", "model_not_found", "context_length"}
    assert wanted | {"content_policy", "bad_request", "ok"} <= outcomes
    assert {line["model"] for line in lines} >= set(FAULTS)


def test_a_key_of_ours_is_nowhere_but_at_its_owner(left: Left):
    secret = left.key.split("-", 3)[3]
    assert left.key.startswith("sk-n4n-")
    assert places(left, left.key, secret, secret[:20]) == []
    assert not any(secret in str(call.headers) + call.body.decode() for call in left.calls)


def test_a_key_of_a_provider_is_nowhere_but_at_the_provider(left: Left):
    assert places(left, PROVIDER_KEY, FILE_KEY) == []
    assert not any(key in text for text in left.told for key in (PROVIDER_KEY, FILE_KEY))


def test_prompts_and_answers_are_nowhere_but_at_client_and_provider(left: Left):
    assert places(left, PROMPT, ANSWER) == []


def test_cookies_go_neither_way(left: Left):
    assert places(left, COOKIE) == []
    assert not any(COOKIE in text for text in left.told)
    assert not any(COOKIE in str(call.headers) for call in left.calls)


def test_a_providers_address_is_in_no_answer_no_log_and_no_metric(left: Left):
    address = f"127.0.0.1:{left.upstream_port}"
    logs = {place for place in left.found if place.endswith((".out", ".err")) or place in ("/metrics", "/ready", "traces")}
    assert [place for place in logs if address in left.found[place]] == []
    assert not any(address in text for text in left.told)


def test_the_traces_tell_of_every_plane_and_every_fault(left: Left):
    spans = left.traced.spans
    assert {span.resource["service.name"] for span in spans} == {"n4n-control-plane", "n4n-data-plane", "n4n-prober"}
    assert {"n4n.v1.Catalog/Apply", "n4n push", "ledger take", "n4n turn", "n4n probe"} <= {span.name for span in spans}
    outcomes = {span.attributes.get("n4n.outcome") for span in spans if span.resource["service.name"] == "n4n-prober"}
    assert {"ok", "ill", "limited", "account_out", "gone"} <= outcomes
    assert any(span.attributes.get("n4n.refused") == "invalid_catalog" for span in spans)
    shipped = {span.span_id for span in spans if (span.name, span.kind) == ("n4n.v1.Usage/Report", "CLIENT")}
    taken = {span.parent_id for span in spans if (span.name, span.kind) == ("n4n.v1.Usage/Report", "SERVER")}
    assert taken and taken <= shipped  # routers and probers hand on whose part it is


def test_no_token_and_no_address_of_a_store_is_in_a_trace(left: Left):
    secrets_of_planes = (ADMIN_TOKEN, NODE_TOKEN, *left.stores, "postgresql", "redis://")
    assert [secret for secret in secrets_of_planes if secret in left.found["traces"]] == []


def test_every_refusal_was_an_answer_in_our_shape(left: Left):
    for text in left.told[-15:]:
        head, _, body = text.partition("\r\n\r\n")
        assert head.startswith(("HTTP/1.1 4", "HTTP/1.1 200")), head[:100]
        assert head.startswith("HTTP/1.1 200") or set(json.loads(body)["error"]) == {"message", "type", "param", "code", "n4n"}
