"""deploy/systemd: every unit starts its role with what n4n knows, and gives it the time to stop that it needs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import n4n
from n4n.cli.__main__ import parser
from n4n.runtime.settings import Settings

UNITS = sorted((Path(n4n.__file__).parent.parent / "deploy" / "systemd").glob("*.service"))


def settings_of(unit: Path) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            told.setdefault(name, []).append(value)
    return told


def test_there_is_one_for_every_role() -> None:
    assert [unit.name for unit in UNITS] == ["n4n-control-plane.service", "n4n-data-plane.service", "n4n-prober.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_its_role_in_a_folder_of_its_own(unit: Path) -> None:
    told = settings_of(unit)
    program, *words = shlex.split(told["ExecStart"][0])
    args = parser().parse_args(words)

    assert (program, words[0]) == ("/opt/n4n/bin/n4n", unit.stem.removeprefix("n4n-"))
    assert args.data_dir == f"/var/lib/{told['StateDirectory'][0]}" == told["WorkingDirectory"][0]


def test_a_router_is_stopped_as_a_whole_and_in_time_and_is_reloaded_by_its_signal() -> None:
    told = settings_of(UNITS[1])

    assert told["KillMode"] == ["mixed"], "a worker that is stopped by itself is replaced"
    assert int(told["TimeoutStopSec"][0]) > Settings().drain_sec
    assert told["ExecReload"] == ["/bin/kill -USR2 $MAINPID"]
