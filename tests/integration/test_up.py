"""`n4n up` as a person uses it: one command to a working gateway, nothing left behind, everything found again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.support.machine import Machine, clean_environ, descendants, is_alive, run_n4n, wait_until

CHAT = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
TOLD = {"base_url", "api_key", "admin_url", "admin_token", "database_url", "redis_url", "metrics_urls", "pid", "version"}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data of n4n, mine")
    yield machine
    machine.end()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One that several tests share; each leaves the planes and stores running."""
    machine = Machine(tmp_path_factory.mktemp("up") / "shared")
    machine.start()
    yield machine
    machine.end()


def refused(machine: Machine, *arguments: str) -> str:
    """Start `n4n up` where it must be refused; the one line it says."""
    done = run_n4n("up", "--port", "0", "--admin-port", "0", "--data-dir", str(machine.data_dir), *arguments, environ=machine.environ)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_start_ask_stop_and_start_again(machine: Machine) -> None:
    told = machine.start()

    assert set(told) == TOLD | {"sim"}
    assert str(told["base_url"]).endswith("/v1")
    assert told["pid"] == machine.pid
    assert stat.S_IMODE(machine.runtime_path.stat().st_mode) == 0o600
    assert stat.S_IMODE((machine.data_dir / "secrets.json").stat().st_mode) == 0o600
    assert f"curl {told['base_url']}/chat/completions -H 'Authorization: Bearer {told['api_key']}'" in machine.output
    assert "cygrpc" not in Path(f"/proc/{machine.pid}/maps").read_text()
    status, _, headers = machine.ask("/chat/completions", CHAT)
    assert status == 200
    assert headers["x-n4n-catalog-version"] == "1"
    dearer = machine.n4n("catalog", "show").stdout.replace("output_per_1m: 10\n", "output_per_1m: 12\n")
    assert machine.n4n("catalog", "apply", "-f", "-", told=dearer).returncode == 0
    started = descendants(machine.pid)

    assert machine.stop(signal.SIGINT) == 0

    assert not any(map(is_alive, started))
    assert not machine.runtime_path.exists()
    assert machine.errors == ""

    again = machine.start()

    assert again["api_key"] == told["api_key"]
    assert again["admin_token"] == told["admin_token"]
    assert ports(again) == ports(told)
    assert "the catalog stays version 2, made by " in machine.errors
    assert "output_per_1m: 12\n" in machine.n4n("catalog", "show").stdout
    assert machine.ask("/chat/completions", CHAT)[2]["x-n4n-catalog-version"] == "2"
    assert machine.stop(signal.SIGHUP) == 0


def ports(runtime: Mapping[str, object]) -> dict[str, int]:
    """The ports of the simulated providers, by name."""
    return {name: sim["port"] for name, sim in cast(Mapping[str, Mapping[str, int]], runtime["sim"]).items()}


def test_kill_9_leaves_nothing_that_stops_the_next_start(machine: Machine) -> None:
    machine.arguments = ()  # no provider key and no simulation: an empty catalog
    told = machine.start()
    assert "set OPENAI_API_KEY" in machine.output
    started = descendants(machine.pid)

    machine.stop(signal.SIGKILL)
    again = machine.start()

    assert again["api_key"] == told["api_key"]
    assert again["pid"] != told["pid"]
    wait_until(lambda: not any(map(is_alive, started)))
    assert machine.ask("/models")[:2] == (200, {"object": "list", "data": []})


def test_a_rotated_first_key_and_removed_secrets_are_made_anew(machine: Machine) -> None:
    machine.arguments = ()
    first = machine.start()
    assert machine.n4n("key", "rotate", str(first["api_key"]).split("-")[2]).returncode == 0
    assert machine.stop(signal.SIGTERM) == 0

    second = machine.start()
    assert second["api_key"] != first["api_key"]
    assert "the first key has another secret by now" in machine.errors
    assert machine.ask("/models")[0] == 200
    assert machine.stop(signal.SIGTERM) == 0
    (machine.data_dir / "secrets.json").unlink()

    third = machine.start()
    assert third["admin_token"] != second["admin_token"] and third["api_key"] != second["api_key"]
    assert machine.ask("/models")[0] == 200
    assert machine.n4n("nodes").returncode == 0


def test_what_dies_is_started_again(running: Machine) -> None:
    before = {words: running.child(words) for words in ("n4n control-plane", "bin/postgres", "valkey-server", "n4n data-plane --worker 1")}

    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    wait_until(lambda: all(running.children(words) not in ([], [pid]) for words, pid in before.items()))
    wait_until(lambda: '"database": "ok"' in (out := running.n4n("status", "--json").stdout) and '"redis": "ok"' in out)
    wait_until(lambda: running.answers("/chat/completions", CHAT))
    for name in ("control-plane", "postgres", "valkey"):
        assert f"{name} ended by signal 9; starting it again in " in running.errors


