"""The Catalog service: apply, diff, show, history, rollback, validate, and the endpoint states beside the document."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import grpc
from google.protobuf.message import Message

from control_plane.publisher import Publisher
from control_plane.refusals import InvalidRequest, NotFound
from control_plane.repository import Repository
from control_plane.service.answers import Context, answering, author_of, message_of, unary_handlers
from control_plane.versions import (
    Change,
    Content,
    Draft,
    Version,
    VersionInfo,
    apply_document,
    changes_between,
    document_text,
    read_document,
    roll_back,
    set_state,
    valid_document,
)
from n4n.core.faults import injected
from n4n.runtime.logs import fields
from n4n.runtime.spans import current_work, part
from n4n.v1 import catalog_pb2

_SERVICE = catalog_pb2.DESCRIPTOR.services_by_name["Catalog"]
_MOST_LISTED = 1000
_MOST_TOLD = 10  # endpoints with a fault, in one line of the log
_log = logging.getLogger("n4n.control_plane")


class Catalog:
    """Every commit is serialised by the repository; this only translates."""

    def __init__(self, repository: Repository, publisher: Publisher) -> None:
        self._repository = repository
        self._publisher = publisher

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        methods: tuple[Callable[..., object], ...] = (
            self.Apply, self.Diff, self.Get, self.History, self.Rollback, self.Validate, self.SetEndpointState,
        )  # fmt: skip
        return unary_handlers(_SERVICE, {method.__name__: method for method in methods})

    async def Apply(self, request: catalog_pb2.ApplyRequest, context: Context) -> catalog_pb2.ApplyReply:
        """A document as the next version, or, dry, what that would change."""
        async with answering(context):
            author, message = author_of(request.author), message_of(request.message)
            with part("catalog validate") as work:
                if work is not None:
                    work.told["n4n.document_bytes"] = len(request.document_json)
                document = await asyncio.to_thread(valid_document, request.document_json)

            def decide(head: Version) -> Draft | None:
                return apply_document(head, document, author=author, message=message, allow_shrink=request.allow_shrink)

            expect = _expected(request)
            if request.dry_run:
                return _would_be(*await self._repository.preview(decide, expect))
            return await self._commit(decide, expect)

    async def Rollback(self, request: catalog_pb2.RollbackRequest, context: Context) -> catalog_pb2.ApplyReply:
        """An older version's document as the next version."""
        async with answering(context):
            author, message = author_of(request.author), message_of(request.message)
            old = await self._repository.catalog(_version(request.version))
            expect = _expected(request)
            return await self._commit(
                lambda head: roll_back(head, old, author=author, message=message, allow_shrink=request.allow_shrink), expect, "rollback"
            )

    async def SetEndpointState(self, request: catalog_pb2.SetEndpointStateRequest, context: Context) -> catalog_pb2.ApplyReply:
        """Drains, disables or enables an endpoint: the same document, another state beside it."""
        async with answering(context):
            author, message = author_of(request.author), message_of(request.message)
            endpoint, state = request.endpoint, request.state
            return await self._commit(
                lambda head: set_state(head, endpoint, state, author=author, message=message), None, f"set {state}", endpoint
            )

    async def _commit(
        self, decide: Callable[[Version], Draft | None], expect: int | None, action: str = "apply", endpoint: str = ""
    ) -> catalog_pb2.ApplyReply:
        version, committed = await self._repository.commit_catalog(decide, expect, action, endpoint)
        _tell(version, committed=committed)
        if not committed:
            return catalog_pb2.ApplyReply(version=_info(version.info), unchanged=True)
        self._publisher.ring()
        _warn(version)
        return catalog_pb2.ApplyReply(version=_info(version.info), changes=_changes(version.changes))

    async def Diff(self, request: catalog_pb2.DiffRequest, context: Context) -> catalog_pb2.DiffReply:
        """What applying a document would change; nothing is refused but an invalid document."""
        async with answering(context):
            document = await asyncio.to_thread(valid_document, request.document_json)
            head = await self._repository.catalog()
            states = {name: state for name, state in head.content.states.items() if name in document["endpoints"]}
            changes = changes_between(head.content, Content(document, states))
            return catalog_pb2.DiffReply(changes=_changes(changes), head_version=head.info.version)

    async def Get(self, request: catalog_pb2.GetRequest, context: Context) -> catalog_pb2.GetReply:
        """A version, the head unless told, with its diff against the one before."""
        async with answering(context):
            found = await self._repository.catalog(_version(request.version) if request.HasField("version") else None)
            if found.info.version == 0:
                raise NotFound("there is no catalog yet; n4n catalog apply -f FILE makes the first version")
            return catalog_pb2.GetReply(
                version=_info(found.info),
                document_json=document_text(found.content.document),
                endpoint_states=dict(found.content.states),
                changes=_changes(found.changes),
            )

    async def History(self, request: catalog_pb2.HistoryRequest, context: Context) -> catalog_pb2.HistoryReply:
        """Versions, newest first."""
        async with answering(context):
            before = _version(request.before_version) if request.HasField("before_version") else None
            found = await self._repository.history(min(request.limit or 50, _MOST_LISTED), before)
            return catalog_pb2.HistoryReply(versions=map(_info, found))

    async def Validate(self, request: catalog_pb2.ValidateRequest, context: Context) -> catalog_pb2.ValidateReply:
        """Everything wrong with a document; nothing when it may be applied."""
        _, problems = await asyncio.to_thread(read_document, request.document_json)
        return catalog_pb2.ValidateReply(
            problems=[catalog_pb2.Problem(field=problem.field, message=problem.message) for problem in problems]
        )


