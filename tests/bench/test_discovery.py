"""The discovery bench in small: 20 simulated routers, a control plane that is killed and started, and the plot that comes of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from bench.catalogs import large_catalog, with_changes
from bench.discovery import BEGIN, END, Size, measure, plot, report
from bench.plot import Panel, svg
from bench.report import placed
from bench.stall import Stall
from n4n.core.document import parse_document


async def test_twenty_routers_follow_in_time_whole_by_delta_and_after_restarts(postgres_url: str) -> None:
    size = Size(routers=20, endpoints=300, models=40, changes=6, resources=10, pause_s=0.05)

    figures = await measure(postgres_url, size, children=1)

    assert len(figures.delta_ms) == 20 * 6
    assert figures.p50_ms <= figures.p99_ms < 1000
    assert figures.resync_s < 30 and figures.return_s < 30
    assert figures.by_delta, "a version that the new process never saw is a base all the same"
    assert [said for _, said in figures.marks][:2] == ["first catalog", "6 changes"]
    text = report(size, figures, [Stall("10 entries changed", 20.0, 6.0)])
    assert "| the same, p99 |" in text and "its loop stands still for at most | 6 ms | ≤ 50 ms |" in text
    assert ElementTree.fromstring(plot(figures)).tag.endswith("svg")
    assert text in placed(f"a\n{BEGIN}\n{END}\nb", text, BEGIN, END)


def test_the_catalogs_of_the_bench_are_valid_and_a_change_is_as_large_as_it_says() -> None:
    before, problems = parse_document(large_catalog(200, 24))
    after, more = parse_document(with_changes(large_catalog(200, 24), 3, 10))

    assert not problems and not more
    assert sum(before[kind][name] != after[kind][name] for kind in before for name in before[kind]) == 10


def test_a_plot_is_one_valid_file_with_every_curve_and_mark() -> None:
    drawn = svg([Panel("memory, MiB", [(0, 10), (5, 140)]), Panel("nothing", [])], [(2.5, "a <restart>")])

    root = ElementTree.fromstring(drawn)
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert sum(element.tag.endswith("polyline") for element in root.iter()) == 2
    assert {"memory, MiB", "nothing", "a <restart>", "200"} <= set(words)
