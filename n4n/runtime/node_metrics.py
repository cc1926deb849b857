"""The metrics that the workers of a node keep in files of one folder, read by whoever answers for the node."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector


class NodeMetrics(Collector):
    """All of them, added up. A file that a worker is just making is empty, and stays so where the worker is killed in between: the
    library alone would fail over it, for every scrape until that worker is back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"NodeMetrics({self._folder})"

    def collect(self) -> Iterable[Metric]:
        """As they are now."""
        files = [str(path) for path in self._folder.glob("*.db") if _size(path)]
        return MultiProcessCollector.merge(files)  # type: ignore[no-any-return, no-untyped-call]


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
