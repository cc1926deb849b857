"""What the next catalog version is to be, and what may not be one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from control_plane.refusals import InvalidCatalog, InvalidRequest, NotFound, Shrinks
from control_plane.versions import (
    NOTHING,
    Content,
    Draft,
    Version,
    VersionInfo,
    apply_document,
    conflict_line,
    document_from,
    document_text,
    read_document,
    roll_back,
    set_state,
    valid_document,
)
from n4n.core.catalog import collection_checksum
from n4n.core.document import parse_document
from n4n.runtime.wire import catalog_resources
from tests.support.catalogs import FULL, SMALL, Raw, changed, documents

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def committed(draft: Draft | None, number: int) -> Version:
    assert draft is not None
    info = VersionInfo(number, draft.author, AT, draft.message, draft.checksum, draft.endpoints, len(draft.changes))
    return Version(info, draft.content, draft.changes)


def applied(head: Version, raw: Raw, *, allow_shrink: bool = False) -> Draft | None:
    return apply_document(head, valid_document(json.dumps(raw)), author="ann", message="", allow_shrink=allow_shrink)


def first(raw: Raw) -> Version:
    return committed(applied(NOTHING, raw), 1)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read_document(text)[1]]


@settings(max_examples=50, deadline=None)
@given(documents())
def test_a_stored_document_reads_back_as_it_was_and_keeps_its_checksum(raw: Raw) -> None:
    document = valid_document(json.dumps(raw))
    stored = document_from(document_text(document))
    again, faults = parse_document(stored)
    assert not faults and again == document
    assert collection_checksum(catalog_resources(stored, {})) == collection_checksum(catalog_resources(document, {}))
    assert applied(committed(apply_document(NOTHING, stored, author="", message="", allow_shrink=False), 1), raw) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the document is not JSON: Expecting property name"),
        ("", "the document is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "the document is not JSON"),
        ('"x"', "the catalog must be a map"),
        ('{"providers": {"a": {"dialect": "openai", "base_url": "https://x.example"}, "a": {}}}', "providers.a: stands twice"),
        ('{"models": {"m": {"aliases": ["x"], "aliases": ["y"]}}}', "models.m.aliases: stands twice"),
        ('{"models": {}, "models": {}}', "models: stands twice"),
        ('{"tiers": {"x": {"chain": ["\\ud800"]}}}', "tiers.x.chain[0]: holds a NUL or half of a character"),
        ('{"endpoints": {"\\udfff": {}}}', "endpoints.\\udfff: holds a NUL or half of a character"),
        ('{"endpoints": {"e": {"body": {"a\\u0000b": 1}}}}', "endpoints.e.body.a\\x00b: holds a NUL"),
        ('{"endpoints": {"e": {"weight": NaN, "model": "m", "account": "a"}}}', "endpoints.e.weight: must be a number"),
        ('{"endpoints": {"e": {"price": {"input_per_1m": Infinity}, "model": "m", "account": "a"}}}', "input_per_1m: must be an amount"),
    ],
)
def test_what_json_lets_pass_is_refused_with_its_path(text: str, said: str) -> None:
    assert any(said in problem for problem in problems(text)), problems(text)


def test_a_document_that_is_too_large_is_refused_unread() -> None:
    assert problems('{"models": {}}' + " " * (16 * 1024 * 1024)) == ["the document has 16777230 bytes; at most 16777216 are taken"]


def test_every_problem_comes_at_once() -> None:
    broken = changed(changed(SMALL, "accounts", "acme-main", "provider", to="nobody"), "endpoints", "acme-small", "weight", to=-1)
    with pytest.raises(InvalidCatalog) as refused:
        valid_document(json.dumps(broken))
    assert [problem.field for problem in refused.value.problems] == ["endpoints.acme-small.weight", "accounts.acme-main.provider"]
    assert str(refused.value).endswith("(and 1 more)")


def test_an_apply_keeps_the_overrides_of_endpoints_that_stay() -> None:
    head = committed(set_state(first(FULL), "acme-large", "draining", author="ops", message=""), 2)
    head = committed(set_state(head, "house-small", "disabled", author="ops", message="it is hot"), 3)
    assert head.info.message == "it is hot" and head.changes == (("endpoints.house-small.state", "", '"disabled"'),)
    draft = applied(head, changed(FULL, "endpoints", "house-small", to=...), allow_shrink=True)
    assert draft is not None and draft.content.states == {"acme-large": "draining"}
    assert committed(set_state(committed(draft, 4), "acme-large", "active", author="", message=""), 5).content.states == {}


def test_an_override_is_part_of_the_checksum() -> None:
    head = first(FULL)
    assert committed(set_state(head, "acme-large", "draining", author="", message=""), 2).info.checksum != head.info.checksum


def test_an_override_must_name_an_endpoint_and_a_state() -> None:
    with pytest.raises(NotFound, match=r"no endpoint named 'acme-larg' \(did you mean acme-large\?\)"):
        set_state(first(FULL), "acme-larg", "draining", author="", message="")
    with pytest.raises(InvalidRequest, match="active, draining, disabled"):
        set_state(first(FULL), "acme-large", "asleep", author="", message="")
    assert set_state(first(FULL), "acme-large", "active", author="", message="") is None


def test_shrinking_is_refused_also_by_a_rollback() -> None:
    old = first(SMALL)
    head = committed(applied(old, FULL, allow_shrink=True), 2)
    with pytest.raises(Shrinks, match="allow-shrink"):
        roll_back(head, old, author="", message="", allow_shrink=False)
    assert committed(roll_back(head, old, author="", message="", allow_shrink=True), 3).info.message == "rollback to version 1"


def test_a_rollback_to_what_this_version_would_refuse_is_refused() -> None:
    head = first(SMALL)
    unknown = replace(head, content=Content({**head.content.document, "novel": {}}, {}))
    with pytest.raises(InvalidCatalog, match="novel"):
        roll_back(head, unknown, author="", message="", allow_shrink=False)


def test_a_conflict_tells_the_newest_changes_and_how_many_more() -> None:
    since = [(VersionInfo(n, f"a{n}", AT, "why" * (n % 2), "", 1, 5), ["a.b", "c.d"]) for n in (9, 8, 7)]
    assert conflict_line(3, 9, since) == (
        'expect_version: the catalog is at version 9, not 3: version 9 by a9 at 2026-01-02T03:04:05Z "why" changed a.b, c.d and 3 more; '
        "version 8 by a8 at 2026-01-02T03:04:05Z changed a.b, c.d and 3 more; "
        'version 7 by a7 at 2026-01-02T03:04:05Z "why" changed a.b, c.d and 3 more; 3 more before; look at n4n catalog diff'
    )
