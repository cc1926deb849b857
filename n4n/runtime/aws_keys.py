"""Access keys that AWS changes by itself: of a role, a single sign-on, a container or an instance. Kept fresh in one thread.

A request reads what is there and never waits; an account whose key is missing or has ended is not usable. botocore finds the keys
and knows when to renew them, a quarter of an hour before they end; here it is asked once a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Protocol, cast

from n4n.core.dialects.bedrock.identity import Ambient, ApiKey, Profile, Unreadable, read_identity
from n4n.runtime.signing import NOT_INSTALLED, can_sign, get_ready

Renewing = Profile | Ambient
PERIOD_S = 60.0
PAUSE_S = 5.0  # after a first try that failed; it doubles up to the period


class Keyless(Exception):
    """There is no key; the message is a line that may be shown."""


def credential_of(value: str | None) -> str | Renewing:
    """What an account at Bedrock has: a key as text, or an identity whose keys change. Keyless: neither can be used here.

    Whoever signs gets ready for it, which takes a moment: not for the event loop.
    """
    match read_identity(value):
        case Unreadable(why=why):
            raise Keyless(why)
        case ApiKey(value=key):
            return key
        case identity:
            if not can_sign():
                raise Keyless(NOT_INSTALLED)
            get_ready()
            return identity if isinstance(identity, Profile | Ambient) else " ".join((value or "").split())  # JSON on one line


class KeySource(Protocol):
    """Finds the keys of one identity, and blocks while it does."""

    def key(self) -> str:
        """The key that is valid now as ID:SECRET or ID:SECRET:TOKEN, renewed if that is due. Keyless: there is none."""
        ...


class AwsKeys:
    """The keys of the identities in use. One per process; every method may be called from any thread, and only `wait` waits.

    `changed` is called in the thread of the keys when one came, changed or ended. `find` gives the source for an identity.
    """

    def __init__(self, changed: Callable[[], None], *, find: Callable[[Renewing], KeySource] | None = None) -> None:
        self._changed = changed
        self._find = find or _source
        self._sources: dict[Renewing, KeySource] = {}
        self._keys: dict[Renewing, str | None] = {}  # of those that were looked for
        self._problems: dict[Renewing, str] = {}
        self._wanted: tuple[Renewing, ...] = ()
        self._state = threading.Condition()  # guards all of these; told after every try
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0  # rounds in a row in which a key was not found
        self._closed = False

    def __repr__(self) -> str:
        return f"<AwsKeys of {len(self._wanted)} identities{', closed' if self._closed else ''}>"

    def key(self, identity: Renewing) -> str | None:
        """The key that is valid now; None: there is none."""
        return self._keys.get(identity)

    def problem(self, identity: Renewing) -> str | None:
        """Why there is none; None: there is one, or nobody has looked yet."""
        return self._problems.get(identity)

    def keep(self, identities: Iterable[Renewing]) -> None:
        """From now on the keys of these, and of no others, are kept fresh."""
        with self._state:
            self._wanted = tuple(dict.fromkeys(identities))
            for known in (self._sources, self._keys, self._problems):
                for identity in [one for one in known if one not in self._wanted]:
                    del known[identity]
        self._begin()

    def wait(self, identities: Iterable[Renewing], seconds: float) -> None:
        """Lets new identities be looked for, for so long at most; they are kept beside those in use. Not for the event loop."""
        wanted = tuple(identities)
        if not wanted:
            return
        with self._state:
            self._wanted = tuple(dict.fromkeys((*self._wanted, *wanted)))
        self._begin()
        with self._state:
            self._state.wait_for(lambda: all(one in self._keys for one in wanted), seconds)

    def close(self) -> None:
        """Ends the thread, after the call it may be in."""
        self._closed = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def round(self) -> float | None:
        """Looks at every key; seconds until the next round, None: there are no identities."""
        for identity in self._wanted:
            if not self._closed:
                self._look(identity)
        self._failures = self._failures + 1 if self._problems else 0
        if not self._wanted:
            return None
        return min(PERIOD_S, PAUSE_S * 2 ** min(self._failures - 1, 10)) if self._failures else PERIOD_S

    def _look(self, identity: Renewing) -> None:
        before = self._keys.get(identity), self._problems.get(identity)
        key, problem = None, None
        try:
            source = self._sources.get(identity) or self._find(identity)
            self._sources[identity] = source
            key = source.key()
        except Keyless as error:
            problem = str(error)
        with self._state:
            if identity not in self._wanted:
                return
            self._keys[identity] = key
            self._problems.pop(identity, None)
            if problem is not None:
                self._problems[identity] = problem
            self._state.notify_all()
        if (key, problem) != before:
            self._changed()

    def _begin(self) -> None:
        with self._state:
            if self._wanted and not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="aws-keys", daemon=True)
                self._thread.start()
        self._woken.set()

    def _run(self) -> None:
        while not self._closed:
            self._woken.clear()
            self._woken.wait(self.round())


def _source(identity: Renewing) -> KeySource:
    module = import_module("n4n.runtime.aws_session")  # large, and only for those who use AWS
    return cast(Callable[[Renewing], KeySource], module.Source)(identity)
