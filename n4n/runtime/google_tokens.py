"""Access tokens of Google Cloud: made in a thread of their own and made anew well before they end, so that no request waits for one.

A credential is the text of a file that Google gives out (a service account's key, a workload's federation, a login) or the
machine's own service account, which its metadata server speaks for. Several accounts may share one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from n4n.core import json_bytes
from n4n.runtime.upstream.dial import Proxy

KINDS = ("service_account", "authorized_user", "external_account", "impersonated_service_account")
KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"  # names a file with one of these
METADATA_HOST = "metadata.google.internal"
AHEAD_S = 225.0  # as google-auth: metadata servers hand out the old token until four minutes before its end
_NO_LONGER_S = 10.0  # before its end a token is not used, for clocks differ and requests take time
_UNSAID_S = 1800.0  # how long a token counts where its end is not said
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # between tries that fail


@dataclass(frozen=True, slots=True)
class GoogleCredential:
    """What tokens are made from; its repr shows nothing of it."""

    text: str = field(default="", repr=False)  # of a file, one of KINDS
    metadata_host: str = ""  # where there is no file: whom to ask


@dataclass(frozen=True, slots=True)
class Token:
    """An access token and its end in Unix seconds, None: not said."""

    value: str = field(repr=False)
    ends: float | None


class Untokened(Exception):
    """There is no token; the message is a line that names neither address nor secret."""


class TokenMaker(Protocol):
    """Makes tokens of one credential, and blocks while it does."""

    def make(self) -> Token:
        """A new token, or Untokened."""
        ...


def credential_in(text: str) -> GoogleCredential | None:
    """The credential that a text is; None: it is none of Google's files (a bare key). Untokened: of a kind that cannot be used."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        kind = json_bytes.parse(text.encode())
    except json_bytes.NotJson as error:
        raise Untokened("its credential begins like a file of Google's, but is not valid JSON") from error
    kind = kind.get("type") if isinstance(kind, dict) else None
    if kind not in KINDS:
        raise Untokened(f"its credential is JSON, but none of Google's kinds ({', '.join(KINDS)})")
    return GoogleCredential(text)


def ambient_file(environ: Mapping[str, str]) -> str | None:
    """The file with the credential that this machine's user has, if there is one: named by the environment, or from gcloud's login."""
    named = environ.get(KEY_FILE, "").strip()
    if named:
        return named
    folder = environ.get("CLOUDSDK_CONFIG") or os.path.join(environ.get("HOME", ""), ".config", "gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    return path if os.path.isfile(path) else None


def machines_own(environ: Mapping[str, str]) -> GoogleCredential:
    """The service account of the machine; whether it has one shows when it is asked."""
    return GoogleCredential(metadata_host=environ.get("GCE_METADATA_HOST", "").strip() or METADATA_HOST)


class _Source:
    """One credential: its token as long as it holds, and when to see to it again. On the clock of `GoogleTokens`."""

    __slots__ = ("due", "ends", "failures", "maker", "problem", "token")

    def __init__(self, now: float) -> None:
        self.maker: TokenMaker | None = None
        self.token: str | None = None
        self.ends = now  # the token is not used from here on
        self.due = now
        self.failures = 0
        self.problem: str | None = None  # why the last try failed

    def made(self, token: Token, now: float, wall: float) -> None:
        lasts = _UNSAID_S if token.ends is None else token.ends - wall
        self.token, self.ends = token.value, now + lasts - min(_NO_LONGER_S, lasts / 4)
        self.due = max(now + _FIRST_PAUSE_S, now + lasts - min(AHEAD_S, lasts / 2))
        self.failures, self.problem = 0, None

    def failed(self, problem: str, now: float) -> None:
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self.failures)
        self.failures, self.problem = min(self.failures + 1, 10), problem
        self.due = min(now + pause, self.ends) if self.ends > now else now + pause  # its end is news too


class GoogleTokens:
    """The tokens of the credentials in use. One per process; every method may be called from any thread, and only `wait` waits.

    `changed` is called in the thread of the tokens after each try to make one. `make` gives the maker for a credential.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        *,
        proxy: Proxy | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        make: Callable[[GoogleCredential, Proxy | None], TokenMaker] | None = None,
    ) -> None:
        self._changed, self._proxy, self._clock, self._wall = changed, proxy, clock, wall
        self._make = make or _maker
        self._sources: dict[GoogleCredential, _Source] = {}
        self._state = threading.Condition()  # guards the sources; told after every try
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<GoogleTokens of {len(self._sources)} credentials{', closed' if self._closed else ''}>"

    def token(self, credential: GoogleCredential) -> str | None:
        """The token that is valid now; None: there is none."""
        source = self._sources.get(credential)
        return source.token if source is not None and self._clock() < source.ends else None

    def problem(self, credential: GoogleCredential) -> str | None:
        """Why the last try to make a token failed; None: it did not, or there was none yet."""
        source = self._sources.get(credential)
        return None if source is None else source.problem

    def keep(self, credentials: Iterable[GoogleCredential]) -> None:
        """From now on tokens of these, and of no others, are kept valid; the first try begins at once."""
        wanted = dict.fromkeys(credentials)
        with self._state:
            self._sources = {one: self._sources.get(one) or _Source(self._clock()) for one in wanted}
        self._begin()

    def wait(self, credentials: Iterable[GoogleCredential], seconds: float) -> None:
        """Lets new credentials have their first try, for so long at most; they are kept beside those in use. Not for the event loop."""
        wanted = set(credentials)
        with self._state:
            fresh = {one: _Source(self._clock()) for one in wanted if one not in self._sources}
            self._sources = {**self._sources, **fresh}
        if wanted:
            self._begin()
            with self._state:
                self._state.wait_for(lambda: all(self.token(one) or self.problem(one) for one in wanted), seconds)

    def close(self) -> None:
        """Ends the thread, after the call it may be in."""
        self._closed = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def round(self) -> float | None:
        """Makes every token that is due; seconds until the next one is, None: there are no credentials."""
        for credential, source in list(self._sources.items()):
            if not self._closed and source.due <= self._clock():
                self._try(credential, source)
        with self._state:
            due = min((source.due for source in self._sources.values()), default=None)
        return None if due is None else max(0.0, due - self._clock())

    def _try(self, credential: GoogleCredential, source: _Source) -> None:
        try:
            source.maker = source.maker or self._make(credential, self._proxy)
            token = source.maker.make()
        except Untokened as error:
            with self._state:
                source.failed(str(error), self._clock())
                self._state.notify_all()
        else:
            with self._state:
                source.made(token, self._clock(), self._wall())
                self._state.notify_all()
        self._changed()

    def _begin(self) -> None:
        with self._state:
            if self._sources and not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="google-tokens", daemon=True)
                self._thread.start()
        self._woken.set()

    def _run(self) -> None:
        while not self._closed:
            self._woken.clear()
            self._woken.wait(self.round())


def _maker(credential: GoogleCredential, proxy: Proxy | None) -> TokenMaker:
    from n4n.runtime.google_credentials import Maker  # 20 MB and 0.2 s, for those who use Google Cloud

    return Maker(credential, proxy)
