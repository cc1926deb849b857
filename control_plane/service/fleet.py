"""The Fleet service: which nodes there are, what each has applied, and whether the stores answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import grpc
from google.protobuf.message import Message

from control_plane.lines import NONE, Published
from control_plane.publisher import Publisher
from control_plane.repository import NodeRow, Repository
from control_plane.roster import Roster
from control_plane.schema import DatabaseAway
from control_plane.service.answers import Context, answering, unary_handlers
from n4n import __version__
from n4n.v1 import fleet_pb2

_SERVICE = fleet_pb2.DESCRIPTOR.services_by_name["Fleet"]
PROBER = "prober"  # the role of a node that is given no keys
SILENT = timedelta(seconds=15)  # three missed signs of life of the control plane that holds the stream


class Fleet:
    """`redis`: asks the store and answers "ok" or what is wrong; `findings`: what probers found, by node."""

    def __init__(
        self,
        repository: Repository,
        publisher: Publisher,
        roster: Roster,
        redis: Callable[[], Awaitable[str]],
        findings: Callable[[], Awaitable[Mapping[str, Sequence[str]]]],
        now: Callable[[], datetime],
    ) -> None:
        self._repository = repository
        self._publisher = publisher
        self._roster = roster
        self._redis = redis
        self._findings = findings
        self._now = now

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        return unary_handlers(_SERVICE, {"Nodes": self.Nodes, "Status": self.Status})

    async def Nodes(self, request: fleet_pb2.NodesRequest, context: Context) -> fleet_pb2.NodesReply:
        """Every node that any control plane has seen in the last 24 hours."""
        async with answering(context):
            return fleet_pb2.NodesReply(nodes=self._infos(await self._all(), await self._findings()))

    async def Status(self, request: fleet_pb2.StatusRequest, context: Context) -> fleet_pb2.StatusReply:
        """Versions and stores. With Postgres away: what this process knows, and only the nodes it has seen itself."""
        database = "ok"
        try:
            nodes = await self._all()
        except DatabaseAway as error:
            database, nodes = str(error), self._roster.rows()
        return fleet_pb2.StatusReply(
            build=__version__,
            catalog_version=self._publisher.catalog.head.held[0],
            access_version=self._publisher.access.head.held[0],
            database=database,
            redis=await self._redis(),
            nodes=self._infos(nodes, {}),
        )

    async def _all(self) -> list[NodeRow]:
        await self._roster.flush()
        return await self._repository.known_nodes(self._now())

    def _infos(self, rows: Iterable[NodeRow], findings: Mapping[str, Sequence[str]]) -> list[fleet_pb2.NodeInfo]:
        return [self._info(row, findings.get(row.node, ()) if row.role == PROBER else ()) for row in rows]

    def _info(self, row: NodeRow, findings: Sequence[str]) -> fleet_pb2.NodeInfo:
        catalog, access = self._publisher.catalog, self._publisher.access
        now_ms, holds_keys = _ms(self._now()), row.role != PROBER
        behind = lag_ms(catalog.head, row.applied_version, now_ms)
        keys_behind = lag_ms(access.head, row.access_version, now_ms) if holds_keys else 0
        known = row.applied_version > 0 and behind is not None and keys_behind is not None
        return fleet_pb2.NodeInfo(
            node=row.node,
            role=row.role,
            build=row.build,
            connected=row.connected_to is not None and row.last_seen > self._now() - SILENT,
            applied_version=row.applied_version,
            head_version=catalog.head.held[0],
            access_version=row.access_version,
            access_head_version=access.head.held[0] if holds_keys else 0,
            lag_ms=max(behind or 0, keys_behind or 0) if known else None,
            last_nack=row.last_nack or "",
            last_seen_ms=_ms(row.last_seen),
            last_ack_ms=_ms(row.last_ack) if row.last_ack else 0,
            findings=findings,
        )


def lag_ms(head: Published, applied: int, now_ms: int) -> int | None:
    """How long the head of a collection has been out without the node that applied this version having it; 0: it has it.

    None: it cannot be told. The node has applied nothing yet, or there is no version here and the node has one of another history.
    """
    if head.held[0] == applied:
        return 0
    return None if applied == 0 or head.held == NONE else max(0, now_ms - head.committed_at_ms)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
