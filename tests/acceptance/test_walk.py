"""The README's commands, run block by block as they stand there: what a newcomer types must do what the text says."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from n4n.catalogs.builtin import whole_document
from tests.support.house import House, bare_environ, eventually, free_port, listens, running_house
from tests.support.stores import libpq_url

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(section: str, language: str = "sh") -> list[str]:
    """The code blocks of a section of the README."""
    text = README.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@dataclass
class Shell:
    """One shell that stays open over the blocks, in the folder of the house."""

    process: subprocess.Popen[str]

    def run(self, block: str) -> str:
        """What the block printed."""
        mark = "block is over"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{block}\necho; echo '{mark}'\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == mark:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended in {block!r}: {lines}")


def make_checkout(folder: Path) -> None:
    """A folder with `.venv/bin/python` and `.venv/bin/n4n`."""
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, module in (("python", ""), ("n4n", "-m n4n ")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module}"$@"\n')
        (tools / name).chmod(0o755)


@pytest.fixture
def walked(tmp_path: Path) -> Iterator[tuple[House, Shell]]:
    """A simulated house in `.n4n` of a folder that looks like a checkout, and a shell there."""
    make_checkout(tmp_path)
    with running_house(tmp_path, "--sim", name=".n4n") as house:
        shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=tmp_path,
            env=house.environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        yield house, Shell(shell)
        shell.stdin.close()
        shell.stdout.close()
        shell.wait(10)


def header(text: str, name: str, which: int = -1) -> str:
    """The value of a response header in what curl -i printed."""
    return re.findall(rf"^{name}: (.*?)\r?$", text, re.M | re.I)[which]


def test_the_walk_does_what_the_readme_says(walked):
    house, shell = walked
    setup, ask, required, explained, killed, changed, rolled_back = blocks("A walk")

    shell.run(setup)
    first = shell.run(ask)
    assert first.startswith("HTTP/1.1 200")
    assert header(first, "x-n4n-provider").startswith("sim-")
    assert Decimal(header(first, "x-n4n-usage-cost-usd")) > 0

    told = shell.run(required)
    assert re.findall(r"^HTTP/1.1 (\d+)", told, re.M) == ["200", "400", "400"]
    assert header(told, "x-n4n-provider", 0) == "sim-eu"
    assert "did you mean region" in told
    assert '"eliminated":{"region=mars":3}' in told

    plan = shell.run(explained)
    assert re.search(r"sim-eu-gpt-4o .*region=us", plan)
    assert plan.index("sim-eu-gpt-4o") > plan.index("sim-east-gpt-4o")

    kill, again = killed.splitlines()
    assert shell.run(kill).strip() == ""
    eventually(lambda: not house.pids("sim-east"), "the end of sim-east")
    moved = shell.run(again)
    assert moved.startswith("HTTP/1.1 200")
    assert header(moved, "x-n4n-provider") in ("sim-west", "sim-eu")
    assert header(moved, "x-n4n-fallback-attempts") == "1"
    (line,) = eventually(lambda: [one for one in house.log() if one["routing"]["fallback_attempts"]], "the log line of the fallback")
    assert [attempt["outcome"] for attempt in line["routing"]["attempts"]] == ["server_error", "ok"]

    priced = shell.run(changed)
    costs = [Decimal(cost) for cost in re.findall(r"^x-n4n-usage-cost-usd: (.*?)\r?$", priced, re.M)]
    versions = re.findall(r"^x-n4n-catalog-version: (\d+)", priced, re.M)
    assert "endpoints.sim-west-gpt-4o.price.output_per_1m" in priced
    assert versions == ["1", "2"]
    assert costs[1] > costs[0]

    back = shell.run(rolled_back)
    assert header(back, "x-n4n-catalog-version") == "3"
    assert Decimal(header(back, "x-n4n-usage-cost-usd")) == costs[0]
    assert "new price list" in back

    for program in blocks("A walk", "python"):
        said = shell.run(f".venv/bin/python -W error - <<'END'\n{program}END\n").strip()
        assert said
        assert "Traceback" not in said


def test_the_commands_for_many_machines_do_what_the_readme_says(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    control, data, probes, operator = blocks("On many machines")
    make_checkout(tmp_path)
    port, admin_port = free_port(), free_port()
    here = {
        "postgresql://n4n:PASSWORD@db:5432/n4n": shlex.quote(libpq_url(postgres_url)),
        "N4N_ADMIN_TOKEN=…": "N4N_ADMIN_TOKEN=an-admin-token",
        "N4N_NODE_TOKEN=…": "N4N_NODE_TOKEN=a-node-token",
        "OPENAI_API_KEY=…": "OPENAI_API_KEY=sk-canary",
        "control:9400": f"127.0.0.1:{admin_port}",
        "http://router:8080": f"http://127.0.0.1:{port}",
        "0.0.0.0": "127.0.0.1",
        "redis://redis:6379/0": redis_url,
        "/var/lib/n4n": str(tmp_path),
        "--workers 4": "--workers 2",
        "\n.venv/bin/n4n": "\nexec .venv/bin/n4n",
    }
    ports = {"N4N_ADMIN_PORT": str(admin_port), "N4N_METRICS_PORT": "0", "N4N_PORT": str(port), "N4N_LAME_DUCK_SEC": "0"}
    ports["N4N_PROBER_PORT"] = "0"
    nowhere = {"N4N_EGRESS_PROXY": f"http://127.0.0.1:{free_port()}"}  # a test asks nobody outside

    def shell(block: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-e", "-c", block], cwd=tmp_path, env={**bare_environ(), **environ}, text=True, stdout=subprocess.PIPE
        )

    roles = [shell(_replaced(block, here), {**ports, **nowhere}) for block in (control, data, probes)]
    try:
        eventually(lambda: listens(admin_port), "the control plane")
        del here["\n.venv/bin/n4n"]
        *commands, explain = _replaced(operator, here).rstrip().splitlines()
        said = shell("\n".join(commands), {}).communicate(timeout=30)[0]
        assert "version 1 is in force" in said
        key = re.search(r"sk-n4n-[a-z0-9]{12}-\S+", said)
        assert key is not None
        shown = [commands[0], explain.replace("sk-n4n-…", key[0])]
        plan = eventually(lambda: "openai-gpt-4o" in (out := shell("\n".join(shown), {}).communicate(timeout=30)[0]) and out, "the router")
        assert "1 of 1 candidates remain, catalog version 1" in plan
        nodes = f"{commands[0]}; .venv/bin/n4n nodes -o json"
        eventually(lambda: '"role": "prober"' in shell(nodes, {}).communicate(timeout=30)[0], "the prober")
    finally:
        for role in reversed(roles):
            role.send_signal(signal.SIGTERM)
            role.communicate(timeout=20)
    assert [role.returncode for role in roles] == [0, 0, 0]


def _replaced(block: str, by: Mapping[str, str]) -> str:
    for name, value in by.items():
        block = block.replace(name, value)
    return block


def test_every_key_variable_of_the_built_in_catalog_is_in_the_readme() -> None:
    text = README.read_text()
    document = whole_document()
    assert f"{len(document['endpoints'])} endpoints" in text
    found = dict(re.findall(r"^\| `([A-Z_]+)`[^|]*\| ([a-z-]+(?:, [a-z-]+)*) \|", text, re.M))
    told: dict[str, list[str]] = {}
    for account in document["accounts"].values():
        told.setdefault(str(account["credential"]).removeprefix("env:"), []).append(str(account["provider"]))
    assert found == {variable: ", ".join(providers) for variable, providers in told.items()}
