"""What the command asks of a control plane: Catalog, Access and Fleet as typed calls, plain values back, one kind of refusal.

Every call is made once: a call that may have changed something is never repeated behind the operator's back. Several control
planes may be named; the first that accepts a connection is asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Self, TypeVar, cast

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see control_link
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is told by n4n, in its own words

import grpc
from google.protobuf.message import DecodeError, Message

from n4n.core.errors import Problem, StartFailed
from n4n.core.tracing import Parent
from n4n.runtime.access_calls import AccessCalls
from n4n.runtime.bearer import sent
from n4n.runtime.control_health import HealthReport, health_report, health_request
from n4n.runtime.control_link import open_channel
from n4n.runtime.operations_calls import OperationsCalls
from n4n.runtime.spans import carrying
from n4n.runtime.tls import NO_TLS, TlsFiles
from n4n.runtime.usage_calls import UsageCalls
from n4n.v1 import audit_pb2, catalog_pb2, fleet_pb2

ERROR_DETAIL = "n4n-error-bin"
CALL_S = 15.0
CONNECT_S = 3.0
MAX_REPLY_BYTES = 64 * 1024 * 1024  # a whole catalog with its changes; the control plane refuses documents above 16 MiB
Reply = TypeVar("Reply", bound=Message)


class ControlRefused(Exception):
    """A call was refused or could not be made; `message` is one line that names the remedy, `problems` the fields at fault."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = (), head_version: int = 0) -> None:
        self.code = code  # invalid_catalog, version_conflict, shrink, not_found, unreachable, unauthenticated, deadline, …
        self.message = " ".join(message.split())
        self.problems = tuple(problems)
        self.head_version = head_version
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class Change:
    """One changed leaf of the document; values are JSON text, empty: absent."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the catalog; `committed_at_ms`: Unix time."""

    version: int
    author: str
    committed_at_ms: int
    message: str
    checksum: str
    endpoints: int
    changes: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change of the catalog came to."""

    version: Version
    changes: tuple[Change, ...]
    unchanged: bool
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What a document would change."""

    changes: tuple[Change, ...]
    head_version: int


@dataclass(frozen=True, slots=True)
class Document:
    """A version and its contents; `endpoint_states`: only those that are not active."""

    version: Version
    document_json: str
    endpoint_states: Mapping[str, str]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A router or prober as the control plane sees it; times are Unix ms, 0: never."""

    node: str
    role: str
    build: str
    connected: bool
    applied_version: int
    head_version: int
    access_version: int
    access_head_version: int
    lag_ms: int | None
    last_nack: str
    last_seen_ms: int
    last_ack_ms: int
    findings: tuple[str, ...] = ()  # of a prober


@dataclass(frozen=True, slots=True)
class Status:
    """The control plane itself, its stores and its nodes."""

    build: str
    catalog_version: int
    access_version: int
    database: str
    redis: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change. `before_json` and `after_json`: what differs, as JSON objects; empty: the thing was not there."""

    id: int
    at_ms: int
    author: str
    source: str
    action: str
    kind: str
    name: str
    before_json: str
    after_json: str


