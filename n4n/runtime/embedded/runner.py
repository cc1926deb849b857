"""Who the PostgreSQL server runs as. It refuses to be root, so root has to find somebody who can reach its files."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from n4n.core.errors import StartFailed
from n4n.runtime.embedded.folder import user_name
from n4n.runtime.embedded.server import ENVIRON
from n4n.runtime.process import AsUser, Identity, Mapped, PassingFolders, Unchanged, launcher

NOBODY = 65534
TRIAL_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Runner:
    """An identity under which the server was seen to run here, the owner that its files then have, and the server's major version."""

    identity: Identity
    uid: int
    gid: int
    major: int


def find_runner(program: Path, data_dir: Path, cluster: Path) -> Runner:
    """The first identity that may enter the data directory and run the program; tried, not guessed."""
    owner = cluster.stat().st_uid if cluster.exists() else None
    if os.geteuid() != 0 and owner is not None and owner != os.geteuid():
        raise StartFailed(
            f"{cluster} belongs to {user_name(owner)}: start n4n as that user or as root, or choose another directory with --data-dir"
        )
    refusals: list[str] = []
    for identity in _identities(owner):
        answer = _try(identity, program, data_dir)
        version = re.search(r"PostgreSQL\) (\d+)", answer)
        if version:
            return _runner(identity, int(version[1]))
        refusals.append(answer)
    raise StartFailed(
        f"the bundled PostgreSQL cannot be run{' as another user than root' if os.geteuid() == 0 else ''}: {refusals[0].lower()}; "
        "start n4n as an ordinary user, or set N4N_DATABASE_URL to a PostgreSQL of your own"
    )


def _identities(owner: int | None) -> Iterator[Identity]:
    if os.geteuid() != 0:
        if not _is_known(os.geteuid()):  # a container's `--user 4321`: initdb wants a name
            yield Mapped(*_ids(None))
        yield Unchanged()
        return
    uid, gid = _ids(owner or None)
    yield AsUser(uid, gid)
    yield PassingFolders(uid, gid)
    yield Mapped(*_ids(None))


def _ids(owner: int | None) -> tuple[int, int]:
    """The owner of the rows there are, so that an ordinary user can go on with them later; `nobody` where there are none."""
    with suppress(KeyError):
        user = pwd.getpwuid(owner) if owner is not None else pwd.getpwnam("nobody")
        return user.pw_uid, user.pw_gid
    return (NOBODY, NOBODY) if owner is None else (owner, owner)


def _is_known(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def _try(identity: Identity, program: Path, data_dir: Path) -> str:
    """The version line, or why there is none."""
    command = launcher([str(program), "--version"], identity=identity, folder=data_dir)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_TIMEOUT_S, check=False, env=ENVIRON)
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TRIAL_TIMEOUT_S:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else f"it ended with status {done.returncode}"


def _runner(identity: Identity, major: int) -> Runner:
    match identity:
        case AsUser(uid, gid) | PassingFolders(uid, gid):
            return Runner(identity, uid, gid, major)
        case Mapped() | Unchanged():
            return Runner(identity, os.geteuid(), os.getegid(), major)


def hand_over(cluster: Path, runner: Runner) -> None:
    """Make everything below the runner's, the top last, so that a hand-over that was cut short is done again."""
    if cluster.stat().st_uid == runner.uid:
        return
    for folder, _names, files in os.walk(cluster, topdown=False):
        for name in files:
            os.chown(Path(folder, name), runner.uid, runner.gid, follow_symlinks=False)
        os.chown(folder, runner.uid, runner.gid)
