"""Who probes what and when: shares, leases and rates of several probers on a clock that the test turns."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from n4n.core.probes.board import DAY_MS, Board, Claim, Ended, Turn
from n4n.core.probes.schedule import CATCHING_UP, Schedule, Task, jittered, most_at_once, owner

INTERVAL_S = 30.0
LEASE_S = 7.0
ALIVE_S = 5.0
TURN_S = 0.5
TASKS = {f"e{number}": Task(f"e{number}", INTERVAL_S, LEASE_S) for number in range(90)}


@dataclass
class Prober:
    """What a prober's loop does, on a clock it is told."""

    name: str
    board: Board
    draw: random.Random
    schedule: Schedule
    ended: list[Ended] = field(default_factory=list)
    running: dict[str, tuple[float, float]] = field(default_factory=dict)  # when it began, when it will have ended
    stopped: bool = False
    cut_off: bool = False

    def turn(self, now: float, begun: list[tuple[float, str, str]], takes_s: float) -> None:
        for name, (began, until) in list(self.running.items()):
            if until <= now:
                del self.running[name]
                again = began + jittered(INTERVAL_S, self.draw.random())
                self.schedule.ended(name, again)
                self.ended.append(Ended(name, max(0.0, again - now) * 1000))
        claims = [Claim(task.name, LEASE_S * 1000, INTERVAL_S * 1000 * self.draw.random()) for task in self.schedule.due(now, 1000)]
        if self.cut_off:
            for claim in claims:
                self._begin(claim.task, now, begun, takes_s)
            return
        most = most_at_once(self.schedule.rate_per_s, TURN_S)
        answer = self.board.turn(Turn(self.name, ALIVE_S * 1000, 0, tuple(self.ended), {}, tuple(claims), most), now * 1000)
        self.ended.clear()
        self.schedule.know(answer.members, now)
        for claim, wait in zip(claims, answer.waits, strict=True):
            if wait:
                self.schedule.refused(claim.task, now + wait / 1000)
            else:
                self._begin(claim.task, now, begun, takes_s)

    def _begin(self, task: str, now: float, begun: list[tuple[float, str, str]], takes_s: float) -> None:
        self.schedule.granted(task)
        self.running[task] = (now, now + takes_s)
        begun.append((now, task, self.name))


class Fleet:
    """Probers that share one board."""

    def __init__(self, names: str = "abc", seed: int = 1) -> None:
        self.board, self.now, self.begun = Board(), 0.0, list[tuple[float, str, str]]()
        self.probers = {name: Prober(name, self.board, random.Random(f"{seed}{name}"), Schedule(name)) for name in names}
        for prober in self.probers.values():
            prober.schedule.plan(TASKS, 0.0)

    def run(self, seconds: float, takes_s: float = 0.3) -> list[tuple[float, str, str]]:
        """What was begun meanwhile: when, what, by whom."""
        before, until = len(self.begun), self.now + seconds
        while self.now < until:
            self.now += TURN_S
            for prober in self.probers.values():
                if not prober.stopped:
                    prober.turn(self.now, self.begun, takes_s)
        return self.begun[before:]

    def longest_gap(self, since: float) -> float:
        """Between two probes of one task, or since the last."""
        longest = 0.0
        for name in TASKS:
            times = [at for at, task, _ in self.begun if task == name and at >= since]
            points = [since, *times, self.now]
            longest = max(longest, max(later - earlier for earlier, later in pairwise(points)))
        return longest


PLAN_PER_S = len(TASKS) / INTERVAL_S


def busiest_second(begun: list[tuple[float, str, str]]) -> int:
    """How many probes began in it."""
    return max(Counter(int(at) for at, _, _ in begun).values())


def test_a_turn_catches_up_at_twice_the_planned_rate() -> None:
    assert most_at_once(12.0, 1.0) == 24 and most_at_once(0.1, 1.0) == 2


def test_a_fleet_probes_at_the_planned_rate_and_each_task_within_one_and_a_half_intervals() -> None:
    fleet = Fleet()
    fleet.run(2 * INTERVAL_S)

    begun = fleet.run(20 * INTERVAL_S)

    assert 0.9 * PLAN_PER_S <= len(begun) / (20 * INTERVAL_S) <= 1.1 * PLAN_PER_S
    assert fleet.longest_gap(2 * INTERVAL_S) <= 1.5 * INTERVAL_S
    by_prober = {name: sum(whose == name for _, _, whose in begun) for name in fleet.probers}
    assert min(by_prober.values()) > len(begun) / 6, by_prober


def test_a_new_catalog_makes_no_storm() -> None:
    fleet = Fleet()

    first = fleet.run(INTERVAL_S + 2 * TURN_S)

    for second in range(int(INTERVAL_S)):
        assert sum(second <= at < second + 1 for at, _, _ in first) <= 4 * PLAN_PER_S
    assert {task for _, task, _ in fleet.begun} == set(TASKS)


