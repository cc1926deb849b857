"""Malformed settings and documents are one line, whatever is wrong with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from n4n.cli.documents import read_document
from n4n.cli.output import Refused
from n4n.core.errors import StartFailed
from n4n.runtime.settings import read_settings
from tests.support.machine import clean_environ


@pytest.mark.parametrize("name", ["N4N_PORT", "N4N_ADMIN_PORT", "N4N_METRICS_PORT"])
def test_a_port_that_is_none_stops_the_start(name):
    with pytest.raises(StartFailed, match=f"{name} must be a port, 0 to 65535"):
        read_settings({name: "99999"})


def test_a_document_without_end_is_refused_in_one_line(tmp_path: Path):
    path = tmp_path / "deep.json"
    path.write_text('{"models":' * 100_000)
    with pytest.raises(Refused, match="nests too deep to be a catalog"):
        read_document(str(path))


def test_a_control_plane_without_its_port_stops_the_start():
    with pytest.raises(StartFailed, match=r"N4N_ADMIN_URL must be HOST:PORT.*'10\.0\.0\.7' has no port \(a control plane's is 9400\)"):
        read_settings({"N4N_ADMIN_URL": "10.0.0.6:9400, 10.0.0.7"})
    assert read_settings({"N4N_ADMIN_URL": "a:1,[::1]:2,"}).control_planes == ("a:1", "[::1]:2")


def test_a_router_whose_redis_cannot_be_meant_does_not_start(tmp_path: Path):
    given = {"N4N_REDIS_URL": "redis.example.org", "N4N_NODE_TOKEN": "t", "N4N_DATA_DIR": str(tmp_path / "none"), "N4N_PORT": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "n4n", "data-plane"], env=clean_environ(**given), capture_output=True, text=True, timeout=60
    )
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1 and line.startswith("n4n: N4N_REDIS_URL must be redis://HOST:PORT/DB") and "example" not in line
    assert not (tmp_path / "none").exists(), "its workers were not even tried"


@pytest.mark.parametrize("role", ["data-plane", "up"])
def test_a_variable_of_opentelemetry_that_cannot_be_followed_stops_the_start(role: str, tmp_path: Path):
    given = {"OTEL_TRACES_EXPORTER": "zipkin", "N4N_NODE_TOKEN": "t", "N4N_DATA_DIR": str(tmp_path / "none"), "N4N_PORT": "0"}
    ended = subprocess.run([sys.executable, "-m", "n4n", role], env=clean_environ(**given), capture_output=True, text=True, timeout=60)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1 and line.startswith("n4n: OTEL_TRACES_EXPORTER is 'zipkin'; n4n knows otlp, console and none")
    assert not (tmp_path / "none").exists(), "nothing was even tried"
