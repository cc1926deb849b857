"""Which n4n a command speaks to: --data-dir, else N4N_DATA_DIR, else .n4n here, else N4N_ADMIN_URL and N4N_ADMIN_TOKEN."""

from __future__ import annotations

import json
import os
import shlex
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from n4n.cli.output import Refused, note

RUNTIME = "runtime.json"
DEFAULT_DATA_DIR = ".n4n"


@dataclass(frozen=True, slots=True)
class Instance:
    """Where a running n4n answers. `told` is its whole runtime.json, empty where only the environment named it."""

    admin_url: str  # host:port, several with commas
    admin_token: str
    base_url: str  # ends in /v1; empty: not known
    api_key: str
    told: Mapping[str, object]

    def __repr__(self) -> str:
        return f"Instance({self.admin_url!r})"


def offer_instance(parser: ArgumentParser) -> None:
    """Adds `--data-dir`."""
    parser.add_argument("--data-dir", metavar="DIR", help="the data directory of a running `n4n up` (default: N4N_DATA_DIR, else .n4n)")


def locate(data_dir: str | None, environ: Mapping[str, str] = os.environ) -> Instance:
    """The running instance; Refused in one line when there is none."""
    named = data_dir or environ.get("N4N_DATA_DIR")
    folder = Path(named or DEFAULT_DATA_DIR).expanduser()
    told = read_runtime(folder)
    if told is not None and _is_alive(told.get("pid")):
        found, elsewhere = _instance(told), environ.get("N4N_ADMIN_URL")
        if named is None and elsewhere and elsewhere != found.admin_url:
            _say_once(f"n4n: asking the n4n up of {folder.resolve()}, not N4N_ADMIN_URL; for that one go to another folder")
        return found
    if data_dir is None and environ.get("N4N_ADMIN_URL"):
        return Instance(environ["N4N_ADMIN_URL"], environ.get("N4N_ADMIN_TOKEN", ""), "", "", {})
    start = f"`n4n up{f' --data-dir {shlex.quote(named)}' if named else ''}`"
    other = "" if named else ", name another data directory with --data-dir, or set N4N_ADMIN_URL and N4N_ADMIN_TOKEN"
    raise Refused(f"no n4n is running on {folder}: start it with {start}{other}")


@cache
def _say_once(line: str) -> None:
    note(line)


def read_runtime(folder: Path) -> dict[str, object] | None:
    """The runtime.json in a data directory; None when there is none. Refused when it cannot be read."""
    try:
        told = json.loads((folder / RUNTIME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise Refused(f"{folder / RUNTIME} may only be read by the user who started n4n: run the command as that user") from error
    except (OSError, ValueError) as error:
        raise Refused(f"{folder / RUNTIME} cannot be read: start n4n again") from error
    return cast(dict[str, object], told) if isinstance(told, dict) else None


def _instance(told: Mapping[str, object]) -> Instance:
    words = {name: str(told.get(name) or "") for name in ("admin_url", "admin_token", "base_url", "api_key")}
    return Instance(words["admin_url"], words["admin_token"], words["base_url"], words["api_key"], told)


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
