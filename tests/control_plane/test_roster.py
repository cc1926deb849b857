"""How many data planes a control plane knows of: its own, and those that others have written to Postgres of late."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from control_plane.repository import NodeRow
from control_plane.roster import Roster
from n4n.runtime import wire
from tests.support.control_plane import heartbeat

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Nodes:
    """The repository, as far as a roster needs it."""

    def __init__(self, *rows: NodeRow) -> None:
        self.rows = list(rows)

    async def record_nodes(self, rows: Iterable[NodeRow]) -> None:
        """Not looked at."""

    async def known_nodes(self, _: datetime) -> list[NodeRow]:
        return self.rows


def row(node: str, role: str = "data-plane", place: str | None = "elsewhere", age_s: float = 1.0) -> NodeRow:
    return NodeRow(node, role, "0", place, 1, 1, NOW - timedelta(seconds=age_s))


async def test_those_that_are_connected_anywhere_are_counted_once() -> None:
    nodes = Nodes(
        row("here-1", place="elsewhere"),  # it was there a moment ago
        row("there-1"),
        row("there-2", age_s=14.0),
        row("gone", place=None),
        row("lost", age_s=16.0),
        row("mine-of-old", place="here"),
        row("prober-1", role="prober"),
    )
    roster = Roster(nodes, place="here", now=lambda: NOW)  # type: ignore[arg-type]
    assert roster.routers == 0
    roster.joined("here-1", "data-plane", "0", {})
    roster.joined("prober-2", "prober", "0", {})
    assert roster.routers == 1
    await roster._look_elsewhere()
    assert roster.routers == 3


def test_a_heartbeat_of_an_older_control_plane_tells_of_no_routers() -> None:
    (encoded,) = heartbeat(3, "c")
    told = wire.decode_watch(encoded)
    assert told is not None and told.routers == 0  # type: ignore[union-attr]
