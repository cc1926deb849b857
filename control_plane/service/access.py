"""The Access service: keys are made, listed, changed, rotated and revoked; a secret leaves once, in the reply that made it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from control_plane import access
from control_plane.access import KeyRecord
from control_plane.publisher import Publisher
from control_plane.repository import Repository
from control_plane.service.answers import Context, answering, author_of, unary_handlers
from n4n.v1 import access_pb2

_SERVICE = access_pb2.DESCRIPTOR.services_by_name["Access"]


class Access:
    """Every change is the next access version and wakes the watchers."""

    def __init__(self, repository: Repository, publisher: Publisher, now: Callable[[], datetime]) -> None:
        self._repository = repository
        self._publisher = publisher
        self._now = now

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        methods: tuple[Callable[..., object], ...] = (
            self.CreateKey, self.ListKeys, self.ShowKey, self.UpdateKey, self.RotateKey, self.RevokeKey,
        )  # fmt: skip
        return unary_handlers(_SERVICE, {method.__name__: method for method in methods})

    async def CreateKey(self, request: access_pb2.CreateKeyRequest, context: Context) -> access_pb2.CreateKeyReply:
        """A new key; its tenant is made where it is new."""
        async with answering(context):
            settings = access.read_settings(_told(request.settings), self._now())
            record, secret = access.new_key(request.tenant, settings, author_of(request.author), self._now())
            record = await self._repository.create_key(record)
            self._publisher.ring()
            return access_pb2.CreateKeyReply(key=self._info(record), secret=secret)

    async def ListKeys(self, request: access_pb2.ListKeysRequest, context: Context) -> access_pb2.ListKeysReply:
        """Keys by tenant and age."""
        async with answering(context):
            tenant = access.tenant_name(request.tenant) if request.tenant else ""
            found = await self._repository.list_keys(tenant, request.include_revoked)
            return access_pb2.ListKeysReply(keys=map(self._info, found))

    async def ShowKey(self, request: access_pb2.ShowKeyRequest, context: Context) -> access_pb2.KeyInfo:
        """One key."""
        async with answering(context):
            return self._info(await self._repository.key(access.public_id_of(request.public_id)))

    async def UpdateKey(self, request: access_pb2.UpdateKeyRequest, context: Context) -> access_pb2.KeyInfo:
        """Sets the named rules."""
        async with answering(context):
            given, names = _told(request.settings), tuple(request.fields)
            return await self._change(
                request.public_id, request.author, "update", lambda record: access.updated(record, given, names, self._now())
            )

    async def RotateKey(self, request: access_pb2.RotateKeyRequest, context: Context) -> access_pb2.CreateKeyReply:
        """A new secret for the same key; the old one stays valid for the grace."""
        made = ""

        def edit(record: KeyRecord) -> KeyRecord:
            nonlocal made
            after, made = access.rotated(record, request.grace_ms, self._now())
            return after

        async with answering(context):
            info = await self._change(request.public_id, request.author, "rotate", edit)
            return access_pb2.CreateKeyReply(key=info, secret=made)

    async def RevokeKey(self, request: access_pb2.RevokeKeyRequest, context: Context) -> access_pb2.KeyInfo:
        """Ends a key for good; once more changes nothing."""
        async with answering(context):
            return await self._change(request.public_id, request.author, "revoke", lambda record: access.revoked(record, self._now()))

    async def _change(self, told: str, author: str, what: str, edit: Callable[[KeyRecord], KeyRecord | None]) -> access_pb2.KeyInfo:
        record = await self._repository.change_key(access.public_id_of(told), author_of(author), what, edit)
        self._publisher.ring()
        return self._info(record)

    def _info(self, record: KeyRecord) -> access_pb2.KeyInfo:
        info = access_pb2.KeyInfo(
            public_id=record.public_id,
            tenant=record.tenant,
            state=record.state(self._now()),
            created_at_ms=round(record.created_at.timestamp() * 1000),
            author=record.author,
            access_version=record.access_version,
        )
        json_format.ParseDict(access.settings_as_told(record.settings), info.settings)
        if record.revoked_at is not None:
            info.revoked_at_ms = round(record.revoked_at.timestamp() * 1000)
        return info


def _told(settings: access_pb2.KeySettings) -> dict[str, object]:
    """The rules by name, only those that were given."""
    return dict(json_format.MessageToDict(settings, preserving_proto_field_name=True))
