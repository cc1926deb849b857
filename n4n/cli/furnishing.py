"""`n4n up`'s side of the first catalog and the first key: a child program that may import grpc, told what is wanted, asked what came of it.

The wish goes in by a file without a name, because it holds a token and a catalog larger than a pipe; the answer comes back the same way.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

from n4n.cli.output import Refused
from n4n.core.errors import StartFailed
from n4n.runtime.process import launcher, own_command

COMMAND = "furnish"


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall be there: this catalog (see docs/decisions/0003), a key that works, and `workers` routers that hold both."""

    admin_url: str
    admin_token: str
    document_json: str
    asked_for: bool  # the operator named the catalog, with --catalog
    message: str
    api_key: str  # of an earlier start, empty: none
    base_url: str  # where the routers will answer
    workers: int
    sim_ports: tuple[int, ...]  # of the simulated providers that this start has started
    moved_ports: Mapping[str, int]  # simulated providers that had to leave this old port


@dataclass(frozen=True, slots=True)
class Furnished:
    """What is there now. `notes` are lines for the person who started it."""

    version: int
    api_key: str
    example_model: str | None  # one that a request would reach
    obstacle: str  # where there is none: why
    notes: tuple[str, ...]


class Furnishing:
    """The child program, while it works."""

    def __init__(self, wish: Wish, folder: Path, environ: Mapping[str, str], errors: IO[bytes]) -> None:
        self._answer = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # open until `stop`
        with tempfile.TemporaryFile(dir=folder) as told:
            told.write(json.dumps(asdict(wish)).encode())
            told.seek(0)
            self._child = subprocess.Popen(
                launcher(own_command(COMMAND), signal.SIGKILL),
                stdin=told,
                stdout=self._answer,
                stderr=errors,
                env=environ,
                start_new_session=True,
            )

    def __repr__(self) -> str:
        return f"<Furnishing: pid {self._child.pid}>"

    @property
    def is_done(self) -> bool:
        """Whether `answer` can be asked for."""
        return self._child.poll() is not None

    def answer(self) -> Furnished:
        """What came of it. Refused or StartFailed when nothing did."""
        self._answer.seek(0)
        try:
            told = cast(dict[str, object], json.loads(self._answer.read()))
        except ValueError as error:
            raise StartFailed(f"the first catalog could not be put in place (status {self._child.returncode}); see n4n-up.log") from error
        if "refused" in told:
            raise Refused(*map(str, cast(list[str], told["refused"])))
        notes = tuple(map(str, cast(list[str], told["notes"])))
        model = cast(str | None, told["example_model"])
        return Furnished(cast(int, told["version"]), str(told["api_key"]), model, str(told["obstacle"]), notes)

    def stop(self) -> None:
        """End it, wherever it is; it holds nothing that must be saved."""
        self._child.kill()
        self._child.wait()
        self._answer.close()
