"""The collector of one collection and the rules of its link: every phase against every event, and chance against both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import collection_checksum
from n4n.core.discovery import (
    MOST_PARTS,
    QUIET_HEARTBEATS,
    AlreadyHeld,
    Apply,
    AtHead,
    Behind,
    Collector,
    Held,
    Ignore,
    IllegalEvent,
    LinkRules,
    More,
    Nack,
    NeedsNewStream,
    Part,
    Phase,
    ResourceId,
    Tries,
    answered,
    next_try,
)

Map = dict[ResourceId, bytes]
A, B, C = (4, "a"), (4, "b"), (5, "c")
OLD: Map = {A: b"1", B: b"2"}
NEW: Map = {A: b"1", B: b"3", C: b"4"}


def snapshot(version: int, resources: Map, parts: int = 1) -> list[Part]:
    """A whole collection in so many parts."""
    items = sorted(resources.items())
    total = collection_checksum(resources)
    return [Part(1, version, total, upserts=tuple(items[part::parts]), part=part, parts=parts) for part in range(parts)]


def change(base: tuple[int, Map], target: tuple[int, Map], parts: int = 1) -> list[Part]:
    """The way from one version to another in so many parts."""
    (base_version, before), (version, after) = base, target
    upserts = [(name, body) for name, body in sorted(after.items()) if before.get(name) != body]
    removed = sorted(name for name in before if name not in after)
    sums = collection_checksum(after), base_version, collection_checksum(before)
    return [
        Part(1, version, *sums, tuple(upserts[part::parts]), tuple(removed[part::parts]), part=part, parts=parts) for part in range(parts)
    ]


def holding(version: int, resources: Map) -> Collector:
    collector = Collector(1)
    assert isinstance(collector.receive(snapshot(version, resources)[0]), Apply)
    collector.accept()
    return collector


def idle() -> Collector:
    return holding(1, OLD)


def gathering() -> Collector:
    collector = idle()
    assert collector.receive(change((1, OLD), (2, NEW), parts=3)[0]) == More()
    return collector


def judging() -> Collector:
    collector = idle()
    assert isinstance(collector.receive(change((1, OLD), (2, NEW))[0]), Apply)
    return collector


def lost() -> Collector:
    collector = idle()
    assert isinstance(collector.receive(snapshot(2, NEW, parts=2)[1]), NeedsNewStream)
    return collector


def test_a_snapshot_is_offered_whole_and_held_only_once_accepted() -> None:
    collector = Collector(1)

    decision = collector.receive(snapshot(1, OLD)[0])

    assert decision == Apply(1, collection_checksum(OLD), OLD)
    assert collector.held == Held(1)
    assert collector.accept() == Held(1, 1, collection_checksum(OLD)) == collector.held
    assert collector.resources == OLD


def test_a_change_from_what_is_held_leads_to_the_new_version() -> None:
    collector = idle()

    decision = collector.receive(change((1, OLD), (2, {A: b"9", C: b"4"}))[0])

    assert isinstance(decision, Apply) and decision.resources == {A: b"9", C: b"4"}
    assert collector.resources == OLD


def test_parts_are_offered_together_when_the_last_has_come() -> None:
    collector = idle()
    first, second, third = change((1, OLD), (2, NEW), parts=3)

    assert [collector.receive(first), collector.receive(second)] == [More(), More()]
    assert isinstance(collector.receive(third), Apply)
    collector.accept()
    assert collector.resources == NEW


def test_a_snapshot_replaces_whatever_is_held_even_something_newer() -> None:
    collector = holding(9, NEW)

    assert isinstance(collector.receive(snapshot(3, OLD)[0]), Apply)
    collector.accept()

    assert (collector.held.version, collector.resources) == (3, OLD)


def test_a_refused_version_leaves_the_last_good_in_place_and_the_next_one_applies() -> None:
    collector = judging()

    assert collector.refuse("endpoints.x", "is odd") == Nack(2, "endpoints.x", "is odd")

    assert (collector.held.version, collector.resources, collector.phase) == (1, OLD, Phase.IDLE)
    assert isinstance(collector.receive(change((1, OLD), (3, NEW))[0]), Apply)


def test_what_is_held_already_is_acknowledged_again_at_its_last_part_only() -> None:
    collector = holding(2, NEW)

    assert [collector.receive(part) for part in snapshot(2, NEW, parts=2)] == [Ignore("this version is held already"), AlreadyHeld()]


def test_a_change_to_an_older_version_is_ignored() -> None:
    collector = holding(5, NEW)

    assert isinstance(collector.receive(change((2, OLD), (3, NEW))[0]), Ignore)
    assert collector.phase is Phase.IDLE


@pytest.mark.parametrize(
    "base",
    [pytest.param((3, OLD), id="another version"), pytest.param((1, NEW), id="the same version with other contents")],
)
def test_a_change_from_something_not_held_asks_for_a_new_stream(base: tuple[int, Map]) -> None:
    collector = idle()

    decision = collector.receive(change(base, (4, NEW))[0])

    assert decision == NeedsNewStream(4, "base_version", f"is a change from version {base[0]}; version 1 is held")
    assert collector.phase is Phase.LOST and collector.resources == OLD


def test_a_sum_that_does_not_match_is_refused_and_the_stream_goes_on() -> None:
    collector = idle()
    part = Part(1, 2, "f" * 64, upserts=tuple(NEW.items()))

    decision = collector.receive(part)

    assert isinstance(decision, Nack) and (decision.version, decision.field) == (2, "checksum")
    assert "ffffffffffff" in decision.reason and collection_checksum(NEW)[:12] in decision.reason
    assert isinstance(collector.receive(snapshot(3, NEW)[0]), Apply)


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (Part(1, 0, "c"), "version"),
        (Part(1, 2, ""), "checksum"),
        (Part(1, 2, "c", parts=0), "parts"),
        (Part(1, 2, "c", parts=MOST_PARTS + 1), "parts"),
        (Part(1, 2, "c", part=2, parts=2), "part"),
        (Part(1, 2, "c", part=-1, parts=2), "part"),
        (Part(1, 2, "c", base_version=2, base_checksum="d"), "base_version"),
    ],
)
def test_a_malformed_part_is_refused_by_the_field_at_fault_and_ends_what_was_gathered(part: Part, field: str) -> None:
    collector = gathering()

    decision = collector.receive(part)

    assert isinstance(decision, Nack) and decision.field == field
    assert collector.phase is Phase.IDLE


def test_a_repeated_part_changes_nothing() -> None:
    collector = idle()
    first, second, third = change((1, OLD), (2, NEW), parts=3)
    collector.receive(first)
    collector.receive(second)

    assert isinstance(collector.receive(first), Ignore)
    assert isinstance(collector.receive(second), Ignore)
    assert isinstance(collector.receive(third), Apply)


def test_the_first_part_of_another_version_starts_anew() -> None:
    collector = gathering()

    assert collector.receive(snapshot(3, OLD, parts=2)[0]) == More()
    assert collector.receive(snapshot(3, OLD, parts=2)[1]) == Apply(3, collection_checksum(OLD), OLD)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(change((1, OLD), (2, NEW), parts=3)[2], id="a part was left out"),
        pytest.param(snapshot(2, NEW, parts=3)[1], id="a part of another update"),
    ],
)
def test_a_gap_asks_for_a_new_stream(part: Part) -> None:
    collector = gathering()

    decision = collector.receive(part)

    assert isinstance(decision, NeedsNewStream) and decision.field == "part"
    assert collector.resources == OLD


def test_a_later_part_without_a_first_asks_for_a_new_stream() -> None:
    assert isinstance(idle().receive(snapshot(2, NEW, parts=2)[1]), NeedsNewStream)


def test_a_lost_stream_brings_nothing_more() -> None:
    collector = lost()

    assert isinstance(collector.receive(snapshot(3, NEW)[0]), Ignore)
    assert collector.heartbeat(Held(1, 9, "x")) == Behind()
    assert collector.resources == OLD


@pytest.mark.parametrize("start", [idle, gathering, judging, lost])
def test_a_new_stream_forgets_half_an_update_and_keeps_what_is_held(start: object) -> None:
    collector = start() if callable(start) else None
    assert isinstance(collector, Collector)

    assert collector.restart() == Held(1, 1, collection_checksum(OLD))

    assert (collector.phase, collector.resources) == (Phase.IDLE, OLD)
    with pytest.raises(IllegalEvent):
        collector.accept()
    assert isinstance(collector.receive(change((1, OLD), (2, NEW))[0]), Apply)


@pytest.mark.parametrize("start", [idle, gathering, lost])
def test_nothing_can_be_accepted_or_refused_that_was_not_offered(start: object) -> None:
    collector = start() if callable(start) else None
    assert isinstance(collector, Collector)
    before = repr(collector)

    with pytest.raises(IllegalEvent, match="no version has been offered"):
        collector.accept()
    with pytest.raises(IllegalEvent, match="no version has been offered"):
        collector.refuse("a", "b")
    assert repr(collector) == before


def test_a_part_before_the_verdict_is_illegal_and_changes_nothing() -> None:
    collector = judging()

    with pytest.raises(IllegalEvent, match="accepted or refused"):
        collector.receive(snapshot(3, OLD)[0])

    assert collector.accept().version == 2
    assert collector.resources == NEW


def test_a_collector_shows_where_it_stands() -> None:
    assert repr(gathering()) == "Collector(gathering, version=1, parts=1)"


def test_a_heartbeat_tells_whether_what_is_held_is_the_newest() -> None:
    assert idle().heartbeat(Held(1, 1, collection_checksum(OLD))) == AtHead()
    assert idle().heartbeat(Held(1, 2, "x")) == Behind()
    assert Collector(1).heartbeat(Held(1, 0, "whatever")) == AtHead()


def test_a_control_plane_without_versions_never_makes_a_router_leave() -> None:
    collector = idle()

    assert {type(collector.heartbeat(Held(1))) for _ in range(10)} == {Behind}


@pytest.mark.parametrize("start", [idle, gathering])
def test_a_head_that_is_told_but_never_sent_asks_for_a_new_stream(start: object) -> None:
    collector = start() if callable(start) else None
    assert isinstance(collector, Collector)

    told = [collector.heartbeat(Held(1, 7, "x")) for _ in range(QUIET_HEARTBEATS)]

    assert told[:-1] == [Behind()] * (QUIET_HEARTBEATS - 1)
    assert told[-1] == NeedsNewStream(7, "version", "was told in 3 heartbeats but not sent")


def test_parts_on_their_way_keep_the_stream() -> None:
    collector = idle()
    for part in snapshot(2, {(4, f"e{n}"): b"x" for n in range(9)}, parts=9)[:-1]:
        collector.heartbeat(Held(1, 2, "x"))
        collector.receive(part)

    assert collector.heartbeat(Held(1, 2, "x")) == Behind()


def test_a_version_that_was_refused_is_no_reason_to_leave() -> None:
    collector = judging()
    collector.refuse("endpoints.x", "is odd")

    assert {type(collector.heartbeat(Held(1, 2, collection_checksum(NEW)))) for _ in range(10)} == {Behind}


def test_heartbeats_while_a_version_is_judged_are_not_counted() -> None:
    collector = judging()

    assert {type(collector.heartbeat(Held(1, 2, "x"))) for _ in range(10)} == {Behind}


# Chance. A server has a history of versions; its parts are lost, repeated and shuffled on their way.

names = st.sampled_from([A, B, C, (4, "d"), (1, "p"), (2, "q")])
maps = st.dictionaries(names, st.binary(max_size=2), max_size=6)


@given(
    history=st.lists(maps, min_size=2, max_size=5),
    updates=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=8),
    seed=st.randoms(use_true_random=False),
    good=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_whatever_is_lost_or_repeated_what_is_held_is_always_one_of_the_servers_versions(history, updates, seed, good) -> None:  # type: ignore[no-untyped-def]
    truth: dict[int, Map] = {0: {}, **dict(enumerate(history, 1))}
    sent: list[Part] = []
    for base, target, parts in updates:
        version = 1 + target % len(history)
        sent += (
            change((base, truth[base]), (version, truth[version]), parts)
            if 0 < base < version
            else snapshot(version, truth[version], parts)
        )
    noisy = [part for part in sent for _ in range(seed.choice((0, 1, 1, 1, 1, 2)))]
    if noisy and seed.random() < 0.3:
        first, second = seed.randrange(len(noisy)), seed.randrange(len(noisy))
        noisy[first], noisy[second] = noisy[second], noisy[first]

    collector = Collector(1)
    for part, is_good in zip(noisy, good, strict=False):
        match collector.receive(part):
            case Apply() if is_good:
                collector.accept()
            case Apply():
                collector.refuse("a", "b")
            case NeedsNewStream():
                collector.restart()
        assert dict(collector.resources) == truth[collector.held.version]
        assert collector.held.version == 0 or collector.held.checksum == collection_checksum(truth[collector.held.version])

    head = max(truth)
    collector.restart()
    decisions = [collector.receive(part) for part in snapshot(head, truth[head], 3)]
    if isinstance(decisions[-1], Apply):
        collector.accept()
    assert dict(collector.resources) == truth[head]


RULES = LinkRules()


@pytest.mark.parametrize(("failures", "shortest", "longest"), [(0, 0.2, 0.4), (1, 0.2, 0.8), (3, 0.2, 3.2), (4, 0.2, 4.0), (500, 0.2, 4.0)])
def test_the_wait_is_drawn_below_a_ceiling_that_doubles(failures: int, shortest: float, longest: float) -> None:
    tries = Tries(failures, allowance=3.0, at=0.0)

    assert next_try(tries, 0.0, 0.0, RULES)[1] == pytest.approx(shortest)
    assert next_try(tries, 0.0, 1.0, RULES)[1] == pytest.approx(longest)
    assert next_try(tries, 0.0, 0.5, RULES)[0].failures == failures + 1


def test_an_answer_makes_the_next_failure_a_first_one_but_refills_nothing() -> None:
    assert answered(Tries(7, 0.5, 3.0)) == Tries(0, 0.5, 3.0)


@given(draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=60), spoke=st.booleans(), lived=st.floats(0, 0.5))
def test_tries_come_at_most_once_per_second_on_average_even_where_links_open_and_break(
    draws: list[float], spoke: bool, lived: float
) -> None:
    tries, now = Tries(), 0.0
    for draw in draws:
        tries = answered(tries) if spoke else tries
        tries, wait = next_try(tries, now, draw, RULES)
        assert 0.2 <= wait <= 4.0
        now += wait + lived

    assert len(draws) <= now * RULES.tries_per_s + RULES.burst
