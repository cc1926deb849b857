"""The keys of our accounts at providers, as this process found them: in its environment or in files. They never travel.

`env:NAME` is read when a catalog comes into use, `file:PATH` then and whenever the file changes; a file holds the bare key.
`stored` cannot be resolved in this version. An account that names no credential needs none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from n4n.core.catalog import Account, Snapshot

_MOST_BYTES = 64 * 1024
_log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]  # inode, size, time of change (ns)


class Secret:
    """A key; its repr hides it, and only `reveal` gives it out."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def reveal(self) -> str:
        """The key in clear: for the header of a request, and nothing else."""
        return self._value


class Unresolved(Exception):
    """An account's credential cannot be used; the message names neither value nor contents."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Every account of a catalog and its key: None where it has none, absent where it was not found."""

    secrets: Mapping[str, Secret | None] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)  # account: why it is not found
    files: Mapping[str, Stamp | None] = field(default_factory=dict)  # path: how it was when it was read

    def is_current(self) -> bool:
        """Whether every file is as it was; looks at the disk."""
        return all(_stamp(path) == stamp for path, stamp in self.files.items())


class Credentials:
    """What the accounts of the catalog in use resolve to; replaced as one value."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._resolution = Resolution()
        self.usable: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Credentials({len(self.usable)} usable, {len(self._resolution.problems)} not found)"

    @property
    def problems(self) -> Mapping[str, str]:
        """Why each account that cannot be used is not found."""
        return self._resolution.problems

    def reveal(self, account: str) -> str | None:
        """The account's key; None where it needs none. Only accounts in `usable` have an answer to trust."""
        secret = self._resolution.secrets.get(account)
        return None if secret is None else secret.reveal()

    def resolve(self, accounts: Iterable[Account]) -> Resolution:
        """Looks every account's credential up; reads files, so not for the event loop."""
        secrets: dict[str, Secret | None] = {}
        problems: dict[str, str] = {}
        files: dict[str, Stamp | None] = {}
        for account in accounts:
            try:
                secrets[account.name] = self._look_up(account.credential, files)
            except Unresolved as error:
                problems[account.name] = str(error)
        return Resolution(secrets, problems, files)

    def use(self, resolution: Resolution) -> None:
        """Puts a resolution into force and says in one line what is newly wrong."""
        before = self._resolution.problems
        self._resolution, self.usable = resolution, frozenset(resolution.secrets)
        news = [f"{account} ({problem})" for account, problem in resolution.problems.items() if before.get(account) != problem]
        if news:
            _log.warning("accounts that are not used: %s", "; ".join(news))

    def is_current(self) -> bool:
        """Whether every credential file is as it was read; looks at the disk, so not for the event loop."""
        return self._resolution.is_current()

    def _look_up(self, credential: str | None, files: dict[str, Stamp | None]) -> Secret | None:
        if credential is None:
            return None
        scheme, _, where = credential.partition(":")
        match scheme:
            case "env":
                value = self._environ.get(where, "").strip()
                if not value:
                    raise Unresolved(f"the environment variable {where} is not set")
            case "file":
                files[where] = _stamp(where)  # before it is read: a change in between is seen as one
                value = _read(where)
            case _:
                raise Unresolved("stored credentials need a newer n4n; use env: or file:")
        if not value.isascii() or not value.isprintable():
            raise Unresolved(f"its credential ({scheme}:{where}) holds characters that no header can carry")
        return Secret(value)


def accounts_of(catalog: Snapshot) -> list[Account]:
    """Every account that an endpoint uses, once."""
    return list({account.name: account for endpoint in catalog.endpoints.values() for account in endpoint.accounts}.values())


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Unresolved(f"the file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Unresolved("its file has no valid path") from error
    value = content.decode("utf-8", "replace").strip()
    if not value or len(content) > _MOST_BYTES:
        raise Unresolved(f"the file {path} must hold the bare key and nothing else")
    return value


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