def test_a_dead_probers_share_moves_within_two_intervals_and_costs_no_rate() -> None:
    fleet = Fleet()
    fleet.run(3 * INTERVAL_S)
    dead = fleet.probers.pop("b")

    begun = fleet.run(4 * INTERVAL_S)

    assert dead.schedule.share
    assert busiest_second(begun) <= 2 * CATCHING_UP * PLAN_PER_S, "what was overdue is caught up with, and makes no storm"
    assert fleet.longest_gap(fleet.now - 4 * INTERVAL_S) <= 1.5 * INTERVAL_S
    assert len(begun) <= 1.1 * PLAN_PER_S * 4 * INTERVAL_S


def test_a_prober_that_was_stopped_for_a_while_comes_back_without_a_storm() -> None:
    fleet = Fleet()
    fleet.run(3 * INTERVAL_S)
    fleet.probers["c"].stopped = True
    fleet.run(3 * INTERVAL_S)
    fleet.probers["c"].stopped = False
    since = fleet.now

    begun = fleet.run(3 * INTERVAL_S)

    assert len(begun) <= 1.1 * PLAN_PER_S * 3 * INTERVAL_S
    assert sum(since <= at < since + 2 for at, _, _ in begun) <= 4 * PLAN_PER_S
    assert fleet.longest_gap(since) <= 1.5 * INTERVAL_S
    assert any(whose == "c" for _, _, whose in begun)


def test_without_the_board_a_prober_does_its_last_known_share_at_the_planned_rate() -> None:
    fleet = Fleet()
    fleet.run(3 * INTERVAL_S)
    for prober in fleet.probers.values():
        prober.cut_off = True

    begun = fleet.run(10 * INTERVAL_S)

    assert len(begun) <= 1.1 * PLAN_PER_S * 10 * INTERVAL_S
    owners = {task: {whose for _, name, whose in begun if name == task} for task in TASKS}
    assert all(len(whose) == 1 for whose in owners.values())


def test_a_prober_that_never_heard_who_lives_has_no_share() -> None:
    schedule = Schedule("a")
    schedule.plan(TASKS, 0.0)

    assert not schedule.share and schedule.next_due() == math.inf and owner("e1", ()) is None
    assert repr(schedule) == "<Schedule of a: 0 of 90 tasks, 0 running, 0 probers>"


def test_what_runs_is_not_due_and_what_is_no_longer_planned_is_forgotten() -> None:
    schedule = Schedule("a")
    schedule.plan({"x": TASKS["e1"], "y": TASKS["e2"]}, 0.0)
    schedule.know(["a"], 0.0)
    schedule.granted("x")

    assert [task.name for task in schedule.due(1.0, 10)] == ["e2"]
    assert schedule.running == 1 and schedule.members == {"a"} and schedule.next_due() == 0.0

    schedule.plan({"y": TASKS["e2"]}, 5.0)
    schedule.ended("x", 9.0)

    assert set(schedule.share) == {"y"} and schedule.running == 0
    assert schedule.due(6.0, 0) == []


def test_a_share_moves_only_with_whose_it_is() -> None:
    before = {task: owner(task, "abc") for task in TASKS}
    after = {task: owner(task, "ab") for task in TASKS}

    assert all(after[task] == whose for task, whose in before.items() if whose != "c")


def test_a_claim_is_granted_again_to_who_holds_it_and_to_nobody_else() -> None:
    board = Board()
    board.turn(Turn("a", 1000, claims=(Claim("t", 500, 0.0),)), 0.0)

    again = board.turn(Turn("a", 1000, claims=(Claim("t", 500, 0.0),)), 100.0)
    other = board.turn(Turn("b", 1000, claims=(Claim("t", 500, 0.0),)), 200.0)
    later = board.turn(Turn("b", 1000, claims=(Claim("t", 500, 0.0),)), 600.0)
    late = board.turn(Turn("a", 1000, ended=(Ended("t", 0.0),)), 700.0)

    assert again.waits == (0.0,) and other.waits == (400.0,) and later.waits == (0.0,) and late.waits == ()
    assert board.turn(Turn("c", 1000, claims=(Claim("t", 500, 0.0),)), 800.0).waits == (300.0,), "a lost lease ends nothing"
    assert repr(board) == "<Board: 3 probers, 1 tasks, 1 leased>"


def test_no_claim_passes_the_budget_of_its_purse_and_a_new_day_has_a_new_one() -> None:
    board = Board()

    def claim(name: str, now: float, spent: int = 0) -> float:
        told = Turn("a", 1000, int(now // DAY_MS), (), {"p": spent}, (Claim(name, 500, 7.0, "p", 40, 100),))
        return board.turn(told, now).waits[0]

    assert claim("x", 10.0) == 7.0
    assert claim("x", 20.0) == 0.0
    assert claim("y", 20.0, 40) == 7.0
    assert claim("y", 30.0, 40) == 0.0
    assert claim("z", 30.0, 80) == 7.0
    assert claim("z", 40.0, 80) == DAY_MS + 7.0 - 40.0, "not before there is money again"
    assert board.turn(Turn("b", 1000, 0), 50.0).spent == {"p": 80}
    assert claim("z", DAY_MS + 10.0) == 0.0
    assert board.turn(Turn("b", 1000, 0, (), {"p": 99}), DAY_MS + 11.0).spent == {"p": 40}, "yesterday's money is not today's"


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_keeps_near_the_interval(draw: float) -> None:
    assert 27.0 <= jittered(30.0, draw) <= 33.0
