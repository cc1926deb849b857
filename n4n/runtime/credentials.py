"""The keys of our accounts at providers, as this process found them: in its environment or in files. They never travel.

`env:NAME` is read when a catalog comes into use, `file:PATH` then and whenever the file changes; both hold the bare key, or a
credential file as Google gives it out, of which access tokens are made. `env:GOOGLE_APPLICATION_CREDENTIALS` names such a file.
At Bedrock they hold one of the forms of n4n/core/dialects/bedrock/identity.py. `stored` cannot be resolved in this version. An
account that names no credential needs none, but at Vertex AI and at Bedrock: there it is what the machine has
(https://cloud.google.com/docs/authentication/application-default-credentials,
https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html).
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from n4n.core.catalog import Account, Provider, Snapshot
from n4n.core.dialects.bedrock.identity import Ambient, Profile
from n4n.runtime.aws_keys import AwsKeys, Keyless, Renewing, credential_of
from n4n.runtime.google_tokens import (
    KEY_FILE,
    GoogleCredential,
    GoogleTokens,
    Untokened,
    ambient_file,
    credential_in,
    machines_own,
)
from n4n.runtime.upstream.dial import Proxy

_MOST_BYTES = 64 * 1024
_FIRST_TOKEN_S = 1.0  # a catalog in which an account wants a new token waits so long for it, at most
_VERTEX = re.compile(r"(?:[a-z0-9-]+-)?aiplatform(?:\.[a-z0-9-]+\.rep)?\.googleapis\.com")
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


_Found = Secret | GoogleCredential | Renewing | None


class Unresolved(Exception):
    """An account's credential cannot be used; the message names neither value nor contents."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Every account of a catalog and its key, or what makes one: None where it has none, absent where it was not found."""

    secrets: Mapping[str, _Found] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)  # account: why it is not found
    files: Mapping[str, Stamp | None] = field(default_factory=dict)  # path: how it was when it was read

    def is_current(self) -> bool:
        """Whether every file is as it was; looks at the disk."""
        return all(_stamp(path) == stamp for path, stamp in self.files.items())