class ControlClient(AccessCalls, UsageCalls, OperationsCalls):
    """An async context manager; every call raises ControlRefused and nothing else. `targets`: host:port each."""

    def __init__(
        self,
        targets: Sequence[str],
        token: str,
        *,
        tls: TlsFiles = NO_TLS,
        call_s: float = CALL_S,
        connect_s: float = CONNECT_S,
        parent: Parent | None = None,
    ) -> None:
        """`parent`: what these calls are a part of, for the control plane's traces."""
        self._targets, self._tls = tuple(targets), tls
        self._metadata = (("authorization", f"Bearer {sent(token)}"), *(() if parent is None else carrying(parent)))
        self._call_s, self._connect_s = call_s, connect_s
        self._channel: grpc.aio.Channel | None = None
        self._target = ""

    def __repr__(self) -> str:
        return f"ControlClient({', '.join(self._targets)})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; a later call opens a new one."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    # Catalog.

    async def apply(
        self,
        document_json: str,
        *,
        author: str,
        message: str = "",
        dry_run: bool = False,
        expect_version: int | None = None,
        allow_shrink: bool = False,
    ) -> Applied:
        """Makes a document the next version."""
        request = catalog_pb2.ApplyRequest(
            document_json=document_json,
            dry_run=dry_run,
            expect_version=expect_version,
            message=message,
            author=author,
            allow_shrink=allow_shrink,
        )
        return _applied(await self._ask("Catalog/Apply", request, catalog_pb2.ApplyReply))

    async def diff(self, document_json: str) -> Difference:
        """What applying a document would change."""
        reply = await self._ask("Catalog/Diff", catalog_pb2.DiffRequest(document_json=document_json), catalog_pb2.DiffReply)
        return Difference(_changes(reply.changes), reply.head_version)

    async def get(self, version: int | None = None) -> Document:
        """A version and its contents; None: the newest."""
        reply = await self._ask("Catalog/Get", catalog_pb2.GetRequest(version=version), catalog_pb2.GetReply)
        return Document(_version(reply.version), reply.document_json, dict(reply.endpoint_states), _changes(reply.changes))

    async def history(self, *, limit: int = 50, before_version: int | None = None) -> tuple[Version, ...]:
        """Versions, newest first."""
        request = catalog_pb2.HistoryRequest(limit=limit, before_version=before_version)
        return tuple(map(_version, (await self._ask("Catalog/History", request, catalog_pb2.HistoryReply)).versions))

    async def rollback(
        self, version: int, *, author: str, message: str = "", allow_shrink: bool = False, expect_version: int | None = None
    ) -> Applied:
        """Makes an old version's contents the next version."""
        request = catalog_pb2.RollbackRequest(
            version=version, message=message, author=author, allow_shrink=allow_shrink, expect_version=expect_version
        )
        return _applied(await self._ask("Catalog/Rollback", request, catalog_pb2.ApplyReply))

    async def validate(self, document_json: str) -> tuple[Problem, ...]:
        """Everything that is wrong with a document."""
        reply = await self._ask("Catalog/Validate", catalog_pb2.ValidateRequest(document_json=document_json), catalog_pb2.ValidateReply)
        return _problems(reply.problems)

    async def set_endpoint_state(self, endpoint: str, state: str, *, author: str, message: str = "") -> Applied:
        """Overrides an endpoint's state beside the document: active, draining or disabled."""
        request = catalog_pb2.SetEndpointStateRequest(endpoint=endpoint, state=state, message=message, author=author)
        return _applied(await self._ask("Catalog/SetEndpointState", request, catalog_pb2.ApplyReply))

    # Fleet.

    async def nodes(self) -> tuple[Node, ...]:
        """Every router and prober."""
        return tuple(map(_node, (await self._ask("Fleet/Nodes", fleet_pb2.NodesRequest(), fleet_pb2.NodesReply)).nodes))

    async def status(self) -> Status:
        """Versions, stores and nodes."""
        reply = await self._ask("Fleet/Status", fleet_pb2.StatusRequest(), fleet_pb2.StatusReply)
        nodes = tuple(map(_node, reply.nodes))
        return Status(reply.build, reply.catalog_version, reply.access_version, reply.database, reply.redis, nodes)

    async def health(self, model: str, window_ms: int) -> HealthReport:
        """Every endpoint of a model (empty: of all), with the errors of the last `window_ms`."""
        return health_report(await self._ask("Fleet/Health", health_request(model, window_ms), fleet_pb2.HealthReply))

    # Audit.

    async def audit(
        self,
        since_ms: int,
        *,
        until_ms: int | None = None,
        author: str = "",
        kind: str = "",
        name: str = "",
        limit: int = 0,
        before_id: int = 0,
    ) -> tuple[AuditEntry, ...]:
        """Who changed what in this span (Unix ms), newest first, of entries older than `before_id` if that is given; empty text: all."""
        request = audit_pb2.AuditQuery(
            since_ms=since_ms, until_ms=until_ms, author=author, kind=kind, name=name, limit=limit, before_id=before_id
        )
        entries = (await self._ask("Audit/Query", request, audit_pb2.AuditReply)).entries
        return tuple(AuditEntry(*(getattr(entry, field.name) for field in fields(AuditEntry))) for entry in entries)

    # The wire.

    async def ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """One answer to one call, `Service/Method`."""
        return await self._ask(method, request, reply)

    async def _ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        channel = await self._connected()
        call = channel.unary_unary(f"/n4n.v1.{method}", type(request).SerializeToString, reply.FromString)
        try:
            answer: Reply = await call(request, timeout=self._call_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error) from None
        return answer

    async def ask_many(self, method: str, request: Message, reply: type[Reply]) -> AsyncIterator[Reply]:
        """The answers to one call, as they come, however long that takes: a control plane that is gone is noticed by the connection."""
        channel = await self._connected()
        open_call = channel.unary_stream(f"/n4n.v1.{method}", type(request).SerializeToString, reply.FromString)
        try:
            async for answer in open_call(request, metadata=self._metadata):
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error) from None

    async def _connected(self) -> grpc.aio.Channel:
        if self._channel is not None:
            return self._channel
        if not self._targets:
            raise ControlRefused("unreachable", "no control plane is named; start n4n up, or set N4N_ADMIN_URL to its HOST:PORT")
        for target in self._targets:
            channel = self._open(target)
            try:
                async with asyncio.timeout(self._connect_s):
                    ready = await _gets_ready(channel)
            except TimeoutError:
                ready = False
            if ready:
                self._channel, self._target = channel, target
                return channel
            await channel.close(None)
        where, secured = " or ".join(self._targets), " over TLS" if self._tls.is_on else ""
        raise ControlRefused("unreachable", f"no control plane answers at {where}{secured}; start one with n4n up, or set N4N_ADMIN_URL")

    def _open(self, target: str) -> grpc.aio.Channel:
        try:
            return open_channel(target, self._connect_s, self._tls, MAX_REPLY_BYTES)
        except StartFailed as error:
            raise ControlRefused("unreachable", str(error)) from error

    def _refusal(self, error: grpc.aio.AioRpcError) -> ControlRefused:
        where = f"the control plane at {self._target}"
        detail = _detail(error)
        match error.code():
            case grpc.StatusCode.UNAUTHENTICATED:
                return ControlRefused("unauthenticated", f"{where} refuses the token; set N4N_ADMIN_TOKEN to its admin token")
            case _ if detail is not None and detail.message:
                return ControlRefused(detail.code, detail.message, _problems(detail.problems), detail.head_version)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return ControlRefused("deadline", f"{where} did not answer within {self._call_s:g} s; n4n status shows how its stores are")
            case grpc.StatusCode.UNAVAILABLE:
                return ControlRefused("unavailable", f"{where} cannot answer now: {error.details() or 'the connection broke'}")
            case grpc.StatusCode.UNIMPLEMENTED:
                return ControlRefused("unimplemented", f"{where} does not know this call; it is of another version than this n4n")
            case code:
                return ControlRefused(code.name.lower(), f"{where} failed: {code.name} {error.details() or ''}; its log says more")


