"""Buckets, leases, estimates, shares, the line and the headers, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.limits.caution import Caution
from n4n.core.limits.estimates import Estimates
from n4n.core.limits.headers import LimitFields, duration, floors
from n4n.core.limits.levels import Grant, Ledger, Levels, Refusal, Settlement, reserve
from n4n.core.limits.line import Line, LineFull
from n4n.core.limits.shares import share_of, used_at_start, used_meanwhile
from n4n.core.limits.subjects import (
    RESERVES,
    Draw,
    Priority,
    Subject,
    Took,
    account_subject,
    key_subject,
    plain_subject,
    tenant_subject,
    too_large,
)
from n4n.core.quota_headers import Quota

MINUTE = 60_000.0


def caller(**limits: int) -> Subject:
    subject = key_subject("acme", "k1", limits)
    assert subject is not None
    return subject


# --- subjects ---


def test_who_has_no_limits_is_no_subject() -> None:
    assert key_subject("acme", "k1", {}) is None
    assert tenant_subject("acme", {}) is None
    assert account_subject("main", "gpt", {"scope": "shared"}) is None


def test_one_without_limits_can_be_asked_beside_others() -> None:
    key, tenant = plain_subject("acme", "k1"), plain_subject("acme")
    assert (key.buckets, key.whose, tenant.whose) == ((), "API key", "tenant")
    assert key.keys == caller(rpm=1).keys and key.bucket("requests") is None


def test_the_keys_of_a_subject_share_a_hash_tag_whatever_the_tenant_is_called() -> None:
    subject = key_subject("a}b{c%", "k1", {"rpm": 1})
    assert subject is not None
    assert {key[key.index("{") : key.index("}") + 1] for key in subject.keys} == {"{t:a%7Db%7Bc%25}"}


def test_models_share_an_account_s_limits_only_where_its_scope_says_so() -> None:
    def keys(model: str, scope: str) -> object:
        subject = account_subject("main", model, {"scope": scope, "rpm": 5})
        assert subject is not None
        return subject.keys

    assert keys("a", "shared") == keys("b", "shared")
    assert keys("a", "per_model") != keys("b", "per_model")


def test_a_bucket_holds_a_minute_of_its_rate_unless_burst_says_otherwise() -> None:
    assert [rate.capacity for rate in caller(rpm=600, tpm=9000).buckets] == [600.0, 9000.0]
    burst = caller(rpm=600, burst=20).buckets[0]
    assert (burst.capacity, burst.per_ms) == (20.0, 0.01)


def test_a_request_that_no_empty_bucket_could_hold_is_known_beforehand() -> None:
    rate = too_large(caller(tpm=1000), 1001.0)
    assert rate is not None and rate.name == "tokens"
    assert too_large(caller(tpm=1000), 1000.0) is None
    assert too_large(caller(rpm=1), 10**9) is None


# --- levels ---


def ask(ledger: Ledger, id: str, subject: Subject, draw: Draw, now: float) -> Grant | Refusal:
    """One subject by itself."""
    return reserve([ledger], id.encode(), [subject], draw, now)


def used(ledger: Ledger, subject: Subject, now: float) -> list[float]:
    """Of each bucket."""
    return list(ledger.levels(subject, now).used)


def test_a_limit_admits_its_burst_and_then_its_rate() -> None:
    subject, ledger, admitted = caller(rpm=600, burst=20), Ledger(), 0
    for now in range(0, 60_000, 5):
        admitted += isinstance(ask(ledger, str(now), subject, Draw(), float(now)), Grant)
    assert 619 <= admitted <= 620


def test_a_limit_by_the_day_holds_a_day_of_its_rate() -> None:
    subject, ledger = caller(rpd=100, tpd=1_000_000), Ledger()
    admitted = sum(isinstance(ask(ledger, str(n), subject, Draw(1000.0), 0.0), Grant) for n in range(200))
    assert admitted == 100
    refusal = ask(ledger, "late", subject, Draw(), 0.0)
    assert isinstance(refusal, Refusal) and (refusal.bucket, refusal.wait_ms) == ("requests_per_day", pytest.approx(864_000.0))
    assert [bucket.name for bucket in subject.buckets] == ["requests_per_day", "tokens_per_day"]
    assert [rate.limit for rate in subject.buckets] == [pytest.approx(100.0), pytest.approx(1e6)]


def test_a_refusal_takes_nothing_and_names_the_bucket_that_is_short_longest_and_the_wait() -> None:
    subject, ledger = caller(rpm=2, tpm=1000), Ledger()
    assert isinstance(ask(ledger, "a", subject, Draw(900.0), 0.0), Grant)
    refusal = ask(ledger, "b", subject, Draw(200.0), 0.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.bucket, round(refusal.wait_ms)) == ("tokens", 6000)
    assert refusal.levels == (Levels((1.0, 900.0), 1, 0),)
    assert isinstance(ask(ledger, "b", subject, Draw(200.0), refusal.wait_ms), Grant)


def test_a_key_and_its_tenant_are_asked_together_and_the_refusal_says_whose_limit_it_was() -> None:
    key, tenant = caller(rpm=5), tenant_subject("acme", {"rpm": 3, "concurrency": 9})
    assert tenant is not None
    ledgers = [Ledger(), Ledger()]
    answers = [reserve(ledgers, b"%d" % n, [key, tenant], Draw(), 0.0) for n in range(4)]
    refusal = answers[3]
    assert isinstance(refusal, Refusal) and (refusal.whose, refusal.bucket) == (1, "requests")
    assert refusal.levels == (Levels((3.0,), 3, 0), Levels((3.0,), 3, 0))
    assert used(ledgers[0], key, 0.0) == [3.0]  # nothing was taken of the key's either
    assert key.keys[0].startswith(tenant.keys[0].removesuffix(":u")) and key.keys[0] != tenant.keys[0]


def test_settling_gives_back_what_was_not_used_once_and_never_below_zero() -> None:
    subject, ledger = caller(tpm=1000), Ledger()
    ask(ledger, "a", subject, Draw(900.0), 0.0)
    told = Settlement(Took(1.0, 400.0))
    assert ledger.settle(b"a", subject, Draw(900.0), told, 0.0)
    assert not ledger.settle(b"a", subject, Draw(900.0), told, 0.0)
    assert ledger.levels(subject, 0.0) == Levels((400.0,), 0, 0)
    ask(ledger, "b", subject, Draw(10.0), 0.0)
    ledger.settle(b"b", subject, Draw(10.0), Settlement(), MINUTE)
    assert used(ledger, subject, MINUTE) == [0.0]


def test_more_than_was_reserved_is_owed() -> None:
    subject, ledger = caller(tpm=1000), Ledger()
    ask(ledger, "a", subject, Draw(100.0), 0.0)
    ledger.settle(b"a", subject, Draw(100.0), Settlement(Took(1.0, 1500.0)), 0.0)
    refusal = ask(ledger, "b", subject, Draw(100.0), 0.0)
    assert isinstance(refusal, Refusal) and round(refusal.wait_ms) == 36_000


def test_places_among_the_running_are_leases_that_expire_and_can_be_renewed() -> None:
    subject, ledger = caller(concurrency=2, streams=1), Ledger()
    assert isinstance(ask(ledger, "a", subject, Draw(stream=True), 0.0), Grant)
    second = ask(ledger, "b", subject, Draw(stream=True), 0.0)
    assert isinstance(second, Refusal) and second.bucket == "streams"
    assert isinstance(ask(ledger, "b", subject, Draw(), 0.0), Grant)
    third = ask(ledger, "c", subject, Draw(), 0.0)
    assert isinstance(third, Refusal) and third.bucket == "concurrency"
    ledger.renew(subject, {b"a": True, b"b": False}, (), 20_000.0)
    assert ledger.levels(subject, 40_000.0) == Levels((), 2, 1)
    assert ledger.levels(subject, 50_000.0) == Levels((), 0, 0)


def test_of_a_bucket_and_a_place_the_longer_wait_is_told() -> None:
    subject, ledger = caller(rpm=60, burst=1, concurrency=1), Ledger()
    ask(ledger, "a", subject, Draw(), 0.0)
    assert [getattr(ask(ledger, "b", subject, Draw(), now), "bucket", "") for now in (0.0, 950.0)] == ["requests", "concurrency"]


def test_what_was_used_elsewhere_is_added() -> None:
    subject, ledger = caller(rpm=10), Ledger()
    ledger.renew(subject, {}, (4.0,), 0.0)
    assert used(ledger, subject, 0.0) == [4.0]


def test_what_was_lost_is_brought_back_by_all_that_know_of_it_and_by_nobody_later() -> None:
    subject, ledger = caller(rpm=60), Ledger()
    ledger.renew(subject, {}, (1.0,), 0.0, whole=(10.0,))
    ledger.renew(subject, {}, (2.0,), 5_000.0, whole=(10.0,))
    assert used(ledger, subject, 5_000.0) == [15.0]
    ledger.renew(subject, {}, (2.0,), 10_000.0, whole=(10.0,))
    assert used(ledger, subject, 10_000.0) == [12.0]


def test_what_was_not_lost_is_not_brought_back() -> None:
    subject, ledger = caller(rpm=60), Ledger()
    ask(ledger, "a", subject, Draw(), 0.0)
    ledger.renew(subject, {}, (2.0,), 0.0, whole=(10.0,))
    ledger.renew(subject, {b"b": False}, (), 0.0, whole=(10.0,))
    assert used(ledger, subject, 0.0) == [3.0]


def test_lower_priorities_leave_a_reserve_and_a_large_request_of_theirs_gets_in_when_all_is_drained() -> None:
    subject, ledger = caller(tpm=1000), Ledger()
    background, best_effort = RESERVES[Priority.BACKGROUND], RESERVES[Priority.BEST_EFFORT]
    ask(ledger, "a", subject, Draw(500.0), 0.0)
    assert isinstance(ask(ledger, "b", subject, Draw(1.0, reserve=best_effort), 0.0), Refusal)
    assert isinstance(ask(ledger, "c", subject, Draw(300.0, reserve=background), 0.0), Grant)
    assert isinstance(ask(ledger, "d", subject, Draw(1.0, reserve=background), 0.0), Refusal)
    assert isinstance(ask(ledger, "e", subject, Draw(200.0), 0.0), Grant)
    assert isinstance(ask(ledger, "f", subject, Draw(900.0, reserve=background), 2 * MINUTE), Grant)


def test_what_a_provider_says_lowers_a_bucket_and_never_raises_it() -> None:
    subject, ledger = caller(rpm=100), Ledger()
    ask(ledger, "a", subject, Draw(), 0.0)
    ledger.settle(b"a", subject, Draw(), Settlement(Took(1.0), floors={"requests": 90.0}), 0.0)
    ledger.settle(b"a", subject, Draw(), Settlement(floors={"requests": 10.0}), 0.0)
    assert used(ledger, subject, 0.0) == [90.0]


def test_the_longest_cooldown_wins() -> None:
    subject, ledger = caller(rpm=100), Ledger()
    for until_ms in (1000.0, 5000.0, 300.0):
        ledger.settle(b"a", subject, Draw(), Settlement(until_ms=until_ms), 0.0)
    refusal = ask(ledger, "b", subject, Draw(), 1000.0)
    assert isinstance(refusal, Refusal) and (refusal.bucket, refusal.wait_ms) == ("cooldown", 4000.0)


def test_an_edited_limit_keeps_what_was_used() -> None:
    ledger = Ledger()
    for id in "abc":
        ask(ledger, id, caller(rpm=3), Draw(), 0.0)
    assert isinstance(ask(ledger, "d", caller(rpm=3), Draw(), 0.0), Refusal)
    assert isinstance(ask(ledger, "d", caller(rpm=4), Draw(), 0.0), Grant)
    assert isinstance(ask(ledger, "e", caller(rpm=2), Draw(), 0.0), Refusal)
    assert repr(ledger) == "<Ledger {'requests': 4.0} 4 running>"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 2000), st.booleans(), st.floats(0, 30_000)), max_size=40))
def test_nothing_is_ever_negative_and_nobody_runs_at_rest(steps: list[tuple[str, float, bool, float]]) -> None:
    subject, ledger, now = caller(rpm=5, tpm=1000, concurrency=3), Ledger(), 0.0
    for id, tokens, settles, later in steps:
        now += later
        if settles:
            ledger.settle(id.encode(), subject, Draw(tokens), Settlement(), now)
        elif too_large(subject, tokens) is None:
            ask(ledger, id, subject, Draw(tokens), now)
        levels = ledger.levels(subject, now)
        assert min(levels.used) >= 0 and levels.running <= 3
    for id in "abcd":
        ledger.settle(id.encode(), subject, Draw(), Settlement(), now)
    assert ledger.levels(subject, now).running == 0


# --- estimates ---


def test_an_estimate_comes_to_what_requests_of_this_model_really_take() -> None:
    known = Estimates()
    assert sum(known.expected(400, None, None)) == 600.0
    for _ in range(300):
        known.learn(3000, 1000, 80)
    assert sum(known.expected(3000, None, None)) == pytest.approx(1080, rel=0.1)
    assert repr(known).startswith("<Estimates 3.00 bytes per token")


def test_output_is_the_least_of_what_was_asked_what_the_model_gives_and_what_was_learned() -> None:
    known = Estimates()
    assert sum(known.expected(0, 10, 100)) == 10
    assert sum(known.expected(0, None, 100)) == 100
    assert sum(known.expected(0, 4000, 8000)) == 500
    assert sum(known.expected(0, 10, None, choices=3)) == 30


def test_nine_in_ten_answers_stay_below_the_learned_length() -> None:
    known = Estimates()
    lengths = [(n * 37) % 1000 for n in range(5000)]
    for length in lengths:
        known.learn(0, 0, length)
    assert 750 < sum(known.expected(0, None, None)) < 1050


# --- shares ---


def test_all_routers_together_have_the_limit() -> None:
    share = share_of(caller(rpm=600, tpm=900, concurrency=10, streams=2), 3)
    rates = share.buckets
    assert [(rate.capacity, rate.limit) for rate in rates] == [(200.0, pytest.approx(200)), (300.0, pytest.approx(300))]
    assert (share.concurrency, share.streams) == (3, 1)
    assert share_of(caller(rpm=600), 0) == caller(rpm=600)


def test_a_router_goes_on_from_the_level_that_redis_told_last() -> None:
    share = share_of(caller(rpm=600), 3)
    assert used_at_start(share, (600.0,), 30_000.0, 3) == (pytest.approx(100.0),)
    assert used_at_start(share, None, 0.0, 3) == (pytest.approx(160.0),)


@pytest.mark.parametrize("routers", [1, 2, 3, 10])
@pytest.mark.parametrize("told", [None, (0.0,), (600.0,)])
def test_an_outage_admits_at_most_1_2_times_the_limit(routers: int, told: tuple[float, ...] | None) -> None:
    subject = caller(rpm=600)
    share = share_of(subject, routers)
    admitted = 0 if told is None else int(told[0])
    ledgers = [Ledger() for _ in range(routers)]
    for ledger in ledgers:
        ledger.start_at(share, used_at_start(share, told, 0.0, routers), 0.0)
    for now in range(0, 60_000, 50):
        admitted += sum(isinstance(ask(ledger, str(now), share, Draw(), float(now)), Grant) for ledger in ledgers)
    minutes_of_limit = 600 + (600 if told is not None else 0)  # told: the bucket, and what drained meanwhile
    assert admitted <= minutes_of_limit * 1.2 + 1


def test_when_redis_is_back_it_learns_what_was_used_meanwhile_and_nothing_twice() -> None:
    share = share_of(caller(rpm=600), 2)
    assert used_meanwhile(share, (250.0,), (100.0,), 10_000.0) == (pytest.approx(200.0),)
    assert used_meanwhile(share, (30.0,), (100.0,), 0.0) == (0.0,)


# --- the line ---


def test_interactive_goes_first_then_tenants_in_turn_then_who_came_first() -> None:
    line = Line()
    places = [
        line.join(priority, tenant)
        for priority, tenant in [
            (Priority.BACKGROUND, "a"),
            (Priority.INTERACTIVE, "a"),
            (Priority.INTERACTIVE, "a"),
            (Priority.INTERACTIVE, "a"),
            (Priority.INTERACTIVE, "b"),
        ]
    ]
    order = []
    while (place := line.turn()) is not None:
        order.append(places.index(place))
        line.gone(place, served=True)
    assert order == [1, 4, 2, 3, 0]
    assert len(line) == 0


def test_one_asks_at_a_time_and_keeps_its_place_while_quota_is_short() -> None:
    line = Line()
    first, second = line.join(Priority.INTERACTIVE, "a"), line.join(Priority.INTERACTIVE, "a")
    assert line.turn() is first
    assert line.turn() is None
    line.again(second)  # not its turn: nothing
    assert line.turn() is None
    line.again(first)
    assert line.turn() is first
    line.gone(first, served=False)
    line.gone(first, served=True)
    assert line.turn() is second
    assert repr(line) == "<Line [('a', 0)]>"


def test_a_newcomer_waits_where_it_would_overtake_somebody() -> None:
    line = Line()
    assert not line.must_wait(Priority.BEST_EFFORT)
    line.join(Priority.BACKGROUND, "a")
    assert not line.must_wait(Priority.INTERACTIVE)
    assert line.must_wait(Priority.BACKGROUND)
    assert line.must_wait(Priority.BEST_EFFORT)


def test_a_full_line_takes_nobody() -> None:
    line = Line(1)
    line.join(Priority.INTERACTIVE, "a")
    with pytest.raises(LineFull):
        line.join(Priority.INTERACTIVE, "b")


# --- headers ---


def test_a_caller_is_told_its_limits_as_openai_tells_them() -> None:
    fields = LimitFields(caller(rpm=600, rpd=5, tpm=9000))((1.0, 1500.5, 3.0))
    assert fields.decode().splitlines() == [
        "x-ratelimit-limit-requests: 600",
        "x-ratelimit-remaining-requests: 599",
        "x-ratelimit-reset-requests: 100ms",
        "x-ratelimit-limit-tokens: 9000",
        "x-ratelimit-remaining-tokens: 7499",
        "x-ratelimit-reset-tokens: 10.004s",
    ]


@pytest.mark.parametrize(("ms", "text"), [(0, b"0ms"), (11.2, b"12ms"), (7560, b"7.56s"), (360_000, b"6m0s"), (61_000, b"1m1s")])
def test_durations_are_spelled_as_go_does(ms: float, text: bytes) -> None:
    assert duration(ms) == text


def test_a_provider_s_headers_correct_a_bucket_only_where_it_has_less_left() -> None:
    subject, levels = caller(rpm=100, tpm=1000), (10.0, 100.0)
    told = {"requests": Quota(500, 90, 1.0), "input_tokens": Quota(None, 300, None)}
    assert floors(subject, told, levels) == {"tokens": 700.0}
    assert floors(subject, {"requests": Quota(100, None, 1.0)}, levels) == {}


# --- caution ---


def test_a_refusal_without_a_word_cuts_what_is_believed_once_for_all_that_were_refused_together() -> None:
    known = Caution().refused(10_000.0).refused(12_000.0)
    assert known == Caution(0.7, 10_000.0)
    assert known.refused(15_000.0).part == pytest.approx(0.7 * (0.7 + 5 * 0.05 / 60))


def test_belief_comes_back_slowly_and_never_goes_to_nothing() -> None:
    known = Caution(0.7, 0.0)
    assert known.at(3 * MINUTE) == pytest.approx(0.85)
    assert known.at(10 * MINUTE) == 1.0
    for n in range(1, 30):
        known = known.refused(n * 6_000.0)
    assert known.part == 0.1


def test_an_account_that_was_refused_without_a_word_is_asked_less() -> None:
    subject, ledger = caller(rpm=100), Ledger()
    ledger.settle(b"x", subject, Draw(), Settlement(refused=True), 1_000.0)
    admitted = sum(isinstance(ask(ledger, str(n), subject, Draw(), 1_000.0), Grant) for n in range(100))
    assert admitted == 70
    refusal = ask(ledger, "late", subject, Draw(), 1_000.0)
    assert isinstance(refusal, Refusal) and refusal.wait_ms == pytest.approx(600 / 0.7)
