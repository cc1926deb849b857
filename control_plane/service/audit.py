"""The Audit service: who changed what, read only."""

from __future__ import annotations

import json

import grpc
from google.protobuf.message import Message

from control_plane.audit import KINDS, MOST, Entry, Facts, Wanted
from control_plane.refusals import InvalidRequest
from control_plane.repository import Repository
from control_plane.service.answers import Context, answering, instant, unary_handlers
from n4n.v1 import audit_pb2

_SERVICE = audit_pb2.DESCRIPTOR.services_by_name["Audit"]
_USUAL = 1000


class Audit:
    """Answers from the trail that every commit writes."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        return unary_handlers(_SERVICE, {"Query": self.Query})

    async def Query(self, request: audit_pb2.AuditQuery, context: Context) -> audit_pb2.AuditReply:
        """Entries, newest first."""
        async with answering(context):
            if request.kind and request.kind not in KINDS:
                raise InvalidRequest(f"kind: must be one of {', '.join(KINDS)}")
            if request.limit > MOST:
                raise InvalidRequest(f"limit: must be at most {MOST}")
            until = instant("until_ms", request.until_ms) if request.HasField("until_ms") else None
            since = instant("since_ms", request.since_ms)
            wanted = Wanted(since, until, request.author, request.kind, request.name, request.limit or _USUAL, request.before_id)
            return audit_pb2.AuditReply(entries=map(_told, await self._repository.audited(wanted)))


def _told(entry: Entry) -> audit_pb2.AuditEntry:
    return audit_pb2.AuditEntry(
        id=entry.id,
        at_ms=0 if entry.at is None else round(entry.at.timestamp() * 1000),
        author=entry.author,
        source=entry.source,
        action=entry.action,
        kind=entry.kind,
        name=entry.name,
        before_json=_json(entry.before),
        after_json=_json(entry.after),
    )


def _json(facts: Facts | None) -> str:
    return "" if facts is None else json.dumps(facts, ensure_ascii=False, sort_keys=True)
