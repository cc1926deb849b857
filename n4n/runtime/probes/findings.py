"""Findings in Redis: one hash, a field for each. Whoever shows them reads all; probers set and take away single ones."""

from __future__ import annotations

from collections.abc import Iterable

from n4n.core.probes.findings import Finding, decoded, encoded
from n4n.runtime.stores import Command, Reply, command

KEY = "n4n:{probes}:findings"


def tell(finding: Finding) -> Command:
    """It stands."""
    return command(b"HSET", KEY, finding.name, encoded(finding))


def clear(names: Iterable[str]) -> Command:
    """They stand no more; at least one."""
    return command(b"HDEL", KEY, *names)


def ask() -> Command:
    """All of them."""
    return command(b"HGETALL", KEY)


def told(reply: Reply) -> list[Finding]:
    """What `ask` is answered, old ones included, by name."""
    if not isinstance(reply, list):
        return []
    found = (decoded(raw) for raw in reply[1::2] if isinstance(raw, bytes))
    return sorted((one for one in found if one is not None), key=lambda one: one.name)


def standing(findings: Iterable[Finding], now_ms: float) -> list[Finding]:
    """Those that are still believed."""
    return [one for one in findings if one.until_ms > now_ms]
