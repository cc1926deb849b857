"""What `n4n up` keeps in its data directory beside the stores' rows: format, secrets, the ports of simulated providers, runtime.json."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from n4n.cli.instance import RUNTIME
from n4n.core.errors import StartFailed

FORMAT = 1  # of everything in a data directory; a number that this program does not know stops the start


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made once per data directory. `api_key` is the first key, empty until it has been made."""

    admin_token: str
    node_token: str
    api_key: str = ""

    def __repr__(self) -> str:
        return "Secrets(…)"


@dataclass(frozen=True, slots=True)
class Home:
    """A claimed data directory (absolute path)."""

    path: Path

    def check_format(self) -> None:
        """StartFailed if a newer n4n wrote here; a fresh directory is marked with our number."""
        marker = self.path / "format"
        try:
            found = marker.read_text().strip()
        except FileNotFoundError:
            _write(marker, f"{FORMAT}\n")
            return
        if not found.isascii() or not found.isdigit():
            raise StartFailed(f"{marker} holds {found[:20]!r}, not a number: choose another data directory with --data-dir")
        if int(found) > FORMAT:
            raise StartFailed(
                f"{self.path} was written by a newer n4n (format {found}, this one knows {FORMAT}): "
                "start that version, or choose another directory with --data-dir"
            )

    def secrets(self) -> Secrets:
        """The secrets of this directory, made at the first start."""
        told = self._read("secrets.json")
        if told:
            return Secrets(str(told.get("admin_token")), str(told.get("node_token")), str(told.get("api_key") or ""))
        made = Secrets(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self.keep_secrets(made)
        return made

    def keep_secrets(self, kept: Secrets) -> None:
        """Replace the secrets file."""
        told = {"admin_token": kept.admin_token, "node_token": kept.node_token, "api_key": kept.api_key}
        _write(self.path / "secrets.json", json.dumps(told, indent=2) + "\n")

    def sim_ports(self) -> dict[str, int]:
        """The ports that simulated providers had last time, by name."""
        return {name: port for name, port in self._read("sim.json").items() if isinstance(port, int)}

    def keep_sim_ports(self, ports: Mapping[str, int]) -> None:
        """Remember them, so that the catalog goes on pointing at them."""
        _write(self.path / "sim.json", json.dumps(dict(ports), indent=2) + "\n")

    def begin(self) -> bool:
        """From here on a sudden end leaves a trace, and no command believes an old runtime.json.

        True: the last `n4n up` here left such a trace (kill -9), so that what it started may still be on its way out.
        """
        left_running = (self.path / "unfinished").exists()
        _write(self.path / "unfinished", "")
        self.withdraw()
        return left_running

    def announce(self, runtime: Mapping[str, object]) -> None:
        """Say that it is ready, to every other command."""
        _write(self.path / RUNTIME, json.dumps(runtime, indent=2) + "\n")

    def withdraw(self) -> None:
        """No longer ready."""
        (self.path / RUNTIME).unlink(missing_ok=True)

    def end(self) -> None:
        """Everything has stopped."""
        self.withdraw()
        (self.path / "unfinished").unlink(missing_ok=True)

    def _read(self, name: str) -> dict[str, object]:
        try:
            told = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StartFailed(f"{self.path / name} is damaged: remove it, n4n makes a new one") from error
        return told if isinstance(told, dict) else {}


def _write(path: Path, text: str) -> None:
    """Whole or not at all, mode 0600."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
