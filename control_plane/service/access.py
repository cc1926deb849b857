"""The Access service: keys are made, changed, rotated and revoked, tenants given rules; a secret leaves once, in the reply that made it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from control_plane import access
from control_plane.access import KeyRecord
from control_plane.budget_rules import told_budget
from control_plane.publisher import Publisher
from control_plane.repository import Repository
from control_plane.service.answers import Context, answering, author_of, unary_handlers
from control_plane.spending import Reading, Standing, standings
from control_plane.tenants import TenantRecord, read_tenant_settings, tenant_settings_as_told, updated_tenant
from n4n.core.budgets import Unit, usd_of
from n4n.v1 import access_pb2

_SERVICE = access_pb2.DESCRIPTOR.services_by_name["Access"]


class Access:
    """Every change is the next access version and wakes the watchers."""

    def __init__(self, repository: Repository, publisher: Publisher, reading: Reading, now: Callable[[], datetime]) -> None:
        """`reading`: a transaction on the ledger."""
        self._repository, self._reading = repository, reading
        self._publisher = publisher
        self._now = now

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        methods: tuple[Callable[..., object], ...] = (
            self.CreateKey, self.ListKeys, self.ShowKey, self.UpdateKey, self.RotateKey, self.RevokeKey,
            self.ListTenants, self.ShowTenant, self.UpdateTenant, self.ListBudgets,
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

    async def ListTenants(self, request: access_pb2.ListTenantsRequest, context: Context) -> access_pb2.ListTenantsReply:
        """Every tenant."""
        async with answering(context):
            return access_pb2.ListTenantsReply(tenants=map(_tenant_info, await self._repository.list_tenants()))

    async def ShowTenant(self, request: access_pb2.ShowTenantRequest, context: Context) -> access_pb2.TenantInfo:
        """One tenant."""
        async with answering(context):
            return _tenant_info(await self._repository.tenant(access.tenant_name(request.name)))

    async def UpdateTenant(self, request: access_pb2.UpdateTenantRequest, context: Context) -> access_pb2.TenantInfo:
        """Sets the named rules."""
        async with answering(context):
            given, names = _told(request.settings), tuple(request.fields)
            read_tenant_settings(given)
            name, now = access.tenant_name(request.name), self._now()
            record = await self._repository.change_tenant(
                name, author_of(request.author), lambda record: updated_tenant(record, given, names, now)
            )
            self._publisher.ring()
            return _tenant_info(record)

    async def ListBudgets(self, request: access_pb2.ListBudgetsRequest, context: Context) -> access_pb2.ListBudgetsReply:
        """What is spent of every budget and cap, by the ledger."""
        async with answering(context):
            tenant = access.tenant_name(request.tenant) if request.tenant else ""
            public_id = access.public_id_of(request.public_id) if request.public_id else ""
            held = await self._repository.budgeted(tenant, public_id)
            found = await standings(self._reading, held, round(self._now().timestamp() * 1000))
            return access_pb2.ListBudgetsReply(budgets=map(_standing_told, found))

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


def _standing_told(one: Standing) -> access_pb2.BudgetStanding:
    held, budget = one.held, one.held.budget
    told = access_pb2.BudgetStanding(
        tenant=held.tenant,
        public_id=held.public_id,
        provider=held.provider,
        spent=usd_of(one.spent) if budget.unit is Unit.USD else str(one.spent),
        begins_at_ms=one.begins_at_ms,
        resets_at_ms=one.resets_at_ms,
        level=one.level,
        unpriced=max(0, one.unpriced),
    )
    json_format.ParseDict(told_budget(budget), told.budget)
    return told


def _tenant_info(record: TenantRecord) -> access_pb2.TenantInfo:
    info = access_pb2.TenantInfo(
        name=record.name,
        created_at_ms=round(record.created_at.timestamp() * 1000),
        author=record.author,
        access_version=record.access_version,
        keys=record.keys,
    )
    json_format.ParseDict(tenant_settings_as_told(record.settings), info.settings)
    return info


def _told(settings: access_pb2.KeySettings | access_pb2.TenantSettings) -> dict[str, object]:
    """The rules by name, only those that were given."""
    return dict(json_format.MessageToDict(settings, preserving_proto_field_name=True))