def _warn(version: Version) -> None:
    """Nobody who reads this log is to take a rehearsal for an outage."""
    if found := injected(version.content.document["endpoints"]):
        told = fields(
            event="catalog_injects_faults", catalog_version=version.info.version, author=version.info.author, endpoints=len(found)
        )
        listed = "; ".join(found[:_MOST_TOLD]) + (f"; and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else "")
        _log.warning("catalog version %d injects faults, for a rehearsal: %s", version.info.version, listed, extra=told)


def _tell(version: Version, *, committed: bool) -> None:
    work = current_work()
    if work is not None:
        work.told |= {"n4n.catalog_version": version.info.version, "n4n.endpoints": version.info.endpoints, "n4n.unchanged": not committed}
        if committed:
            work.told["n4n.changes"] = len(version.changes)


def _expected(request: catalog_pb2.ApplyRequest | catalog_pb2.RollbackRequest) -> int | None:
    """The version that must be the head; 0: there must be none yet."""
    if not request.HasField("expect_version"):
        return None
    return _version(request.expect_version) if request.expect_version else 0


def _version(told: int) -> int:
    if not 0 < told < 2**63:
        raise InvalidRequest(f"version: must be a version's number, not {told}; n4n catalog history lists them")
    return told


def _info(info: VersionInfo) -> catalog_pb2.VersionInfo:
    return catalog_pb2.VersionInfo(
        version=info.version,
        author=info.author,
        committed_at_ms=round(info.committed_at.timestamp() * 1000),
        message=info.message,
        checksum=info.checksum,
        endpoints=info.endpoints,
        changes=info.changes,
    )


def _changes(changes: Iterable[Change]) -> list[catalog_pb2.Change]:
    return [catalog_pb2.Change(path=path, before=before, after=after) for path, before, after in changes]


def _would_be(head: Version, draft: Draft | None) -> catalog_pb2.ApplyReply:
    if draft is None:
        return catalog_pb2.ApplyReply(version=_info(head.info), unchanged=True, dry_run=True)
    info = catalog_pb2.VersionInfo(
        version=head.info.version + 1,
        author=draft.author,
        message=draft.message,
        checksum=draft.checksum,
        endpoints=draft.endpoints,
        changes=len(draft.changes),
    )
    return catalog_pb2.ApplyReply(version=info, changes=_changes(draft.changes), dry_run=True)
