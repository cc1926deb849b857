"""A day's money for probes: it is stretched over the day and never passed, whatever a probe turns out to cost."""

from __future__ import annotations

import math
import random

import pytest

from n4n.core.catalog import PICO, Provider
from n4n.core.probes import budget
from n4n.core.probes.board import DAY_MS, Board, Claim, Ended, Turn
from n4n.core.probes.budget import Receipts, again_s, budget_of, planned_pico_per_s, stretch
from n4n.core.probes.schedule import Schedule, Task, jittered

PROVIDER = Provider("acme", "openai", "https://acme.example")
CENT = PICO // 100


def test_a_provider_has_a_budget_of_its_own_or_the_usual_one() -> None:
    assert budget_of(PROVIDER) == budget.DEFAULT_PICO == PICO
    assert budget_of(Provider("a", "openai", "https://a.example", probe_budget_pico=0)) == 0


def test_what_all_would_cost_is_reckoned_by_purse() -> None:
    tasks = [Task("a", 10.0, 5.0, "x", 100), Task("b", 20.0, 5.0, "x", 100), Task("c", 10.0, 5.0, "y", 0)]

    assert planned_pico_per_s(tasks) == {"x": 15.0}


def test_intervals_stretch_by_what_is_left_of_the_money_and_of_the_day() -> None:
    noon = DAY_MS * 5 + DAY_MS / 2

    assert stretch(0.0, 1.0, 0, 0, noon) == 1.0
    assert stretch(1.0, 1.0, 0, 43_200, noon) == 1.0
    assert stretch(1.0, 1.0, 0, 21_600, noon) == pytest.approx(2.0)
    assert stretch(1.0, 0.5, 0, 21_600, noon) == pytest.approx(1.0)
    assert stretch(1.0, 1.0, 10, 10, noon) == math.inf
    assert stretch(1.0, 0.0, 0, 432, noon) == pytest.approx(2.0), "a ratio of nothing is not believed"


def test_a_stretched_task_is_due_soon_after_midnight_at_the_latest() -> None:
    late = DAY_MS - 10_000.0

    assert again_s(30.0, 2.0, 0.0, 0.5) == 60.0
    assert again_s(30.0, math.inf, late, 0.5) == 30.0
    assert again_s(30.0, math.inf, DAY_MS / 2, 0.5) == 43_200 + 15.0


def test_receipts_count_what_is_under_way_at_its_highest_and_begin_anew_each_day() -> None:
    receipts = Receipts()
    receipts.on(7)
    receipts.begin(Task("a", 1.0, 1.0, "x", 100))
    receipts.begin(Task("free", 1.0, 1.0))
    assert receipts.totals() == {"x": 100} and receipts.ratio("x") == 1.0

    receipts.settle("a", 25)
    receipts.settle("free", 0)
    receipts.settle("a", 25)
    receipts.begin(Task("a", 1.0, 1.0, "x", 100))
    receipts.settle("a", None)

    assert receipts.totals() == {"x": 125} and receipts.ratio("x") == 0.625
    assert repr(receipts) == "<Receipts of day 7: {'x': 125}>"
    receipts.on(7)
    assert receipts.totals() == {"x": 125}
    receipts.on(8)
    assert receipts.totals() == {}


@pytest.mark.parametrize(("budget_cents", "true_part"), [(5, 0.2), (5, 1.0), (50, 0.3), (100_000, 0.3)])
def test_a_simulated_day_never_costs_more_than_its_budget(budget_cents: int, true_part: float) -> None:
    """Two probers, 24 tasks of three prices, a minute's turn, a clock that the test turns; two days."""
    draw, board = random.Random(3), Board()
    most = [CENT // 200, CENT // 100, CENT // 20]
    tasks = {f"t{n}": Task(f"t{n}", 600.0, 60.0, "acme", most[n % 3]) for n in range(24)}
    planned = planned_pico_per_s(tasks.values())["acme"]
    probers = {name: (Schedule(name), Receipts(), list[Ended]()) for name in "ab"}
    for schedule, _, _ in probers.values():
        schedule.plan(tasks, 0.0)
    spent = {0: 0, 1: 0}
    quarters = [0] * 8
    for second in range(0, 2 * 86_400, 60):
        now_ms = second * 1000.0
        for name, (schedule, receipts, ended) in probers.items():
            receipts.on(int(now_ms // DAY_MS))
            claims = tuple(
                Claim(t.name, 60_000.0, 600_000 * draw.random(), t.purse, t.cost_pico, budget_cents * CENT)
                for t in schedule.due(second, 50)
            )
            answer = board.turn(Turn(name, 300_000, receipts.day, tuple(ended), receipts.totals(), claims), now_ms)
            ended.clear()
            schedule.know(answer.members, second)
            for claim, wait in zip(claims, answer.waits, strict=True):
                if wait:
                    schedule.refused(claim.task, second + wait / 1000)
                    continue
                task = tasks[claim.task]
                receipts.begin(task)
                true = int(task.cost_pico * true_part * (0.5 + draw.random()) if true_part < 1 else task.cost_pico)
                receipts.settle(task.name, true)
                spent[receipts.day] += true
                quarters[second // 21_600] += 1
                factor = stretch(planned, receipts.ratio("acme"), answer.spent.get("acme", 0), budget_cents * CENT, now_ms)
                wait_s = again_s(600.0, factor, now_ms, draw.random())
                again = jittered(wait_s, draw.random())
                schedule.ended(task.name, second + again)
                ended.append(Ended(task.name, again * 1000))

    for day in spent.values():
        assert day <= budget_cents * CENT
    full = planned * true_part * 86_400
    assert spent[1] >= 0.6 * min(full, budget_cents * CENT), "and it is used"
    assert min(quarters[4:]) > 0.3 * max(quarters[4:]), f"over the whole day: {quarters}"