async def _gets_ready(channel: grpc.aio.Channel) -> bool:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return False
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)
    return True


def _detail(error: grpc.aio.AioRpcError) -> catalog_pb2.ErrorDetail | None:
    value = dict(cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata())).get(ERROR_DETAIL)
    try:
        return catalog_pb2.ErrorDetail.FromString(value) if isinstance(value, bytes) else None
    except DecodeError:
        return None


def _problems(told: Sequence[catalog_pb2.Problem]) -> tuple[Problem, ...]:
    return tuple(Problem(problem.field, problem.message) for problem in told)


def _changes(told: Sequence[catalog_pb2.Change]) -> tuple[Change, ...]:
    return tuple(Change(change.path, change.before, change.after) for change in told)


def _version(told: catalog_pb2.VersionInfo) -> Version:
    return Version(told.version, told.author, told.committed_at_ms, told.message, told.checksum, told.endpoints, told.changes)


def _applied(told: catalog_pb2.ApplyReply) -> Applied:
    return Applied(_version(told.version), _changes(told.changes), told.unchanged, told.dry_run)


def _node(told: fleet_pb2.NodeInfo) -> Node:
    return Node(
        node=told.node,
        role=told.role,
        build=told.build,
        connected=told.connected,
        applied_version=told.applied_version,
        head_version=told.head_version,
        access_version=told.access_version,
        access_head_version=told.access_head_version,
        lag_ms=told.lag_ms if told.HasField("lag_ms") else None,
        last_nack=told.last_nack,
        last_seen_ms=told.last_seen_ms,
        last_ack_ms=told.last_ack_ms,
        findings=tuple(told.findings),
    )
