"""What Redis may answer, and what an error of its means for us. No I/O.

An error's text can hold keys and arguments: only its first word, and the place in a redirection, are ever read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Reply = bytes | int | None | list["Reply"]  # RESP2; a status is bytes too


class ReplyError(Exception):
    """An error as Redis sent it; its text stays in here."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The slot is another node's for good."""

    slot: int
    host: bytes
    port: int


@dataclass(frozen=True, slots=True)
class Ask:
    """The slot is on its way to another node, and this key is there already."""

    host: bytes
    port: int


@dataclass(frozen=True, slots=True)
class NoScript:
    """The server does not have the script; it did not run."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """The cluster cannot serve this slot at the moment; the node itself is well."""

    code: str


@dataclass(frozen=True, slots=True)
class Ill:
    """The server does nothing for anybody: as good as no answer."""

    code: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """It is not, or no longer, the server we want, or does not know us any more: look for it and greet it anew."""

    code: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This command is not carried out: it is at fault, or our rights, or the server's means (OOM, MISCONF, NOREPLICAS)."""

    code: str


Verdict = Moved | Ask | NoScript | NotNow | Ill | Wrong | Refused

_REDIRECTION = re.compile(r"(?:MOVED|ASK) ([0-9]{1,5}) (\S*):([0-9]{1,5})$")  # an IPv6 host holds colons
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,31}(?![^\s])")
_ILL = frozenset({"LOADING", "MASTERDOWN", "BUSY"})  # told to a PING too, so the breaker stays open for as long
_WRONG = frozenset({"READONLY", "NOAUTH"})
_NOT_NOW = frozenset({"CLUSTERDOWN", "TRYAGAIN"})


def code_of(text: str) -> str:
    """The first word of an error, ERR where it has no proper one."""
    found = _CODE.match(text)
    return found[0] if found else "ERR"


def verdict(text: str) -> Verdict:
    """What an error reply means."""
    code = code_of(text)
    if code in ("MOVED", "ASK"):
        return _redirection(code, text)
    if code == "NOSCRIPT":
        return NoScript()
    if code in _NOT_NOW:
        return NotNow(code)
    if code in _ILL:
        return Ill(code)
    return Wrong(code) if code in _WRONG else Refused(code)


def _redirection(code: str, text: str) -> Verdict:
    found = _REDIRECTION.match(text)
    if found is None or not 0 < int(found[3]) < 65_536 or int(found[1]) > 16_383:
        return NotNow(code)
    host, port = found[2].strip("[]").encode(), int(found[3])
    return Moved(int(found[1]), host, port) if code == "MOVED" else Ask(host, port)
