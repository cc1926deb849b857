"""Which catalog `n4n up` leaves in force: docs/decisions/0003-catalog-of-up.md as a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from n4n.core.document import Document

AUTHOR = "n4n up"  # of versions that no operator has asked for
FILE_AUTHOR = "n4n up --catalog"  # of a file named on the command line


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version."""

    version: int
    author: str
    document: Document


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the wanted catalog the next version; `allow_shrink`: it replaces only what `n4n up` wrote."""

    allow_shrink: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the newest version; `note` says so where the operator may wonder, else it is empty."""

    note: str = ""


def decide(head: Head | None, wanted: Document, *, asked_for: bool) -> Apply | Keep:
    """`wanted` in normal form; `asked_for`: with --catalog."""
    if head is None:
        return Apply(allow_shrink=True)
    if head.document == wanted:
        return Keep()
    if asked_for:
        return Apply(allow_shrink=head.author in (AUTHOR, FILE_AUTHOR))
    if head.author == AUTHOR:
        return Apply(allow_shrink=True)
    return Keep(
        f"the catalog stays version {head.version}, made by {head.author}; for another one use `n4n catalog apply`, --catalog FILE, "
        "or another --data-dir"
    )


def stranded(head: Document, moved_ports: Mapping[str, int]) -> list[str]:
    """Simulated providers whose old port the catalog still names although they had to leave it."""
    urls = [str(provider.get("base_url", "")) for provider in head["providers"].values()]
    return [name for name, port in sorted(moved_ports.items()) if any(f"127.0.0.1:{port}/" in f"{url}/" for url in urls)]
