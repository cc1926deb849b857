"""The README's walk, run block by block as it stands there: what a newcomer types must do what the text says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.house import House, eventually, running_house

README = Path(__file__).resolve().parents[2] / "README.md"
KILL = 'pkill -f "sim --name sim-east"'


def walk_blocks() -> list[str]:
    """The shell blocks between 'A walk' and 'With real providers'."""
    walk = README.read_text().split("## A walk")[1].split("## With real providers")[0]
    return re.findall(r"```sh\n(.*?)```", walk, re.S)


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


@pytest.fixture
def walked(tmp_path: Path) -> Iterator[tuple[House, Shell]]:
    """A simulated house in `.n4n` of a folder that looks like a checkout, and a shell there."""
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, command in (("python", sys.executable), ("n4n", f"{shlex.quote(sys.executable)} -m n4n")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(command) if name == "python" else command} "$@"\n')
        (tools / name).chmod(0o755)
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
    blocks = walk_blocks()
    setup, ask, required, explained, killed, changed, rolled_back = blocks
    port = house.base_url.split(":")[2].partition("/")[0]

    shell.run(setup.replace("8080", port))
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

    assert KILL in killed
    pid = house.runtime["sim"]["sim-east"]["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not house.pids("sim-east"), "the end of sim-east")
    moved = shell.run(killed.replace(KILL, ":"))
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
