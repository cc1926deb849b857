"""The roles as a team runs them on several machines: each program in a process of its own, configured by N4N_* alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.house import PATIENCE_S, bare_environ, command_line, descendants, eventually, free_port

ROLLED = "the rolling restart is over"  # what a supervisor says then
ADMIN_TOKEN, NODE_TOKEN = "test-admin-token", "test-node-token"
_ONE_AFTER_ANOTHER = """
import contextlib, io, json, sys
from n4n.cli.__main__ import main
said = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        said.append([main(arguments), out, errors])
print(json.dumps([[code, out.getvalue(), errors.getvalue()] for code, out, errors in said]))
"""


@dataclass
class Role:
    """One program. It can be killed and started again."""

    name: str
    folder: Path
    environ: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        """Its standard output so far."""
        return self.folder / f"{self.name}.out"

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return (self.folder / f"{self.name}.err").read_text()

    def start(self) -> None:
        """Starts it; does not wait."""
        command = [sys.executable, "-m", "n4n", self.environ["ROLE"]]
        environ = {**bare_environ(), **{name: value for name, value in self.environ.items() if name != "ROLE"}}
        with self.output.open("ab") as out, (self.folder / f"{self.name}.err").open("ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def workers(self) -> list[int]:
        """The process ids of a data plane's workers, those on their way out too."""
        assert self.process is not None
        return sorted(pid for pid in descendants(self.process.pid) if "data-plane --worker" in command_line(pid))

    def replace_workers(self) -> None:
        """A rolling restart of a data plane, awaited."""
        assert self.process is not None
        before = self.errors.count(ROLLED)
        self.process.send_signal(signal.SIGUSR2)
        eventually(lambda: self.errors.count(ROLLED) > before, "the end of the rolling restart")


@dataclass
class Fleet:
    """One control plane and any number of data planes."""

    folder: Path
    database_url: str
    admin_port: int = field(default_factory=free_port)
    roles: list[Role] = field(default_factory=list)

    @property
    def admin_url(self) -> str:
        """The control plane's gRPC address."""
        return f"127.0.0.1:{self.admin_port}"

    def control_plane(self, **settings: str) -> Role:
        """A control plane, started."""
        told = {"ROLE": "control-plane", **self.control_plane_settings(**settings)}
        return self._begin(Role("control-plane", self.folder, told))

    def control_plane_settings(self, **settings: str) -> dict[str, str]:
        """Of this fleet's control plane."""
        return {
            "N4N_DATABASE_URL": self.database_url,
            "N4N_ADMIN_PORT": str(self.admin_port),
            "N4N_METRICS_PORT": "0",
            "N4N_ADMIN_TOKEN": ADMIN_TOKEN,
            "N4N_NODE_TOKEN": NODE_TOKEN,
            "N4N_DATA_DIR": str(self.folder / "control"),
            **settings,
        }

    def data_plane(self, name: str, *, admin_url: str | None = None, **settings: str) -> Role:
        """A data plane with one worker, started; N4N_PORT is in its `environ`."""
        told = {
            "ROLE": "data-plane",
            "N4N_ADMIN_URL": admin_url or self.admin_url,
            "N4N_NODE_TOKEN": NODE_TOKEN,
            "N4N_NODE": name,
            "N4N_PORT": str(free_port()),
            "N4N_DATA_DIR": str(self.folder / name),
            "N4N_LAME_DUCK_SEC": "0",  # no balancer in front, unless a test says so
            **settings,
        }
        return self._begin(Role(name, self.folder, told))

    def prober(self, name: str, redis_url: str, **settings: str) -> Role:
        """A prober, started; N4N_PROBER_PORT is in its `environ`."""
        told = {
            "ROLE": "prober",
            "N4N_ADMIN_URL": self.admin_url,
            "N4N_NODE_TOKEN": NODE_TOKEN,
            "N4N_REDIS_URL": redis_url,
            "N4N_NODE": name,
            "N4N_PROBER_PORT": str(free_port()),
            "N4N_DATA_DIR": str(self.folder / name),
            **settings,
        }
        return self._begin(Role(name, self.folder, told))

    def _begin(self, role: Role) -> Role:
        role.start()
        self.roles.append(role)
        return role

    def n4n(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One n4n command against the control plane."""
        environ = {
            **bare_environ(),
            "N4N_ADMIN_URL": self.admin_url,
            "N4N_ADMIN_TOKEN": ADMIN_TOKEN,
            "N4N_DATA_DIR": str(self.folder / "nobody"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "n4n", *arguments], capture_output=True, text=True, env=environ, timeout=PATIENCE_S, cwd=self.folder
        )
        assert not check or done.returncode == 0, f"n4n {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def tools(self, *asked: Sequence[str]) -> list[tuple[int, str, str]]:
        """Status, output and errors of several n4n commands, run in one process one after the other: a start costs half a second."""
        environ = {
            **bare_environ(),
            "N4N_ADMIN_URL": self.admin_url,
            "N4N_ADMIN_TOKEN": ADMIN_TOKEN,
            "N4N_DATA_DIR": str(self.folder / "nobody"),
        }
        command, given = [sys.executable, "-c", _ONE_AFTER_ANOTHER], json.dumps([list(one) for one in asked])
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=environ, timeout=2 * PATIENCE_S, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return [(code, out, errors) for code, out, errors in json.loads(done.stdout)]

    def told(self, *arguments: str) -> object:
        """The JSON that one n4n command prints."""
        return json.loads(self.n4n(*arguments, "-o", "json").stdout)

    def apply(self, document: Mapping[str, object], *more: str) -> None:
        """`n4n catalog apply`."""
        path = self.folder / "catalog.json"
        path.write_text(json.dumps(document))
        self.n4n("catalog", "apply", "-f", str(path), *more)

    def create_key(self, tenant: str = "acme", *rules: str) -> str:
        """A new key; `rules` as `n4n key create` takes them."""
        told = self.told("key", "create", "--tenant", tenant, *rules)
        assert isinstance(told, dict)
        return str(told["secret"] if "secret" in told else told["api_key"])


def ask(role: Role, key: str, **fields: object) -> tuple[int, dict[str, str], dict[str, object]]:
    """One chat request to a data plane: status, headers in lower case, body. Status 0: no answer."""
    body = {"model": "m", "messages": [{"role": "user", "content": "ping"}], **fields}
    request = urllib.request.Request(
        f"http://127.0.0.1:{role.environ['N4N_PORT']}/v1/chat/completions",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {name.lower(): value for name, value in error.headers.items()}, json.load(error)
    except OSError:
        return 0, {}, {}


def ready(role: Role) -> bool:
    """Whether a data plane's /ready says ok."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{role.environ['N4N_PORT']}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running_fleet(folder: Path, database_url: str) -> Iterator[Fleet]:
    """A fleet without members; what was started in it is stopped at the end."""
    fleet = Fleet(folder, database_url)
    try:
        yield fleet
    finally:
        left = [role.process for role in reversed(fleet.roles) if role.process is not None and role.process.poll() is None]
        for process in left:
            process.send_signal(signal.SIGTERM)
        for process in left:
            process.wait(PATIENCE_S)


__all__ = ["ADMIN_TOKEN", "NODE_TOKEN", "Fleet", "Role", "ask", "eventually", "ready", "running_fleet"]