def test_a_killed_simulated_provider_stays_down_and_traffic_moves(running: Machine) -> None:
    os.kill(running.child("sim --name sim-east"), signal.SIGTERM)
    wait_until(lambda: "sim-east ended" in running.errors)
    wait_until(lambda: running.answers("/chat/completions", CHAT))

    for _ in range(5):
        status, _, headers = running.ask("/chat/completions", CHAT, {"x-n4n-routing": "prefer=sim-east"})
        assert status == 200
        assert headers["x-n4n-provider"] in ("sim-west", "sim-eu")
    assert "stays down" in running.errors


def test_probes_are_a_node_and_a_tenant_of_their_own(running: Machine) -> None:
    def told(*command: str) -> list[dict[str, object]]:
        return cast(list[dict[str, object]], json.loads(running.n4n(*command, "-o", "json").stdout))

    def probers() -> list[dict[str, object]]:
        return [node for node in told("nodes") if node["role"] == "prober" and node["applied_version"] == node["head_version"]]

    wait_until(lambda: bool(probers()))
    assert (probers()[0]["connected"], probers()[0]["access_version"], probers()[0]["lag_ms"]) == (True, 0, 0)
    wait_until(lambda: len(cast(list[str], running.runtime["metrics_urls"])) == 3)
    metrics = next(url for url in cast(list[str], running.runtime["metrics_urls"]) if fetched(url, "n4n_probe_tasks"))
    wait_until(lambda: "n4n_probes_total" in fetched(metrics, ""))
    for path in ("live", "ready"):
        assert path in fetched(metrics.replace("metrics", path), path)

    wait_until(lambda: "n4n-probes" in {row["tenant"] for row in told("usage", "--by", "tenant")})
    refused = running.n4n("key", "create", "--tenant", "n4n-probes")
    assert refused.returncode == 1 and "n4n-probes is the one that probes are booked under" in refused.stderr


def fetched(url: str, words: str) -> str:
    """What is served there, '' where it does not hold these words."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    return text if words in text else ""


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
def test_a_taken_port_is_one_line(machine: Machine, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(machine, flag, str(port))

    assert line == f"n4n: port {port} on 127.0.0.1 is taken by another program: stop it, or choose another port with {flag}"


def test_a_data_directory_of_a_newer_version_is_one_line(machine: Machine) -> None:
    machine.data_dir.mkdir()
    (machine.data_dir / "format").write_text("99\n")

    line = refused(machine)

    assert "was written by a newer n4n (format 99, this one knows 1)" in line
    assert "--data-dir" in line


def test_a_data_directory_that_cannot_be_written_is_one_line(machine: Machine) -> None:
    machine.data_dir.write_text("a file is in the way")

    assert "cannot be written" in refused(machine)


def test_a_second_n4n_on_the_same_data_directory_is_one_line(running: Machine) -> None:
    line = refused(running)

    assert f"is in use by a running n4n up (pid {running.pid})" in line
    assert running.runtime["pid"] == running.pid


@pytest.mark.parametrize("text", ["models: {a: {b: c}}", "models: [", "endpoints: {x: {model: m, account: a}}"])
def test_a_catalog_file_with_faults_is_refused_before_anything_starts(machine: Machine, tmp_path: Path, text: str) -> None:
    (tmp_path / "catalog.yaml").write_text(text)

    done = run_n4n("up", "--catalog", str(tmp_path / "catalog.yaml"), "--data-dir", str(machine.data_dir))

    assert done.returncode == 1
    assert done.stderr.startswith("n4n: ")
    assert not machine.data_dir.exists()


def test_a_catalog_file_that_is_not_there_is_told_under_its_own_flag(machine: Machine) -> None:
    assert refused(machine, "--catalog", "/nowhere.yaml").startswith("n4n: --catalog /nowhere.yaml: no such file")


def test_simulated_providers_of_an_operators_catalog_that_this_start_did_not_start_are_nothing_to_try(machine: Machine) -> None:
    machine.start()
    dearer = machine.n4n("catalog", "show").stdout.replace("output_per_1m: 10\n", "output_per_1m: 12\n")
    assert machine.n4n("catalog", "apply", "-f", "-", told=dearer).returncode == 0
    machine.stop()
    machine.arguments = ()

    machine.start()

    assert "curl" not in machine.output
    assert re.search(r"no endpoint of the catalog can answer now \(sim-\w+ does not answer on 127\.0\.0\.1:", machine.output)
    assert "for another one use `n4n catalog apply`, --catalog FILE, or another --data-dir" in machine.errors


def test_a_misspelt_setting_stops_the_start(machine: Machine) -> None:
    machine.environ = clean_environ(N4N_PROT="8080")

    assert "N4N_PROT is not a setting (did you mean N4N_PORT?)" in refused(machine)
