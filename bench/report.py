"""From runs to a table: medians, ratios, and the place in the document where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import Outcome

BEGIN = "<!-- bench:begin (written by make bench) -->"
END = "<!-- bench:end -->"


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of one peer: what the load saw, the CPU time of the peer's processes, and what share of a CPU others took meanwhile."""

    outcome: Outcome
    cpu_seconds: float
    foreign: float

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.outcome.requests / self.outcome.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per good answer."""
        return self.cpu_seconds / max(1, self.outcome.requests) * 1e6


Runs = Mapping[str, Sequence[Run]]  # peer ▸ its runs


def table(title: str, unit: str, runs: Runs, *, over: Sequence[str]) -> str:
    """A Markdown table of medians, one row per peer, with its rate as a ratio to each of the peers in `over`."""
    rates = {name: median(run.rate for run in turns) for name, turns in runs.items()}
    bases = [name for name in over if name in runs]
    heads = [
        "",
        f"{unit}/s",
        "lowest–highest",
        *(f"× {name}" for name in bases),
        f"CPU µs/{unit.rstrip('s')}",
        "p50 ms",
        "p99 ms",
        "errors",
        "others %",
    ]
    lines = [f"**{title}**", "", _row(heads), _row([":--", *["--:"] * (len(heads) - 1)])]
    for name, turns in runs.items():
        spread = f"{min(run.rate for run in turns):,.0f}–{max(run.rate for run in turns):,.0f}"
        ratios = [f"{rates[name] / rates[base]:.2f}" for base in bases]
        cpu = median(run.cpu_us for run in turns)
        lines.append(
            _row(
                [
                    name,
                    f"{rates[name]:,.0f}",
                    spread,
                    *ratios,
                    f"{cpu:,.0f}",
                    f"{median(run.outcome.p50_ms for run in turns):.1f}",
                    f"{median(run.outcome.p99_ms for run in turns):.1f}",
                    str(sum(run.outcome.errors for run in turns)),
                    f"{median(run.foreign for run in turns) * 100:.0f}",
                ]
            )
        )
    return "\n".join(lines)


def placed(document: str, text: str, opening: str = BEGIN, closing: str = END) -> str:
    """The document with the text between its markers; ValueError where they are missing."""
    before, begin, rest = document.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise ValueError(f"the document lacks the lines {opening} and {closing}")
    return f"{before}{opening}\n\n{text.strip()}\n\n{closing}{after}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