class Credentials:
    """What the accounts of the catalog in use resolve to; replaced as one value.

    `usable` are the accounts that have a key now, or need none. It changes with the catalog, with files, and when an access token
    or a key comes or ends unrenewed, which happens in their threads.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, proxy: Proxy | None = None) -> None:
        self._environ = environ
        self._resolution = Resolution()
        self._changing = threading.Lock()
        self._tokens = GoogleTokens(self._changed, proxy=proxy)
        self._aws = AwsKeys(self._changed)
        self.problems: Mapping[str, str] = {}  # why each account that cannot be used cannot
        self.usable: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Credentials({len(self.usable)} usable, {len(self.problems)} not found)"

    def reveal(self, account: str) -> str | None:
        """The account's key; None where it needs none. Only accounts in `usable` have an answer to trust."""
        match self._resolution.secrets.get(account):
            case Secret() as secret:
                return secret.reveal()
            case GoogleCredential() as credential:
                return self._tokens.token(credential)
            case Ambient() | Profile() as identity:
                return self._aws.key(identity)
        return None

    def resolve(self, accounts: Iterable[tuple[Account, Provider]]) -> Resolution:
        """Looks every account's credential up; reads files and gives a new access token a moment, so not for the event loop."""
        secrets: dict[str, _Found] = {}
        problems: dict[str, str] = {}
        files: dict[str, Stamp | None] = {}
        for account, provider in accounts:
            try:
                secrets[account.name] = self._look_up(account.credential, provider, files)
            except (Unresolved, Untokened, Keyless) as error:
                problems[account.name] = str(error)
        self._tokens.wait(_google(secrets), _FIRST_TOKEN_S)
        self._aws.wait(_aws(secrets), _FIRST_TOKEN_S)
        return Resolution(secrets, problems, files)

    def use(self, resolution: Resolution) -> None:
        """Puts a resolution into force and says in one line what is newly wrong."""
        with self._changing:
            self._resolution = resolution
            self._tokens.keep(_google(resolution.secrets))
            self._aws.keep(_aws(resolution.secrets))
            self._look_again()

    def _changed(self) -> None:
        """An access token was made or a key found, or could not be."""
        with self._changing:
            self._look_again()

    def close(self) -> None:
        """No access token is made and no key looked for from here on."""
        self._tokens.close()
        self._aws.close()

    def _look_again(self) -> None:
        """Who is usable now; a token that is still being made is no news."""
        before, problems, usable = self.problems, dict(self._resolution.problems), []
        for account, secret in self._resolution.secrets.items():
            if secret is None or self.reveal(account) is not None:
                usable.append(account)
            elif problem := self._problem(secret):
                problems[account] = problem
        self.problems, self.usable = problems, frozenset(usable)
        news = [f"{account} ({problem})" for account, problem in problems.items() if before.get(account) != problem]
        if news:
            _log.warning("accounts that are not used: %s", "; ".join(news))

    def _problem(self, secret: Secret | GoogleCredential | Renewing) -> str | None:
        match secret:
            case GoogleCredential():
                return self._tokens.problem(secret)
            case Ambient() | Profile():
                return self._aws.problem(secret)
        return None

    def is_current(self) -> bool:
        """Whether every credential file is as it was read; looks at the disk, so not for the event loop."""
        return self._resolution.is_current()

    def _look_up(self, credential: str | None, provider: Provider, files: dict[str, Stamp | None]) -> _Found:
        value = None if credential is None else self._value(credential, files)
        if provider.dialect == "bedrock":
            found = credential_of(value)
            return _secret(found, credential) if isinstance(found, str) else found
        if value is None:
            return self._ambient(files) if _VERTEX.fullmatch(urlsplit(provider.base_url).hostname or "") else None
        if credential == f"env:{KEY_FILE}":
            return _credential_file(value, files)
        return credential_in(value) or _secret(value, credential)

    def _value(self, credential: str, files: dict[str, Stamp | None]) -> str:
        scheme, _, where = credential.partition(":")
        match scheme:
            case "env":
                value = self._environ.get(where, "").strip()
                if not value:
                    raise Unresolved(f"the environment variable {where} is not set")
                return value
            case "file":
                return _read(where, files)
        raise Unresolved("stored credentials need a newer n4n; use env: or file:")

    def _ambient(self, files: dict[str, Stamp | None]) -> GoogleCredential:
        path = ambient_file(self._environ)
        return machines_own(self._environ) if path is None else _credential_file(path, files)


def accounts_of(catalog: Snapshot) -> list[tuple[Account, Provider]]:
    """Every account that an endpoint uses, once, with its provider."""
    used = {account.name: (account, endpoint.provider) for endpoint in catalog.endpoints.values() for account in endpoint.accounts}
    return list(used.values())


def _secret(value: str, credential: str | None) -> Secret:
    if not value.isascii() or not value.isprintable():
        raise Unresolved(f"its credential ({credential}) holds characters that no header can carry")
    return Secret(value)


def _google(secrets: Mapping[str, object]) -> list[GoogleCredential]:
    return [secret for secret in secrets.values() if isinstance(secret, GoogleCredential)]


def _aws(secrets: Mapping[str, object]) -> list[Renewing]:
    return [secret for secret in secrets.values() if isinstance(secret, Ambient | Profile)]


def _credential_file(path: str, files: dict[str, Stamp | None]) -> GoogleCredential:
    made = credential_in(_read(path, files))
    if made is None:
        raise Unresolved(f"the file {path} is no credential file of Google's")
    return made


def _read(path: str, files: dict[str, Stamp | None]) -> str:
    files[path] = _stamp(path)  # before it is read: a change in between is seen as one
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
