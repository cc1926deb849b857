"""The prober's loop: a turn every second or so, and the tasks that it was granted, each by itself.

A turn says to the board in Redis that this prober lives, what it has done and spent, and which tasks seem due; it hears who else lives
and which it was granted. While Redis is away the last known share is done at the planned rate, out of this prober's part of what money
was left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from contextlib import suppress

from health_prober.instruments import Instruments
from health_prober.jobs import Jobs
from health_prober.notes import Notes
from health_prober.tracing import Traces, carried_out, granted
from n4n.core.breaker import Breaker
from n4n.core.catalog import Snapshot
from n4n.core.errors import StoreUnavailable
from n4n.core.probes.board import DAY_MS, Answer, Claim, Ended, Turn
from n4n.core.probes.budget import Receipts, again_s, budget_of, planned_pico_per_s, stretch
from n4n.core.probes.findings import Kind
from n4n.core.probes.schedule import Schedule, Task, jittered, most_at_once
from n4n.core.probes.verdict import is_spared
from n4n.core.probes.work import Job, Probe, Work, pace, work_of
from n4n.runtime import spans
from n4n.runtime.health import SharedHealth
from n4n.runtime.probes import turns
from n4n.runtime.stores import Store

MOST_AT_ONCE = 256  # tasks that run at one time
MOST_ASKED = 512  # in one turn
_FOR_GOOD_S = 86_400.0
AWAY_TURNS = 3  # without an answer, and Redis counts as away
log = logging.getLogger("n4n.prober")


class Prober:
    """One per process. `name`: unique in the fleet and for every start; `wall`: Unix seconds, `clock`: monotonic ones."""

    def __init__(
        self,
        name: str,
        store: Store,
        health: SharedHealth,
        jobs: Jobs,
        notes: Notes,
        instruments: Instruments,
        *,
        catalog: Callable[[], Snapshot | None],
        dialects: Container[str],
        clock: Callable[[], float],
        wall: Callable[[], float],
        draw: Callable[[], float],
        traces: Traces | None = None,
    ) -> None:
        self._name, self._store, self._health, self._jobs, self._notes = name, store, health, jobs, notes
        self._instruments, self._catalog, self._dialects = instruments, catalog, dialects
        self._clock, self._wall, self._draw, self._traces = clock, wall, draw, traces
        self.schedule = Schedule(name)
        self.turned_at = clock()
        self._receipts = Receipts()
        self._planned_for: Snapshot | None = None
        self._work = Work({}, {})
        self._planned: dict[str, float] = {}
        self._budgets: dict[str, int] = {}
        self._turn_s, self._alive_s = 1.0, 5.0
        self._ended: dict[str, float] = {}  # when each is due again, to tell
        self._missed = 0
        self._ahead_ms = wall() * 1000 - clock() * 1000  # of Redis' clock before ours
        self._spent: dict[str, int] = {}  # by all, as the board knew last
        self._own_then: dict[str, int] = {}  # of it, by us

    def __repr__(self) -> str:
        return f"<Prober {self._name}: {self.schedule!r}>"

    @property
    def is_away(self) -> bool:
        """Whether Redis is."""
        return self._missed >= AWAY_TURNS

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                begun = self._clock()
                await self._plan()
                await self._turn(group)
                self._notes.sweep()
                self.turned_at = self._clock()
                self._show()
                await asyncio.sleep(max(0.02, self._turn_s - (self._clock() - begun)))

    async def leave(self) -> None:
        """What was done is told, so that others need not do it again; this prober is no member any more as soon as it is silent."""
        with suppress(StoreUnavailable):
            await self._store.command(turns.turn(self._said((), 0, alive_s=0.0)))

    # --- what there is to do ---

    async def _plan(self) -> None:
        snapshot = self._catalog()
        if snapshot is None or snapshot is self._planned_for:
            return
        self._planned_for = snapshot
        before = self._work
        self._work = work = await asyncio.to_thread(work_of, snapshot, self._dialects)
        tasks = work.tasks
        self._planned = planned_pico_per_s(tasks.values())
        self._budgets = {name: budget_of(provider) for name, provider in snapshot.providers.items()}
        self._turn_s, self._alive_s = pace(work)
        self._health.keep_only(snapshot.endpoints)
        self.schedule.plan(tasks, self._clock())
        if self._traces is not None:
            self._traces.keep_only(tasks)
        for about in before.unaskable.keys() - work.unaskable.keys():
            self._notes.clear(Kind.MISCONFIGURED, about)
        for about, problem in work.unaskable.items():
            self._notes.stand(Kind.MISCONFIGURED, about, problem, _FOR_GOOD_S)
        log.info("%d tasks of catalog version %d", len(tasks), snapshot.version)

    # --- turns ---

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        now = self._clock()
        self._receipts.on(int(self._board_ms() // DAY_MS))
        due = [task for task in self.schedule.due(now, MOST_ASKED) if self._is_asked_for(task, now)]
        most = min(MOST_AT_ONCE - self.schedule.running, most_at_once(self.schedule.rate_per_s, self._turn_s))
        claims = tuple([self._claim(task) for task in due])
        said = self._said(claims, most)
        told = dict(self._ended)
        turn = None if self._traces is None else self._traces.turn()
        try:
            answer = turns.heard(said, await self._store.command(turns.turn(said)))
        except StoreUnavailable:
            self._alone(due[: max(0, most)], group, turn)
            return
        self._heard(answer, told)
        granted(turn, len(due), answer.waits.count(0), len(answer.members), alone=False)
        for task, wait in zip(due, answer.waits, strict=True):
            if wait:
                self.schedule.refused(task.name, self._clock() + wait / 1000)
            else:
                self._begin(task, group, turn)

    def _said(self, claims: tuple[Claim, ...], most: int, *, alive_s: float | None = None) -> Turn:
        now = self._clock()
        ended = tuple([Ended(name, max(0.0, again - now) * 1000) for name, again in self._ended.items()])
        alive_ms = (self._alive_s if alive_s is None else alive_s) * 1000
        return Turn(self._name, alive_ms, self._receipts.day, ended, self._receipts.totals(), claims, most)

    def _claim(self, task: Task) -> Claim:
        budget = self._budgets.get(task.purse) if task.cost_pico else None
        return Claim(task.name, task.lease_s * 1000, task.interval_s * 1000 * self._draw(), task.purse, task.cost_pico, budget)

    def _is_asked_for(self, task: Task, now: float) -> bool:
        """Not where live traffic has just answered, or where every account is out anyway."""
        job = self._work.jobs[task.name]
        back_at = self._jobs.back_at(job)
        if back_at > now:
            self.schedule.refused(task.name, back_at)
            return False
        if not isinstance(job, Probe):
            return True
        seen = self._health.seen.get(job.endpoint.id)
        if seen is None or seen.good_at is None or not is_spared(now - seen.good_at, task.interval_s):
            return True
        self.schedule.refused(task.name, seen.good_at + jittered(task.interval_s, self._draw()))
        self._instruments.probes.labels(job.endpoint.provider.name, "spared").inc()
        if self._traces is not None:
            self._traces.spared(task.name)
        return False

    def _heard(self, answer: Answer, told: dict[str, float]) -> None:
        now = self._clock()
        if self.is_away:
            log.info("Redis can be used again: probers share their work")
        self._missed = 0
        self._ahead_ms = answer.now_ms - now * 1000
        self._spent, self._own_then = dict(answer.spent), self._receipts.totals()
        self._ended = {name: again for name, again in self._ended.items() if told.get(name) != again}
        self.schedule.know(answer.members, now)

    def _alone(self, due: list[Task], group: asyncio.TaskGroup, turn: spans.Work | None) -> None:
        """No answer: after a few turns the last known share is done without asking."""
        self._missed += 1
        if self._missed == AWAY_TURNS:
            log.warning("each prober keeps to its last known share: %s", self._store.reason or "Redis does not answer")
        if self._missed < AWAY_TURNS:
            return
        self._ended.clear()  # the leases are over by the time that Redis is back
        before = self.schedule.running
        for task in due:
            if self._affords(task):
                self._begin(task, group, turn)
            else:
                self.schedule.refused(task.name, self._clock() + task.interval_s)
        granted(turn, len(due), self.schedule.running - before, len(self.schedule.members), alone=True)

    def _affords(self, task: Task) -> bool:
        """Whether this prober's part of what was left pays for it."""
        budget = self._budgets.get(task.purse)
        if not task.cost_pico or budget is None:
            return True
        own = self._receipts.totals().get(task.purse, 0) - self._own_then.get(task.purse, 0)
        left = budget - self._spent.get(task.purse, 0)
        return own + task.cost_pico <= left / max(1, len(self.schedule.members))

    # --- tasks ---

    def _begin(self, task: Task, group: asyncio.TaskGroup, turn: spans.Work | None) -> None:
        job = self._work.jobs[task.name]
        self.schedule.granted(task.name)
        self._receipts.begin(task)
        group.create_task(self._carry_out(job, turn), name=task.name)

    async def _carry_out(self, job: Job, turn: spans.Work | None) -> None:
        begun, task = self._clock(), job.task
        cost: int | None = None
        wait_s = 0.0  # where we are stopped meanwhile, another may do it at once
        try:
            with carried_out(self._traces, job, turn):
                cost = await self._jobs.run(job)
            wait_s = jittered(again_s(task.interval_s, self._factor(task), self._board_ms(), self._draw()), self._draw())
        finally:
            self._receipts.settle(task.name, cost)
            self.schedule.ended(task.name, begun + wait_s)
            self._ended[task.name] = begun + wait_s

    def _factor(self, task: Task) -> float:
        budget = self._budgets.get(task.purse)
        if not task.cost_pico or budget is None:
            return 1.0
        own = self._receipts.totals().get(task.purse, 0) - self._own_then.get(task.purse, 0)
        spent = self._spent.get(task.purse, 0) + max(0, own)
        return stretch(self._planned.get(task.purse, 0.0), self._receipts.ratio(task.purse), spent, budget, self._board_ms())

    def _board_ms(self) -> float:
        return self._clock() * 1000 + self._ahead_ms

    def _show(self) -> None:
        instruments = self._instruments
        instruments.tasks.set(len(self.schedule.share))
        instruments.members.set(len(self.schedule.members))
        instruments.store_up.set(1 if self._store.state is Breaker.CLOSED else 0)
        for purse, budget in self._budgets.items():
            if budget and purse in self._planned:
                spent = self._spent.get(purse, 0)
                instruments.budget.labels(purse).set(spent / budget)
                factor = stretch(self._planned[purse], self._receipts.ratio(purse), spent, budget, self._board_ms())
                instruments.stretch.labels(purse).set(factor)
