"""The two ends of a watch: what the control plane sends leads every node to the head, whatever it held and refused before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.lines import RING, Line, different
from control_plane.links import NONE, Link, Phase
from control_plane.publisher import backoff_s
from control_plane.service.updates import PART_BYTES, encode_update
from n4n.core.discovery import AlreadyHeld, Apply, Collector, Decision, Held, Ignore, More, Nack, NeedsNewStream, Part
from n4n.runtime.wire import CATALOG
from n4n.v1 import discovery_pb2

A, B, C = (1, "a"), (2, "b"), (3, "c")


def decoded(parts: tuple[bytes, ...]) -> list[discovery_pb2.Update]:
    return [discovery_pb2.WatchResponse.FromString(part).update for part in parts]


def test_nothing_is_due_of_an_empty_history_or_of_what_is_held() -> None:
    assert not Link(A).due(NONE)
    assert not Link(A).due(A)
    assert Link(A).due(B) and Link(B).due(A) and Link((1, "other")).due(A)


def test_one_version_is_under_way_at_a_time() -> None:
    link = Link()
    link.sent(A)
    assert not link.due(B) and repr(link) == "Link(awaiting, held=0, sent=1)"
    assert link.acked(*A) and link.due(B) and link.held == A


def test_a_refused_version_is_not_due_again_but_the_next_is() -> None:
    link = Link(A)
    link.sent(B)
    assert link.nacked(2, "endpoints.x") and not link.due(B) and link.due(C) and link.held == A
    assert link.due(A), "the head went back to what is held: the node says so by ACK"


def test_a_delta_that_did_not_fit_makes_the_whole_due_once() -> None:
    link = Link(A)
    link.sent(B)
    link.nacked(2, "checksum")
    assert link.held == NONE and link.due(B)
    link.sent(B)
    link.nacked(2, "checksum")
    assert not link.due(B) and link.phase is Phase.REFUSED


@pytest.mark.parametrize("version", [0, 1, 3])
def test_answers_about_what_is_not_under_way_change_nothing(version: int) -> None:
    link = Link(A)
    assert not link.acked(*A) and not link.nacked(1, "x")
    link.sent(B)
    assert not link.acked(version, "b") and not link.nacked(version, "x") and link.phase is Phase.AWAITING


def test_an_update_is_encoded_once_for_all_who_hold_the_same() -> None:
    line = Line(CATALOG)
    line.publish(1, {(1, "a"): b"1", (1, "b"): b"1"}, 5)
    first = line.head.held
    line.publish(2, {(1, "a"): b"1", (1, "c"): b"1"}, 6)
    assert line.updates_from(first) is line.updates_from(first)
    assert line.updates_from(NONE) is line.updates_from((9, "unknown"))
    (delta,) = decoded(line.updates_from(first))
    assert ([r.name for r in delta.upserts], [r.name for r in delta.removed], delta.committed_at_ms) == (["c"], ["b"], 6)
    assert (delta.base_version, delta.base_checksum) == first
    (whole,) = decoded(line.updates_from(NONE))
    assert ([r.name for r in whole.upserts], whole.base_version, whole.version) == (["a", "c"], 0, 2)


def test_a_version_that_is_no_longer_remembered_is_followed_by_the_whole() -> None:
    line = Line(CATALOG)
    line.publish(1, {}, 0)
    first = line.head.held
    for number in range(2, RING + 1):
        line.publish(number, {(1, "a"): str(number).encode()}, 0)
    assert decoded(line.updates_from(first))[0].base_version == 1
    line.publish(RING + 1, {}, 0)
    assert decoded(line.updates_from(first))[0].base_version == 0


def test_a_base_that_was_looked_up_is_followed_by_a_delta_also_of_later_versions() -> None:
    line = Line(CATALOG)
    line.publish(7, {(1, "a"): b"7", (1, "b"): b"1"}, 0)
    assert not line.knows((3, "c"))
    line.remember((3, "c"), different({(1, "a"): b"3", (1, "b"): b"1"}, line.head.resources))
    line.remember((2, "odd"), None)
    assert line.knows((3, "c")) and line.knows((2, "odd"))
    line.publish(8, {(1, "a"): b"7", (1, "c"): b"1"}, 0)
    (delta,) = decoded(line.updates_from((3, "c")))
    assert (delta.base_version, delta.base_checksum, delta.version) == (3, "c", 8)
    assert ([r.name for r in delta.upserts], [r.name for r in delta.removed]) == (["a", "c"], ["b"])
    assert decoded(line.updates_from((2, "odd")))[0].base_version == 0
    for number in range(100):
        line.remember((number, "another"), None)
    assert not line.knows((3, "c")), "only so many are kept"


@given(st.data())
def test_a_head_made_of_changes_is_the_one_published_whole(data: st.DataObject) -> None:
    carried, whole = Line(CATALOG), Line(CATALOG)
    resources = data.draw(contents)
    carried.publish(1, resources, 0)
    first = carried.head.held
    for number in range(2, 5):
        changed = data.draw(st.dictionaries(st.tuples(st.integers(1, 5), st.sampled_from("abcd")), st.sampled_from([None, b"1", b"2"])))
        carried.publish_changes(number, changed, number)
        resources = {name: body for name, body in {**resources, **changed}.items() if body is not None}
        whole.publish(number, resources, number)
        assert (carried.head.held, carried.head.resources) == (whole.head.held, resources)
    (delta,) = decoded(carried.updates_from(first))
    assert (delta.base_version, delta.version) == (1, 4)


def test_a_delta_without_any_difference_still_carries_its_version() -> None:
    line = Line(CATALOG)
    line.publish(1, {(1, "a"): b"1"}, 0)
    first = line.head.held
    line.publish(2, {(1, "a"): b"1"}, 0)
    (delta,) = decoded(line.updates_from(first))
    assert (delta.version, delta.parts, len(delta.upserts), delta.checksum) == (2, 1, 0, first[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 256 * 1024), max_size=30), st.integers(0, 30_000))
def test_parts_stay_under_a_mebibyte_and_lose_nothing(sizes: list[int], gone: int) -> None:
    upserts = {(4, f"e{index}"): b"x" * size for index, size in enumerate(sizes)}
    removed = [(4, f"{'n' * 90}{index}") for index in range(gone)]
    encoded = encode_update(CATALOG, (2, "c"), (1, "b"), upserts, removed, 0)
    parts = decoded(encoded)
    assert max(map(len, encoded)) < 1024 * 1024
    assert [(part.part, part.parts) for part in parts] == [(n, len(parts)) for n in range(len(parts))]
    assert {(r.kind, r.name): r.body for part in parts for r in part.upserts} == upserts
    assert sum(len(part.removed) for part in parts) == gone
    assert len(parts) <= 1 + 2 * sum(map(len, encoded)) // PART_BYTES


def test_waits_grow_and_are_bounded() -> None:
    assert all(0.1 <= backoff_s(failures) <= 5.0 for failures in range(1, 50))


class Node:
    """The router's machine at the far end."""

    def __init__(self) -> None:
        self.collector = Collector(CATALOG)

    def hears(self, part: discovery_pb2.Update) -> Decision:
        upserts = tuple(((r.kind, r.name), r.body) for r in part.upserts)
        removed = tuple((r.kind, r.name) for r in part.removed)
        return self.collector.receive(
            Part(CATALOG, part.version, part.checksum, part.base_version, part.base_checksum, upserts, removed, part.part, part.parts)
        )


