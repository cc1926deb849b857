"""Every process at its most talkative: whatever it says is a line of JSON, and no secret is in it, whatever goes wrong."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.integration.test_canaries import _tables
from tests.support.answers import completion, error, sse
from tests.support.call import Call
from tests.support.fleet import ADMIN_TOKEN, NODE_TOKEN, Fleet, Role, eventually, ready, running_fleet
from tests.support.house import free_port, running_house
from tests.support.otlp import receiver
from tests.support.script import Answer
from tests.support.sinks import BODIES
from tests.support.upstream import running_upstream
from tests.support.valkey import running_valkey

ROOT = Path(__file__).resolve().parent.parent.parent
SABOTAGE = {"PYTHONPATH": f"{ROOT / 'tests/support/sabotage'}{os.pathsep}{ROOT}"}
FIELDS = {"timestamp", "level", "role", "logger", "message"}
PROMPT, ANSWER = "canary-prompt-" + secrets.token_hex(8), "canary-answer-" + secrets.token_hex(8)
DATABASE, REDIS, HOOK = (f"canary{word}" + secrets.token_hex(8) for word in ("database", "redis", "hook"))
PROVIDER_KEY, FILE_KEY, TORN_KEY, GOOGLE_KEY = (f"Zq7!{word}@" + secrets.token_hex(8) for word in ("env", "file", "torn", "google"))
SECRETS = (PROMPT, ANSWER, DATABASE, REDIS, HOOK, PROVIDER_KEY, FILE_KEY, TORN_KEY, GOOGLE_KEY, ADMIN_TOKEN, NODE_TOKEN)


def document(url: str, folder: Path) -> dict[str, object]:
    """An endpoint that answers, one whose provider fails, one whose account is out, and some whose credentials cannot be."""
    (folder / "good").write_text(FILE_KEY)
    (folder / "torn").write_text(f"{TORN_KEY}\nand a second line {TORN_KEY}\n")
    (folder / "google.json").write_text(json.dumps({"type": "service_account", "private_key": GOOGLE_KEY, "client_email": GOOGLE_KEY}))
    (folder / "binary").write_bytes(b"\xff\xfe" + TORN_KEY.encode())
    credentials = {
        "m": "env:N4N_KEY_CANARY", "fails": f"file:{folder / 'good'}", "out": "env:N4N_KEY_CANARY", "torn": f"file:{folder / 'torn'}",
        "google": f"file:{folder / 'google.json'}", "binary": f"file:{folder / 'binary'}", "missing": f"file:{folder / 'nowhere'}",
        "unset": "env:N4N_KEY_UNSET", "v": "env:N4N_KEY_CANARY",
    }  # fmt: skip
    return {
        "providers": {
            "p": {"dialect": "openai", "base_url": url, "allow_private": True},
            "g": {"dialect": "vertex", "base_url": f"{url}/projects/p/locations/global", "allow_private": True},
        },
        "accounts": {name: {"provider": "g" if name == "google" else "p", "credential": where} for name, where in credentials.items()},
        "models": {name: {"retry": {"max_retries": 0}, "probe": {"interval_sec": 2, "timeout_ms": 500}} for name in credentials},
        "endpoints": {
            f"e-{name}": {"model": name, "account": name, "upstream_model": name, **({"supports": ["embeddings"]} if name == "v" else {})}
            for name in credentials
        },
    }


def played(call: Call) -> Answer:
    said = f"{call.headers} {call.body.decode()}"
    match call.json["model"]:
        case "fails":
            return error(500, message=said)
        case "out":
            return error(401, code="invalid_api_key", message=said)
    return sse(ANSWER, "two") if call.json.get("stream") else completion(ANSWER)


@dataclass
class Left:
    """What a fleet left behind, by where it was found; `errors`: standard error by role; `told`: what clients and tools were told."""

    found: dict[str, str]
    errors: dict[str, str]
    told: dict[str, str]
    key: str
    upstream_port: int
    codes: dict[str, set[str]]


class Hooks(BaseHTTPRequestHandler):
    """Whom alerts are told to; it refuses them first, so that this is told of, too."""

    got: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.got.append(body)
        self.send_response(500 if len(self.got) == 1 else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, module_postgres_url: str) -> Iterator[Left]:
    folder, apart = tmp_path_factory.mktemp("fleet"), tmp_path_factory.mktemp("apart")
    database = module_postgres_url.replace("://n4n@/", f"://n4n:{DATABASE}@/")
    with (
        receiver() as traced, running_upstream() as upstream, ThreadingHTTPServer(("127.0.0.1", 0), Hooks) as hooks,
        running_valkey(apart, requirepass=REDIS) as valkey, running_fleet(folder, database) as fleet,
    ):  # fmt: skip
        threading.Thread(target=hooks.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        upstream.script(then=played)
        loud = {"N4N_LOG_LEVEL": "debug", **traced.environ("http/protobuf")}
        redis_url, webhooks = f"redis://:{REDIS}@127.0.0.1:{valkey.port}/0", f"json=http://127.0.0.1:{hooks.server_address[1]}/{HOOK}"
        fleet.control_plane(
            **loud,
            **SABOTAGE,
            N4N_REDIS_URL=redis_url,
            N4N_ALERT_WEBHOOKS=webhooks,
            N4N_ALERT_LOOK_SEC="1",
            N4N_METRICS_PORT=str(free_port()),
        )
        _unreachable(fleet, loud)
        env = {**loud, "N4N_KEY_CANARY": PROVIDER_KEY, "N4N_DRAIN_SEC": "5", "N4N_VITALS_SEC": "1"}
        router = fleet.data_plane("router", N4N_REDIS_URL=redis_url, N4N_WORKERS="1", **env, **SABOTAGE)
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(document(upstream.base_url, apart))
        fleet.prober("prober", redis_url, **env)
        key = fleet.create_key()
        eventually(lambda: ready(router) and ask(router, key, "/v1/messages", "m")[0] == 200, "the key at the router")
        told = {
            f"{path} {model}": ask(router, key, path, model, stream=True)[1]
            for path in BODIES
            for model in ("m", "fails", "out", "missing")
        }
        status, told["crash"] = ask(router, key, "/v1/embeddings", "v")
        assert status == 500
        lines = (
            "nodes", "key list", "catalog show", "audit -o json", "health -o json", "usage -o json", "alerts", "status --json",
            f"key rotate {key.split('-')[2]}", f"logs explain {request_id(told['crash'])} router.out router.err",
            f"logs explain {request_id(told['/v1/messages m'])} router.out",
        )  # fmt: skip
        said = fleet.tools(*(line.split() for line in lines))
        told |= {line: f"{code}\n{out}{errors}" for line, (code, out, errors) in zip(lines, said, strict=True)}
        told["stranger's token"] = stranger_to(fleet)
        os.kill(router.workers()[0], signal.SIGKILL)
        eventually(lambda: "worker_ended" in router.errors, "the end of a worker")
        eventually(lambda: "alert N4n" in fleet.roles[0].errors and len(Hooks.got) > 1, "an alert")
        told["webhook"] = "\n".join(Hooks.got)
        found = {"/metrics": get(router, "N4N_PORT"), "control plane /metrics": get(fleet.roles[0], "N4N_METRICS_PORT")}
        for role in reversed(fleet.roles):
            role.stop()
        hooks.shutdown()
        for path in folder.rglob("*"):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes().decode("latin-1")
        found |= dict(_tables(module_postgres_url))
        found["traces"] = traced.raw.decode("latin-1")
        errors = {role.name: role.errors for role in fleet.roles}
        codes = {role: {str(line.get("code")) for line in map(json.loads, text.splitlines())} for role, text in errors.items()}
        yield Left(found, errors, told, key, int(upstream.base_url.split(":")[2].split("/")[0]), codes)


def _unreachable(fleet: Fleet, loud: dict[str, str]) -> None:
    """A second control plane, whose database is not there."""
    away = fleet.control_plane_settings(N4N_DATABASE_URL=f"postgresql://n4n:{DATABASE}@127.0.0.1:1/n4n", N4N_ADMIN_PORT=str(free_port()))
    role = Role("away", fleet.folder, {"ROLE": "control-plane", **away, **loud})
    role.start()
    fleet.roles.append(role)


def ask(role: Role, key: str, path: str, model: str, *, stream: bool = False) -> tuple[int, str]:
    body = {**BODIES.get(path, {"input": PROMPT}), "model": model, **({"stream": True} if stream else {})}
    connection = http.client.HTTPConnection("127.0.0.1", int(role.environ["N4N_PORT"]), timeout=20)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", path, json.dumps(body).replace("ping", PROMPT), headers)
    with connection.getresponse() as answer:
        text = f"{answer.headers}\n{answer.read().decode()}"
    connection.close()
    return answer.status, text


def request_id(answer: str) -> str:
    return next(line.partition(": ")[2] for line in answer.splitlines() if line.lower().startswith("x-request-id"))


def get(role: Role, port: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", int(role.environ[port]), timeout=10)
    connection.request("GET", "/metrics")
    with connection.getresponse() as answer:
        text = answer.read().decode()
    connection.close()
    return text


def stranger_to(fleet: Fleet) -> str:
    """What somebody is told who has no good token."""
    import grpc

    with grpc.insecure_channel(fleet.admin_url) as channel:
        call = channel.unary_unary("/n4n.v1.Access/RotateKey", None, None)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", metadata=(("authorization", f"Bearer {NODE_TOKEN}"),), timeout=10)
    return str(refused.value)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_whatever_a_process_says_is_a_line_of_json(left: Left) -> None:
    assert left.errors.keys() == {"control-plane", "away", "router", "prober"}
    for role, text in left.errors.items():
        assert text, role
        for line in lines_of(text):
            assert line.keys() >= FIELDS, line
            assert ("code" in line) == (line["level"] not in ("debug", "info")), line
            assert line["timestamp"].endswith("Z") and line["role"] in ("control-plane", "data-plane", "prober")


def test_what_went_wrong_has_a_code_of_its_own(left: Left) -> None:
    assert left.codes["router"] >= {"request_failed", "worker_ended", "accounts_that_are_not_used"}
    assert left.codes["control-plane"] >= {"call_failed", "alert"}
    assert any("waiting" in code or "database" in code for code in left.codes["away"])


def test_a_fault_of_ours_is_told_by_where_it_happened_and_under_the_requests_ids(left: Left) -> None:
    (failed,) = [line for line in lines_of(left.errors["router"]) if line.get("code") == "request_failed"]
    (logged,) = [line for line in lines_of(left.found["router.out"]) if line["status"] == 500]
    assert failed["request_id"] == logged["request_id"] == request_id(left.told["crash"])
    assert failed["trace_id"] == logged["trace_id"]
    assert "KeyError: (its words are not shown" in failed["exception"] and "RuntimeError: (its words" in failed["exception"]
    assert "sitecustomize.py" in failed["exception"]
    explained = next(text for line, text in left.told.items() if "router.err" in line)
    assert f"data-plane said (error): request {logged['request_id']} failed: RuntimeError: (its words are not shown" in explained


def test_a_control_planes_fault_is_told_without_its_words(left: Left) -> None:
    (text,) = [text for line, text in left.told.items() if line.startswith("key rotate")]
    assert "the control plane failed; its log tells why" in text


def test_no_secret_is_in_anything_that_was_left(left: Left) -> None:
    secret = left.key.split("-", 3)[3]
    for canary in (*SECRETS, secret):
        for where, text in left.found.items():
            at = text.find(canary)
            assert at < 0, f"{canary} in {where}: …{text[max(0, at - 300) : at + 60]}"


def test_no_secret_of_ours_is_in_anything_that_anybody_was_told(left: Left) -> None:
    secret = left.key.split("-", 3)[3]
    for canary in (*SECRETS, secret):
        for what, text in left.told.items():
            if canary == ANSWER and what.startswith("/v1"):
                continue
            assert canary not in text, f"{canary} in {what}: {text[:3000]}"


def test_a_providers_address_is_told_to_nobody_but_who_asks_for_the_catalog(left: Left) -> None:
    address = f"127.0.0.1:{left.upstream_port}"
    for what, text in (
        *left.errors.items(),
        *left.told.items(),
        ("router.out", left.found["router.out"]),
        ("traces", left.found["traces"]),
    ):
        assert address not in text or what in ("catalog show", "audit -o json"), f"{what}: {text[max(0, text.find(address) - 300) :][:400]}"


def test_n4n_up_and_all_it_starts_speak_json_and_tell_no_secret(tmp_path: Path) -> None:
    environ = {"N4N_LOG_LEVEL": "debug", "N4N_PROBERS": "1", "N4N_PROBER_PORT": str(free_port())}
    with running_house(tmp_path, "--sim", environ=environ) as house:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}]}
        port = int(house.base_url.split(":")[2].split("/")[0])
        up = Role("up", tmp_path, {"N4N_PORT": str(port)})
        assert [ask(up, house.api_key, path, "gpt-4o", stream=stream)[0] for path in BODIES for stream in (False, True)] == [200] * 8, body
        hidden = [house.api_key.split("-", 3)[3], str(house.runtime["admin_token"]), PROMPT]
        errors = house.data_dir.parent / f"{house.data_dir.name}.err"
        (control_plane,) = house.pids("n4n control-plane")
        os.kill(control_plane, signal.SIGKILL)
        eventually(lambda: "control-plane ended by signal 9" in errors.read_text(), "a notice")
        eventually(lambda: len(house.log()) >= 8, "the request log")
        eventually(lambda: house.pids("n4n control-plane") not in ([], [control_plane]), "the next control plane")
        eventually(lambda: (house.data_dir / "prober.log").read_text(), "the prober, which starts last")
    (notice,) = [line for line in lines_of(errors.read_text()) if line.get("code") == "program_ended"]
    assert (notice["role"], notice["level"], "; starting it again in " in notice["message"]) == ("up", "warning", True)
    names = ("control-plane", "data-plane", "prober", "furnish", "sim-east")  # a log of a start before is kept beside
    roles = {name: "".join(path.read_text() for path in house.data_dir.glob(f"{name}.log*")) for name in names}
    for name, text in roles.items():
        begins = "sim-east answers on http://"  # what it says on standard output
        said = [line for line in text.splitlines() if not line.startswith(begins)]
        assert all(json.loads(line).keys() >= FIELDS for line in said), name
    assert all(roles[name] for name in ("control-plane", "data-plane", "prober")), {name: len(text) for name, text in roles.items()}
    for where, text in (*roles.items(), ("up", errors.read_text()), ("requests", json.dumps(house.log()))):
        for secret in hidden:
            assert secret not in text, f"{secret} in {where}"
