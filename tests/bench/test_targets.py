"""What is derived from the turns of a bench: the targets, the tables of the smaller trials, pairs of two checkouts, the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench.ab import A, B, paired, pairs_table
from bench.bars import Panel, panels, svg
from bench.load import Outcome
from bench.measured import Began, Guarded, Low, Measured, Memory, Planned, Run, Shares
from bench.report import tables
from bench.targets import Target, targets, targets_table
from bench.trials import TWO_WORKERS, trials


def run(rate: float, *, cpu_us: float = 100.0, foreign: float = 0.0) -> Run:
    used = rate * 2 * cpu_us / 1e6
    return Run(Outcome(int(rate * 2), 2.0, 0, p50_ms=1.0, p99_ms=9.0), used, used, mib=60.0, foreign=foreign)


def whole() -> Measured:
    """A bench in which n4n meets every target but those on TLS and on metered streams."""
    return Measured(
        loads={
            "json32": {"direct": [run(60_000)], "nginx": [run(30_000, cpu_us=20)], "aiohttp proxy": [run(3_000)], "n4n": [run(6_000)]},
            "json128": {"n4n": [run(5_700)]},
            "tls32": {"aiohttp proxy": [run(2_000)], "n4n": [run(3_000)]},
            "sse256": {"nginx": [run(2_000)], "n4n": [run(1_000), run(1_200), run(900)]},
        },
        low={"nginx": [Low(0.1, 0.2, 0.3, 0.5)], "n4n": [Low(0.1, 0.2, 0.7, 0.9), Low(0.1, 0.2, 0.5, 1.0)]},
        began={"n4n": [Began(0.3, 0.5, 10.8, 12.0, 128, 0)]},
        guard=[Guarded(on=42.0, off=1.0, rule=40.5)],
        workers={
            "n4n": [Shares(run(4_000), [128], [1.0])],
            TWO_WORKERS: [Shares(run(6_000, cpu_us=105), [60, 68], [0.48, 0.52])],
        },
        paired={
            "metering": {
                "JSON": {"n4n": [run(5_700, cpu_us=110), run(5_000)], "n4n, not metered": [run(6_000), run(5_000)]},
                "SSE": {"n4n": [run(800)], "n4n, not metered": [run(1_000)]},
            },
            "traced": {"JSON": {"n4n": [run(5_000)], "n4n, 1 % traced": [run(4_900)]}},
        },
        plans=[Planned(150.0, 9.0, 9.9)],
        memory=[Memory(50_100, 64.0, 1_000_300, 50_000, 65.28)],
    )


def found(measured: Measured) -> dict[str, Target]:
    return {f"{target.what} {target.must}": target for target in targets(measured)}


@pytest.mark.parametrize(
    ("what", "value", "verdict"),
    [
        ("JSON, 32 connections ≥ 0.18 × nginx", 0.2, "met"),
        ("JSON, 32 connections ≥ 2 × aiohttp proxy", 2.0, "met"),
        ("JSON, 32 connections ≥ 1 × sglang-router", None, "not measured"),
        ("JSON, TLS to the upstream ≥ 2 × aiohttp proxy", 1.5, "not met"),
        ("SSE streams per second ≥ 0.45 × nginx", 0.5, "met"),
        ("added p50 at 50 requests/s ≤ 3.5 × nginx's own", 2.5, "met"),
        ("added p95 at 50 requests/s ≤ 3.5 × nginx's own", 2.5, "met"),
        ("the stream guard, beyond its own rule ≤ 2 ms", 0.5, "met"),
        ("JSON, the ledger and exact counts: on ÷ off ≥ 0.9", 0.975, "met"),
        ("SSE, the ledger and exact counts: on ÷ off ≥ 0.9", 0.8, "not met"),
        ("JSON, 1 % of traces: on ÷ off ≥ 0.97", 0.98, "met"),
        ("JSON, traces, switched off: on ÷ off ≥ 0.98", None, "not measured"),
        ("128 connections ÷ 32 ≥ 0.85", 0.95, "met"),
        ("CPU per request, 2 workers ÷ 1 ≤ 1.1", 1.05, "met"),
        ("connections of each of 2 workers of 128, furthest from half ≤ 10 %", 3.125, "met"),
        ("a plan for 10 candidates ÷ a whole request's CPU ≤ 0.1", 0.06, "met"),
        ("the same at 5,000 models ÷ at 10 ≤ 1.2", 1.1, "met"),
        ("RSS, after all ÷ after the first 50,000 requests ≤ 1.05", 1.02, "met"),
    ],
)
def test_a_target_is_derived_from_the_medians_of_the_run(what: str, value: float | None, verdict: str) -> None:
    target = found(whole())[what]

    assert target.value == (None if value is None else pytest.approx(value))
    assert target.verdict == verdict


def test_a_turn_that_others_disturbed_counts_only_where_there_is_no_other() -> None:
    measured = Measured(loads={"json32": {"nginx": [run(500, foreign=0.9)], "n4n": [run(100), run(40, foreign=0.2), run(120)]}})

    made = "\n".join(tables(measured, trials(quick=False).values()))

    assert found(measured)["JSON, 32 connections ≥ 0.18 × nginx"].value == pytest.approx(0.22)
    assert "| n4n | 110 | 100–120 | 0.22 | 100 | 100 | 1 | 1.0 | 9.0 | 60 | 0 | 0, 2 of 3 turns |" in made
    assert "| nginx | 500 | 500–500 | 1.00 | 100 | 100 | 5 | 1.0 | 9.0 | 60 | 0 | 90 |" in made


def test_what_was_not_measured_is_said_to_be_so() -> None:
    assert {target.verdict for target in targets(Measured())} == {"not measured"}
    assert "| JSON, 32 connections | ≥ 0.18 × nginx |  |  | not measured |" in targets_table(Measured())


def test_the_cost_of_both_stands_beside_a_ratio() -> None:
    assert "| JSON, 32 connections | ≥ 0.18 × nginx | 0.200 | 100 / 20 | met |" in targets_table(whole())


def test_every_trial_has_its_table() -> None:
    made = "\n\n".join(tables(whole(), trials(quick=False).values()))

    assert "| n4n | 0.50 | 0.40–0.60 | 2.5 | 0.75 | 2.5 | 0.10 | 0.20 |" in made
    assert "| n4n | 10.50 | 11.50 | 0.30 | 128 | 0 |" in made
    assert "| what the guard adds to its rule (0.50–0.50) | 0.50 |" in made
    assert "| n4n, 2 workers | 6,000 | 105 | 105 | 47–53 % | 48–52 % | 0 |" in made
    assert "| the ledger and exact counts, JSON | 5,350 | 5,500 | 0.97 | 0.95–1.00 | 105 | 100 | 0.95 |" in made
    assert "| 1,000,300 requests and 50,000 streams broken off | 65.3 | 1.020 |" in made
    assert "| a plan for 10 candidates, 10 models | 9.0 | 0.060 |" in made and "| the same, 5,000 models | 9.9 | 0.066 |" in made
    assert not tables(Measured(), trials(quick=False).values())


def test_two_checkouts_are_compared_round_by_round() -> None:
    measured = Measured(loads={"json32": {A: [run(1_000), run(2_000), run(1_500)], B: [run(1_100), run(2_600), run(1_500)]}})

    lines = pairs_table("JSON", paired(measured, "json32")).splitlines()

    assert lines[4] == "| per second | 1,500 | 1,500 | 1.100 | 1.000–1.300 |"
    assert lines[7] == "| errors | 0 | 0 |  |  |"


def test_the_picture_is_one_valid_file_with_a_bar_for_every_peer_but_the_upstream() -> None:
    shown = panels(whole(), list(trials(quick=False).values()))

    root = ElementTree.fromstring(svg([*shown, Panel("none <here>", [])]))

    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert len(shown) == 5 and "direct" not in words and "none <here>" in words
    assert words.count("n4n") == 5
    assert "6,000 · 100 µs" in words
