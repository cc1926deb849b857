"""What probers found that is no score: a probe that must be configured otherwise, an account that is out, a low balance, a failed check.

A finding is believed until an instant and told again before it comes, so that those of a dead prober, or of what left the catalog, fade.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What an operator should know."""

    MISCONFIGURED = "misconfigured"  # the probe is refused, or makes no request
    NO_CREDENTIAL = "no_credential"  # the prober has no key for any of its accounts
    ACCOUNT_OUT = "account_out"  # the provider denies it, or it has no money
    GONE = "gone"  # the provider does not offer the model any more
    LOW_BALANCE = "low_balance"
    CHECK_FAILED = "check_failed"  # it does not obey a system prompt, or a format


ALERTS = frozenset((Kind.ACCOUNT_OUT, Kind.GONE, Kind.LOW_BALANCE))


class Finding(msgspec.Struct, frozen=True):
    """`about`: `endpoint NAME` or `account NAME`; `by`: the prober's node; times in Unix ms.

    `capability` and `score`, in [0, 1]: of a failed check.
    """

    kind: Kind
    about: str
    message: str
    by: str
    since_ms: int
    until_ms: int
    capability: str = ""
    score: float | None = None

    @property
    def name(self) -> str:
        """Two findings of one name replace each other."""
        return name_of(self.kind, self.about, self.capability)


def name_of(kind: Kind, about: str, capability: str = "") -> str:
    """Of a finding."""
    return f"{kind} {about} {capability}".rstrip()


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Finding).decode


def encoded(finding: Finding) -> bytes:
    """As it is kept."""
    return _ENCODE(finding)


def decoded(raw: bytes) -> Finding | None:
    """None: another version wrote it, and it cannot be read."""
    try:
        return _DECODE(raw)
    except msgspec.DecodeError:
        return None
