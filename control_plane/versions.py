"""What the next catalog version is to be: reads a document, compares it with the head, refuses what must not happen.

No database here. A version's content is a document in normal form and the endpoint states beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from control_plane.refusals import InvalidCatalog, InvalidRequest, NotFound, Shrinks
from n4n.core.checksum import collection_checksum
from n4n.core.document import KINDS, STATES, Document, canonical_json, differences, parse_document, removed_too_much
from n4n.core.errors import Problem
from n4n.core.schema import nearest
from n4n.runtime.wire import catalog_resources

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
MAX_RESOURCE_BYTES = 256 * 1024  # several fit into one message of the push
_NOT_TEXT = "holds a NUL or half of a character (an unpaired surrogate)"
EPOCH = datetime.fromtimestamp(0, UTC)
Change = tuple[str, str, str]  # path, before, after as JSON text; "" where absent


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """What history says of a version. `changes`: how many paths differ from the version before."""

    version: int
    author: str
    committed_at: datetime
    message: str
    checksum: str
    endpoints: int
    changes: int


@dataclass(frozen=True, slots=True)
class Content:
    """What routers serve: a document in normal form and the endpoint states that are not active."""

    document: Document
    states: Mapping[str, str]

    def view(self) -> dict[str, dict[str, dict[str, object]]]:
        """The document with each override shown as a field of its endpoint, for diffs."""
        shown = dict(self.document)
        shown["endpoints"] = {
            name: {**endpoint, "state": self.states[name]} if name in self.states else endpoint
            for name, endpoint in self.document["endpoints"].items()
        }
        return shown


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version."""

    info: VersionInfo
    content: Content
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A version about to be committed."""

    content: Content
    changes: tuple[Change, ...]
    checksum: str
    author: str
    message: str

    @property
    def endpoints(self) -> int:
        """How many endpoints it has."""
        return len(self.content.document["endpoints"])


NOTHING = Version(VersionInfo(0, "", EPOCH, "", "", 0, 0), Content({kind: {} for kind in KINDS}, {}), ())


class _Table(dict[str, object]):
    """A JSON object that remembers which of its names stood twice."""

    twice: tuple[str, ...] = ()


def _table(pairs: list[tuple[str, object]]) -> _Table:
    table = _Table(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        table.twice = tuple(sorted({name for name in names if names.count(name) > 1}))
    return table


def _faults_of_json(value: object, path: str) -> Iterator[Problem]:
    """Names that stand twice in one object, and text that Postgres and protobuf refuse: JSON's readers let both pass."""
    if isinstance(value, _Table):
        for name in value.twice:
            yield Problem(f"{path}.{name}".lstrip("."), "stands twice; names are unique, keep one")
        for name, inner in value.items():
            yield from _faults_of_json(name, f"{path}.{name}".lstrip("."))
            yield from _faults_of_json(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _faults_of_json(inner, f"{path}[{index}]")
    elif isinstance(value, str) and any("\ud800" <= c <= "\udfff" or c == "\0" for c in value):
        yield Problem(ascii(path)[1:-1], _NOT_TEXT)


def read_document(text: str) -> tuple[Document, list[Problem]]:
    """The normal form of a document given as JSON text, and everything wrong with it."""
    nothing = NOTHING.content.document
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_DOCUMENT_BYTES:
        return nothing, [Problem("", f"the document has {size} bytes; at most {MAX_DOCUMENT_BYTES} are taken")]
    try:
        raw = json.loads(text, object_pairs_hook=_table)
        unreadable = list(_faults_of_json(raw, ""))
    except RecursionError:
        return nothing, [Problem("", "the document is nested too deeply")]
    except ValueError as error:
        return nothing, [Problem("", f"the document is not JSON: {error}")]
    if any(problem.message == _NOT_TEXT for problem in unreadable):
        return nothing, unreadable
    document, problems = parse_document(raw)
    return document, unreadable + problems + ([] if problems else list(_too_large(document)))


def _too_large(document: Document) -> Iterator[Problem]:
    for (kind, name), body in catalog_resources(document, {}).items():
        if len(body) > MAX_RESOURCE_BYTES:
            section = KINDS[kind - 1]
            yield Problem(f"{section}.{name}", f"takes {len(body)} bytes; at most {MAX_RESOURCE_BYTES} per entry are taken")


def valid_document(text: str) -> Document:
    """The normal form; InvalidCatalog with every problem."""
    document, problems = read_document(text)
    if problems:
        raise InvalidCatalog(problems)
    return document


def apply_document(head: Version, document: Document, *, author: str, message: str, allow_shrink: bool) -> Draft | None:
    """The version that follows when a document is applied; overrides of endpoints that stay are kept. None: nothing differs."""
    shrinking = [] if allow_shrink else removed_too_much(head.content.document, document)
    if shrinking:
        raise Shrinks(shrinking)
    states = {name: state for name, state in head.content.states.items() if name in document["endpoints"]}
    return _draft(head, Content(document, states), author, message)


def set_state(head: Version, endpoint: str, state: str, *, author: str, message: str) -> Draft | None:
    """The version that follows when an endpoint is drained, disabled or enabled. None: it is in that state already."""
    if state not in STATES:
        raise InvalidRequest(f"state: must be one of {', '.join(STATES)}, not {state[:50]!r}")
    known = head.content.document["endpoints"]
    if endpoint not in known:
        raise NotFound(f"there is no endpoint named {endpoint[:100]!r}{nearest(endpoint[:100], known)}; see n4n endpoint list")
    states = {name: value for name, value in head.content.states.items() if name != endpoint}
    if state != "active":
        states[endpoint] = state
    return _draft(head, Content(head.content.document, states), author, message or f"endpoint {endpoint} {state}")


def roll_back(head: Version, old: Version, *, author: str, message: str, allow_shrink: bool) -> Draft | None:
    """The version that has an older one's document again; overrides stay as they are now. None: nothing differs."""
    document, problems = parse_document(old.content.document)
    if problems:  # written by an n4n with other rules
        raise InvalidCatalog(problems)
    told = f"rollback to version {old.info.version}"
    told = f"{told}: {message}" if message else told
    return apply_document(head, document, author=author, message=told, allow_shrink=allow_shrink)


def _draft(head: Version, content: Content, author: str, message: str) -> Draft | None:
    changes = changes_between(head.content, content)
    if not changes and head.info.version:  # an empty catalog is a first version too: routers wait for one
        return None
    return Draft(content, changes, collection_checksum(catalog_resources(content.document, content.states)), author, message)


def changes_between(before: Content, after: Content) -> tuple[Change, ...]:
    """Every path that differs, overrides included. Most entries are spelled alike: those are not looked into."""
    old, new = before.view(), after.view()
    for section in old:
        alike = [name for name, table in old[section].items() if name in new[section] and _alike(table, new[section][name])]
        old[section], new[section] = _without(old[section], alike), _without(new[section], alike)
    return tuple(differences(old, new))


def _alike(one: dict[str, object], other: dict[str, object]) -> bool:
    return one == other and canonical_json(one) == canonical_json(other)  # 1, 1.0 and true are equal to Python


def _without(section: Mapping[str, dict[str, object]], names: Iterable[str]) -> dict[str, dict[str, object]]:
    left = dict(section)
    for name in names:
        del left[name]
    return left


def document_text(document: Document) -> str:
    """How a document is stored."""
    return canonical_json(document)


def document_from(text: str) -> Document:
    """A stored document; it was valid when it was stored."""
    return cast(Document, json.loads(text))


def conflict_line(expected: int, head: int, since: list[tuple[VersionInfo, list[str]]]) -> str:
    """Who changed what and when since the version that was expected; `since` newest first, each with some changed paths."""
    if expected > head:
        return f"expect_version: there is no version {expected} yet, the catalog is at {head}; look at n4n catalog history"
    told = []
    for info, paths in since[:3]:
        more = f" and {info.changes - len(paths)} more" if info.changes > len(paths) else ""
        when = info.committed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        quoted = f' "{info.message[:80]}"' if info.message else ""
        told.append(f"version {info.version} by {info.author} at {when}{quoted} changed {', '.join(paths)}{more}")
    older = f"; {head - expected - len(told)} more before" if head - expected > len(told) else ""
    return f"expect_version: the catalog is at version {head}, not {expected}: {'; '.join(told)}{older}; look at n4n catalog diff"
