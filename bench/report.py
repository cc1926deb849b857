"""From what was measured to tables: medians, ratios, and the place in the document where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from bench.measured import Began, Guarded, Low, Measured, Memory, Planned, Run, Runs, Shares, Translated, calm, middle
from bench.pairs import PAIRS
from bench.payloads import EVENTS
from bench.proxies import BARE, NGINX
from bench.routers import SGLANG
from bench.translate import OWN
from bench.trials import AT_ONCE, LOW_RATE, Load, Trial

BEGIN = "<!-- bench:begin (written by make bench) -->"
END = "<!-- bench:end -->"
BASES = (NGINX, BARE, SGLANG)
T = TypeVar("T")


def tables(measured: Measured, trials: Iterable[Trial]) -> list[str]:
    """One of each trial that saw something, in their order."""
    made: list[str] = []
    for trial in trials:
        if isinstance(trial, Load) and (runs := measured.loads.get(trial.name)):
            made.append(load_table(trial.title, "streams" if trial.stream else "requests", runs, over=BASES))
    if measured.low:
        made.append(low_table(measured.low))
    if measured.began:
        made.append(began_table(measured.began))
    if measured.guard:
        made.append(guard_table(measured.guard))
    if measured.workers:
        made.append(workers_table(measured.workers))
    if measured.plans:
        made.append(plans_table(measured.plans))
    if measured.paired:
        made.append(pairs_table(measured))
    if measured.translated:
        made.append(translated_table(measured.translated))
    if measured.memory:
        made.append(memory_table(measured.memory))
    return made


def load_table(title: str, unit: str, runs: Runs, *, over: Sequence[str]) -> str:
    """One row per peer, with its rate as a ratio to each of the peers in `over`."""
    rates = {name: median(run.rate for run in calm(turns)) for name, turns in runs.items()}
    bases = [name for name in over if rates.get(name)]
    one = unit.rstrip("s")
    heads = ["", f"{unit}/s", "lowest–highest", *(f"× {name}" for name in bases), f"CPU µs/{one}", "with all processes"]
    heads += ["busy %", "p50 ms", "p99 ms", "RSS MiB", "errors", "others %"]

    def row(name: str, turns: Sequence[Run]) -> list[str]:
        seen = calm(turns)
        others = _of(seen, lambda run: run.foreign * 100, ".0f")
        return [
            name,
            f"{rates[name]:,.0f}",
            f"{min(run.rate for run in seen):,.0f}–{max(run.rate for run in seen):,.0f}",
            *(f"{rates[name] / rates[base]:.2f}" for base in bases),
            _of(seen, lambda run: run.worker_us, ",.0f"),
            _of(seen, lambda run: run.cpu_us, ",.0f"),
            _of(seen, lambda run: min(1.0, run.busy) * 100, ".0f"),
            _of(seen, lambda run: run.outcome.p50_ms, ".1f"),
            _of(seen, lambda run: run.outcome.p99_ms, ".1f"),
            _of(seen, lambda run: run.mib, ".0f"),
            str(sum(run.outcome.errors for run in turns)),
            others if len(seen) == len(turns) else f"{others}, {len(seen)} of {len(turns)} turns",
        ]

    return markdown(title, heads, [row(name, turns) for name, turns in runs.items()])


def low_table(turns: Mapping[str, Sequence[Low]]) -> str:
    """What each adds to a call where nothing else happens."""
    base = middle(turns.get(NGINX, ()), lambda low: low.added_p50), middle(turns.get(NGINX, ()), lambda low: low.added_p95)
    heads = ["", "added p50 ms", "lowest–highest", f"× {NGINX}", "added p95 ms", f"× {NGINX}", "direct p50 ms", "direct p95 ms"]
    rows = []
    for name, seen in turns.items():
        added = middle(seen, lambda low: low.added_p50) or 0.0, middle(seen, lambda low: low.added_p95) or 0.0
        spread = f"{min(low.added_p50 for low in seen):.2f}–{max(low.added_p50 for low in seen):.2f}"
        over = [f"{mine / theirs:.1f}" if theirs else "" for mine, theirs in zip(added, base, strict=True)]
        direct = _of(seen, lambda low: low.direct_p50, ".2f"), _of(seen, lambda low: low.direct_p95, ".2f")
        rows.append([name, f"{added[0]:.2f}", spread, over[0], f"{added[1]:.2f}", over[1], *direct])
    return markdown(f"JSON, one request at a time, {LOW_RATE:.0f} a second", heads, rows)


def began_table(turns: Mapping[str, Sequence[Began]]) -> str:
    """How much later streams begin."""
    heads = ["", "first event added p50 ms", "added p95 ms", "direct p50 ms", "streams/s", "not whole"]
    rows = [
        [
            name,
            _of(seen, lambda one: one.p50 - one.direct_p50, ".2f"),
            _of(seen, lambda one: one.p95 - one.direct_p95, ".2f"),
            _of(seen, lambda one: one.direct_p50, ".2f"),
            _of(seen, lambda one: one.rate, ",.0f"),
            str(sum(one.incomplete for one in seen)),
        ]
        for name, seen in turns.items()
    ]
    return markdown(f"SSE, {AT_ONCE} streams at once", heads, rows)


def guard_table(turns: Sequence[Guarded]) -> str:
    """What the stream guard costs."""
    spread = f"{min(one.beyond for one in turns):.2f}–{max(one.beyond for one in turns):.2f}"
    rows = [
        ["first content, guard off", _of(turns, lambda one: one.off, ".2f")],
        ["first content, guard on", _of(turns, lambda one: one.on, ".2f")],
        ["the guard's own rule, seen at the upstream", _of(turns, lambda one: one.rule, ".2f")],
        [f"what the guard adds to its rule ({spread})", _of(turns, lambda one: one.beyond, ".2f")],
    ]
    return markdown("Stream guard, healthy streams with 20 ms between events", ["", "ms"], rows)


def workers_table(turns: Mapping[str, Sequence[Shares]]) -> str:
    """How work is shared, and what sharing costs."""
    heads = ["", "requests/s", "CPU µs/request", "with all processes", "share of the connections", "share of the CPU time", "errors"]
    rows = []
    for name, seen in turns.items():
        runs = [one.run for one in seen]
        row = [name, *(_of(runs, value, ",.0f") for value in (lambda run: run.rate, lambda run: run.worker_us, lambda run: run.cpu_us))]
        shares = [_percent([one / max(1, sum(turn.connections)) for turn in seen for one in turn.connections])]
        shares.append(_percent([one for turn in seen for one in turn.cpu]))
        rows.append([*row, *shares, str(sum(run.outcome.errors for run in runs))])
    return markdown("JSON, 128 connections, both CPUs shared by all with the load", heads, rows)


def pairs_table(measured: Measured) -> str:
    """What single things cost: medians of both, and of the ratios of the turns that followed each other."""
    rows = []
    for pair in PAIRS:
        for kind in pair.kinds:
            turns = measured.pairs(pair, kind)
            if not turns:
                continue
            on, off = [one for one, _ in turns], [other for _, other in turns]
            rates = [one.rate / other.rate for one, other in turns]
            cpu = [other.worker_us / one.worker_us for one, other in turns if one.worker_us]
            row = [f"{pair.what}, {kind}", _of(on, lambda run: run.rate, ",.0f"), _of(off, lambda run: run.rate, ",.0f")]
            row += [f"{median(rates):.2f}", f"{min(rates):.2f}–{max(rates):.2f}"]
            row += [_of(on, lambda run: run.worker_us, ",.0f"), _of(off, lambda run: run.worker_us, ",.0f")]
            rows.append([*row, f"{median(cpu):.2f}" if cpu else ""])
    heads = ["", "on, per second", "off", "on ÷ off", "lowest–highest", "CPU µs on", "off", "off ÷ on"]
    return markdown("n4n beside an n4n that lacks one thing", heads, rows)


def plans_table(turns: Sequence[Planned]) -> str:
    """What a routing decision costs."""
    rows = [
        ["a whole request of n4n", _of(turns, lambda one: one.request_us, ".0f"), ""],
        ["a plan for 10 candidates, 10 models", _of(turns, lambda one: one.few_us, ".1f"), _of(turns, lambda one: one.share, ".3f")],
        ["the same, 5,000 models", _of(turns, lambda one: one.many_us, ".1f"), _of(turns, lambda one: one.many_us / one.request_us, ".3f")],
    ]
    return markdown("Where a request goes", ["", "CPU µs", "of a request"], rows)


def translated_table(turns: Mapping[str, Sequence[Translated]]) -> str:
    """What a skin before each dialect costs, beside the same skin before its own, where nothing is translated."""
    heads = ["", "JSON, CPU µs", "× untranslated", f"stream of {EVENTS} events, CPU µs", "× untranslated"]
    rows = []
    for name, seen in turns.items():
        skin = name.split()[0]
        own = turns[f"{skin} ▸ {OWN[skin]}"]
        row = [name]
        for value in (lambda one: one.whole_us, lambda one: one.stream_us):
            row += [_of(seen, value, ",.0f"), f"{(middle(seen, value) or 0) / (middle(own, value) or 1):.2f}"]
        rows.append(row)
    return markdown("Translation, in process: a request read and written, its answer read and said", heads, rows)


def memory_table(turns: Sequence[Memory]) -> str:
    """Whether memory grows."""
    rows = []
    for seen in turns:
        rows.append([f"{seen.first_requests:,} requests", f"{seen.first_mib:.1f}", ""])
        after = f"{seen.requests:,} requests and {seen.broken_off:,} streams broken off"
        rows.append([after, f"{seen.mib:.1f}", f"{seen.mib / seen.first_mib:.3f}"])
    return markdown("Memory of a worker", ["after", "RSS MiB", "ratio"], rows)


def markdown(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others numbers."""
    lines = [f"**{title}**", "", _row(heads), _row([":--", *["--:"] * (len(heads) - 1)])]
    return "\n".join([*lines, *map(_row, rows)])


def placed(document: str, text: str, opening: str = BEGIN, closing: str = END) -> str:
    """The document with the text between its markers; ValueError where they are missing."""
    before, begin, rest = document.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise ValueError(f"the document lacks the lines {opening} and {closing}")
    return f"{before}{opening}\n\n{text.strip()}\n\n{closing}{after}"


def _of(turns: Sequence[T], value: Callable[[T], float], form: str) -> str:
    return format(median(map(value, turns)), form)


def _percent(shares: Sequence[float]) -> str:
    return f"{min(shares) * 100:.0f}–{max(shares) * 100:.0f} %" if min(shares) != max(shares) else f"{shares[0] * 100:.0f} %"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