steps = st.lists(st.sampled_from(["publish", "push", "push", "refuse", "reconnect", "forget", "restart"]), max_size=40)
contents = st.dictionaries(st.tuples(st.integers(1, 5), st.sampled_from("abcd")), st.sampled_from([b"1", b"2", b"3"]), max_size=6)


@settings(max_examples=200, deadline=None)
@given(steps, st.data())
def test_both_machines_together_always_arrive_at_the_head(script: list[str], data: st.DataObject) -> None:
    line, node, link, number = Line(CATALOG), Node(), Link(), 0
    for step in [*script, "publish", "push", "push"]:
        match step:
            case "publish":
                number += 1
                line.publish(number, data.draw(contents), number)
            case "reconnect":
                link = _said_hello(node)
            case "forget":  # the router lost its disk
                node, link = Node(), Link()
            case "restart":  # the control plane came back with an empty memory
                fresh = Line(CATALOG)
                if number:
                    fresh.publish(number, line.head.resources, number)
                line, link = fresh, _said_hello(node)
            case _:
                _push(line, link, node, accepts=step == "push")
    assert node.collector.held == Held(CATALOG, *line.head.held)
    assert node.collector.resources == line.head.resources


def _said_hello(node: Node) -> Link:
    held = node.collector.restart()
    return Link((held.version, held.checksum))


def _push(line: Line, link: Link, node: Node, *, accepts: bool) -> None:
    head = line.head.held
    if not link.due(head):
        return
    parts = decoded(line.updates_from(link.held))
    link.sent(head)
    for part in parts:
        match node.hears(part):
            case Apply(version, checksum) if accepts:
                node.collector.accept()
                assert link.acked(version, checksum)
            case Apply():
                nack = node.collector.refuse("endpoints.x", "not today")
                assert link.nacked(nack.version, nack.field)
            case AlreadyHeld():
                assert link.acked(part.version, part.checksum)
            case Nack(version, field) | NeedsNewStream(version, field):
                raise AssertionError(f"{version} {field}")
            case More() | Ignore():
                pass
