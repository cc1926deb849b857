"""Draws the incidents of the simulation, longer and under more load, into docs/: `python -m tests.soak.health` (half a minute of CPU)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.plot import Panel, svg
from tests.simulation.incidents import ILL, INCIDENTS, Course, run

DOCS = Path(__file__).parents[2] / "docs"
WINDOW_S = 2.0
MARKS: dict[str, list[tuple[float, str]]] = {
    "bursts": [(at, "5xx") for at in (50.0, 110.0, 170.0, 230.0, 290.0)],
    "flapping": [(7.0, "503 in turn")],
    "drift": [(40.0, "drift begins"), (200.0, "3 s")],
    "outage": [(30.0, "500"), (120.0, "well")],
}


def main(words: Sequence[str] | None = None) -> int:
    """Writes a picture for each incident and prints a table; 1 where clients noticed more than one request in a thousand."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.health", description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="requests per second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of virtual time (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where pictures go (default docs)")
    args = parser.parse_args(words)
    courses = {name: run(incident, rate=args.rate, seconds=args.seconds) for name, incident in INCIDENTS.items()}
    for name, course in courses.items():
        (args.folder / f"health-{name}.svg").write_text(picture(name, course, args.seconds))
    print("\n".join(table(courses)))
    return int(any(course.failure_rate > 0.001 or course.trials_at_once > 1 for course in courses.values()))


def picture(name: str, course: Course, seconds: float) -> str:
    """The ill endpoint's share of first attempts over its score; for drift, what clients waited for."""
    spans = [at * WINDOW_S for at in range(int(seconds / WINDOW_S))]
    shares = [(at, 100 * course.share(begin=at, end=at + WINDOW_S)) for at in spans]
    told = INCIDENTS[name].told
    panels = [Panel(f"{told}: share of first attempts, %", shares), Panel("score (0 while its breaker is open)", course.scores)]
    if name == "drift":
        took = sorted(zip(course.began, course.ttft_s, strict=True))
        panels[1] = Panel("until the client saw its first token, s", took[:: max(1, len(took) // 400)])
    return svg(panels, [(at, said) for at, said in MARKS[name] if at < seconds])


def table(courses: dict[str, Course]) -> list[str]:
    """As Markdown."""
    lines = [
        "| incident | requests | failed for the client | share of the ill endpoint | trials at once |",
        "| :-- | --: | --: | --: | --: |",
    ]
    for name, course in courses.items():
        share = f"{course.share(ILL):.1%}"
        lines.append(f"| {INCIDENTS[name].told} | {len(course.began):,} | {course.failed} | {share} | {course.trials_at_once} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
