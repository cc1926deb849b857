"""Stored catalog versions as resources. Consecutive versions differ in a few entries: only those are read and encoded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import msgspec

from n4n.core.document import Document, Table, parse_document, read_entry
from n4n.core.errors import Problem
from n4n.core.schema import Problems
from n4n.runtime.wire import Resources, catalog_resources

_Spelled = dict[str, dict[str, msgspec.Raw]]


@dataclass(frozen=True, slots=True, repr=False)
class StoredCatalog:
    """A version as Postgres has it: canonical JSON, and the endpoint states beside it that are not active."""

    version: int
    committed_at: datetime
    document: str
    states: Mapping[str, str]
    traceparent: str | None = None  # of the call that committed it, where that was traced


class Unreadable(Exception):
    """A version that a newer n4n wrote and this one cannot read; the text is its first problem."""


class Reading:
    """Remembers how each entry of the version read last was spelled and what it is. One thread at a time."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], tuple[bytes, Table]] = {}

    def resources(self, stored: StoredCatalog) -> Resources:
        """What routers get of a version; Unreadable."""
        return catalog_resources(self._document(stored.document), stored.states)

    def _document(self, text: str) -> Document:
        raw, entries = self._spelled(text)

        def read(kind: str, name: str, table: object, problems: Problems) -> Table:
            known = self._entries.get((kind, name))
            return known[1] if known is not None and known[1] is table else read_entry(kind, name, table, problems)

        document, problems = parse_document(raw, read)
        if problems:
            raise Unreadable(str(problems[0]))
        self._entries = {(kind, name): (spelling, document[kind][name]) for (kind, name), spelling in entries.items()}
        return document

    def _spelled(self, text: str) -> tuple[Document, dict[tuple[str, str], bytes]]:
        raw: Document = {}
        entries: dict[tuple[str, str], bytes] = {}
        try:
            sections = msgspec.json.decode(text, type=_Spelled)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unreadable(str(Problem("", f"is no document: {error}"))) from error
        for kind, section in sections.items():
            raw[kind] = {}
            for name, spelled in section.items():
                spelling = bytes(spelled)
                known = self._entries.get((kind, name))
                raw[kind][name] = known[1] if known is not None and known[0] == spelling else cast(Table, json.loads(spelling))
                entries[(kind, name)] = spelling
        return raw, entries
