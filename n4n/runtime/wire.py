"""Protobuf on one side, the core's values on the other: the only place that knows both.

A collection travels as resources, each the encoded message of its kind; `Resources` maps (kind, name) to those bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from n4n.core.access import AccessSnapshot, Key, Tenant
from n4n.core.budgets import Budget, Unit, is_window, pico_of, usd_of
from n4n.core.catalog import Snapshot, compile_snapshot
from n4n.core.checksum import collection_checksum
from n4n.core.discovery import Heads, Held, Nack, Part, ResourceId, Unreadable
from n4n.core.discovery import Resources as Resources
from n4n.core.document import KINDS, Document, Table, canonical_json, parse_document, read_entry
from n4n.core.errors import CatalogRefused, Problem
from n4n.core.limits.subjects import Priority
from n4n.core.schema import Problems
from n4n.runtime.vitals import Vitals
from n4n.v1 import discovery_pb2, operations_pb2, types_pb2, usage_pb2

CATALOG: Final = types_pb2.COLLECTION_CATALOG
ACCESS: Final = types_pb2.COLLECTION_ACCESS
_KIND: dict[str, types_pb2.Kind] = {
    "providers": types_pb2.KIND_PROVIDER,
    "accounts": types_pb2.KIND_ACCOUNT,
    "models": types_pb2.KIND_MODEL,
    "endpoints": types_pb2.KIND_ENDPOINT,
    "tiers": types_pb2.KIND_TIER,
}
_KEY: Final = types_pb2.KIND_KEY
_TENANT: Final = types_pb2.KIND_TENANT
_SECTION: dict[int, str] = {number: section for section, number in _KIND.items()}
_MESSAGE: dict[int, type[Message]] = {
    types_pb2.KIND_PROVIDER: types_pb2.Provider,
    types_pb2.KIND_ACCOUNT: types_pb2.Account,
    types_pb2.KIND_MODEL: types_pb2.Model,
    types_pb2.KIND_ENDPOINT: types_pb2.Endpoint,
    types_pb2.KIND_TIER: types_pb2.Tier,
}


_REMEMBERED = 8192  # encoded entries: a catalog is encoded when it is checked, committed and pushed, and mostly unchanged each time


def catalog_resources(document: Document, states: Mapping[str, str]) -> Resources:
    """A valid document and its endpoint overrides as resources; equal input gives equal bytes."""
    resources: dict[ResourceId, bytes] = {}
    for section in KINDS:
        overrides = states if section == "endpoints" else {}
        for name, table in document[section].items():
            given = _Given(canonical_json(table), overrides.get(name, "active"), table)
            resources[(_KIND[section], name)] = _encoded(section, given)
    return resources


@dataclass(frozen=True, slots=True)
class _Given:
    """An entry; two with one spelling and state are one entry (1, 1.0 and true are spelled differently)."""

    spelling: str
    state: str
    table: Table = field(compare=False, repr=False)


@lru_cache(_REMEMBERED)
def _encoded(section: str, given: _Given) -> bytes:
    told = _to_proto_form(section, given.table)
    if given.state != "active":
        told["state"] = given.state
    return json_format.ParseDict(told, _MESSAGE[_KIND[section]]()).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource of the catalog, read: its bytes, its normal form, and the override beside it."""

    body: bytes
    table: Table
    state: str | None


@dataclass(frozen=True, slots=True)
class CatalogBuild:
    """A compiled snapshot and what it was made from, so that the next version reads and compiles only what changed."""

    snapshot: Snapshot
    document: Document
    entries: Mapping[ResourceId, Entry]


def compile_catalog(resources: Resources, *, version: int, checksum: str) -> Snapshot:
    """Resources as a compiled snapshot; CatalogRefused with every field path when they are not a valid catalog."""
    check_sum(resources, checksum)
    return build_catalog(resources, version=version, checksum=checksum).snapshot


def check_sum(resources: Resources, checksum: str) -> None:
    """CatalogRefused when they do not add up."""
    actual = collection_checksum(resources)
    if actual != checksum:
        raise CatalogRefused([Problem("checksum", f"the resources add up to {actual[:12]}…, not to the announced {checksum[:12]}…")])


def build_catalog(resources: Resources, *, version: int, checksum: str, before: CatalogBuild | None = None) -> CatalogBuild:
    """Resources whose sum has been checked, as a catalog; CatalogRefused with every field path. What is as in `before` is taken over."""
    known = before.entries if before else {}
    raw: Document = {section: {} for section in KINDS}
    entries: dict[ResourceId, Entry] = {}
    for name, body in sorted(resources.items()):
        section = _SECTION.get(name[0])
        if section is None:
            continue  # a kind of a newer version: unknown, ignored
        entry = known.get(name)
        if entry is None or entry.body != body:
            entry = _decode(section, name, body)
        entries[name] = entry
        raw[section][name[1]] = entry.table

    def read(section: str, name: str, table: object, problems: Problems) -> Table:
        entry = known.get((_KIND[section], name))
        return entry.table if entry is not None and entry.table is table else read_entry(section, name, table, problems)

    document, problems = parse_document(raw, read)
    if problems:
        raise CatalogRefused(problems)
    states = {name: entry.state for (_, name), entry in entries.items() if entry.state is not None}
    was = (before.document, before.snapshot) if before else None
    snapshot = compile_snapshot(document, version=version, checksum=checksum, states=states, before=was)
    normal = {name: _normal(entry, document[_SECTION[name[0]]][name[1]]) for name, entry in entries.items()}
    return CatalogBuild(snapshot, document, normal)


def _normal(entry: Entry, table: Table) -> Entry:
    return entry if entry.table is table else Entry(entry.body, table, entry.state)


def _decode(section: str, name: ResourceId, body: bytes) -> Entry:
    message = _MESSAGE[name[0]]()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise CatalogRefused([Problem(f"{section}.{name[1]}", "is not a readable protobuf message")]) from error
    table = _from_proto_form(section, cast(Table, json_format.MessageToDict(message, preserving_proto_field_name=True)))
    state = table.pop("state", None)
    return Entry(body, table, None if state is None else str(state))


def _to_proto_form(section: str, table: Table) -> Table:
    told = dict(table)
    if section == "models" and "capabilities" in told:
        given = cast(Mapping[str, object], told["capabilities"])
        told["capabilities"] = {
            "scores": {name: value for name, value in given.items() if not isinstance(value, bool)},
            "flags": {name: value for name, value in given.items() if isinstance(value, bool)},
        }
    if section == "models" and "retry_on" in cast(Table, told.get("retry", {})):
        told["retry"] = {**cast(Table, told["retry"]), "retry_on_given": True}
    if section == "endpoints" and "body" in told:
        told["body_json"] = json.dumps(told.pop("body"), sort_keys=True)
    if section == "endpoints" and "supports" in told:
        told["supports_given"] = True
    return told


def _from_proto_form(section: str, table: Table) -> Table:
    """Undoes `_to_proto_form`; protobuf's JSON form writes 64-bit integers as text, which the document reads as numbers."""
    if section == "models" and "capabilities" in table:
        split = cast(Mapping[str, Mapping[str, object]], table["capabilities"])
        table["capabilities"] = {**split.get("scores", {}), **split.get("flags", {})}
    retry = cast(Table, table.get("retry", {})) if section == "models" else {}
    if retry.pop("retry_on_given", False):
        retry.setdefault("retry_on", [])
    if section == "endpoints" and "body_json" in table:
        text = str(table.pop("body_json"))
        try:
            table["body"] = json.loads(text)
        except (ValueError, RecursionError):
            table["body"] = text  # refused by its path, as text that should be a map
    if section == "endpoints" and table.pop("supports_given", False):
        table.setdefault("supports", [])
    return table


def daily_token_budgets(resources: Resources) -> dict[str, int]:
    """The accounts that have one, in a catalog that was checked before."""
    found = {name: types_pb2.Account.FromString(body) for (kind, name), body in resources.items() if kind == types_pb2.KIND_ACCOUNT}
    return {name: account.daily_token_budget for name, account in found.items() if account.HasField("daily_token_budget")}


def encode_key(key: Key) -> bytes:
    """A key as the body of its resource."""
    message = types_pb2.Key(
        tenant=key.tenant,
        secret_sha256=key.secret_sha256,
        directives=key.directives,
        require_directives=key.require_directives,
        models=sorted(key.models),
    )
    if key.expires_at is not None:
        message.expires_at_ms = round(key.expires_at * 1000)
    for name, value in key.limits.items():
        setattr(message.limits, name, value)
    if key.priority is not None:
        message.priority = key.priority
    if key.previous_sha256 is not None and key.previous_expires_at is not None:
        message.previous_sha256 = key.previous_sha256
        message.previous_expires_at_ms = round(key.previous_expires_at * 1000)
    message.budgets.extend(map(_budget_message, key.budgets))
    if key.require_pricing:
        message.require_pricing = True
    message.tags.update(key.tags)
    return message.SerializeToString(deterministic=True)


def encode_tenant(tenant: Tenant) -> bytes:
    """What holds for a tenant as the body of its resource."""
    message = types_pb2.Tenant(budgets=map(_budget_message, tenant.budgets))
    for provider, cap in tenant.provider_caps.items():
        message.provider_caps[provider].CopyFrom(_budget_message(cap))
    for name, value in tenant.limits.items():
        setattr(message.limits, name, value)
    if tenant.priority is not None:
        message.priority = tenant.priority
    if tenant.capture_content:
        message.capture_content = True
    return message.SerializeToString(deterministic=True)


def _budget_message(budget: Budget) -> types_pb2.Budget:
    message = types_pb2.Budget(window=budget.window, since_ms=budget.since_ms)
    if budget.unit is Unit.USD:
        message.usd = usd_of(budget.amount)
    else:
        message.tokens = budget.amount
    if budget.soft:
        message.soft = True
    return message


def key_resource(public_id: str) -> ResourceId:
    """What a key goes by in the access collection."""
    return _KEY, public_id


def tenant_resource(name: str) -> ResourceId:
    """What a tenant goes by in the access collection."""
    return _TENANT, name


def access_resources(keys: Mapping[str, Key]) -> Resources:
    """Keys that may be used, by public id, as resources."""
    return {key_resource(public_id): encode_key(key) for public_id, key in keys.items()}


def compile_access(resources: Resources, *, version: int, checksum: str) -> AccessSnapshot:
    """Resources as the set of keys; CatalogRefused when they do not add up or a key cannot be read."""
    check_sum(resources, checksum)
    return build_access(resources, version=version, checksum=checksum)


def build_access(
    resources: Resources,
    *,
    version: int,
    checksum: str,
    before: AccessSnapshot | None = None,
    changed: Iterable[ResourceId] | None = None,
) -> AccessSnapshot:
    """Resources whose sum has been checked, as the set of keys; CatalogRefused. With `changed`, all others are as in `before`."""
    if before is None or changed is None:
        tenants = {name: _tenant(name, body) for (kind, name), body in resources.items() if kind == _TENANT}
        found = (_key(name, body) for (kind, name), body in resources.items() if kind == _KEY)
        keys = {key.public_id: tenants[key.tenant].lent(key) if key.tenant in tenants else key for key in found}
        return AccessSnapshot(version, checksum, keys, tenants)
    keys, tenants, edited = dict(before.keys), dict(before.tenants), set[str]()
    for kind, name in changed:
        if kind == _TENANT:
            body = resources.get((kind, name))
            tenants.pop(name, None)
            edited.add(name)
            if body is not None:
                tenants[name] = _tenant(name, body)
    anew = {name for kind, name in changed if kind == _KEY}
    anew.update(name for name, key in keys.items() if edited and key.tenant in edited)
    for name in anew:
        body = resources.get((_KEY, name))
        if body is not None:
            key = _key(name, body)
            keys[name] = tenants[key.tenant].lent(key) if key.tenant in tenants else key
        else:
            keys.pop(name, None)
    return AccessSnapshot(version, checksum, keys, tenants)


def _key(public_id: str, body: bytes) -> Key:
    message = types_pb2.Key()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise CatalogRefused([Problem(f"keys.{public_id}", "is not a readable protobuf message")]) from error
    if len(message.secret_sha256) != 32:
        raise CatalogRefused([Problem(f"keys.{public_id}.secret_sha256", "must be 32 bytes")])
    rotated = message.HasField("previous_sha256")
    return Key(
        public_id=public_id,
        tenant=message.tenant,
        secret_sha256=message.secret_sha256,
        expires_at=message.expires_at_ms / 1000 if message.HasField("expires_at_ms") else None,
        directives=tuple(message.directives),
        require_directives=tuple(message.require_directives),
        models=frozenset(message.models),
        limits=_limits(message.limits),
        priority=_priority(message, f"keys.{public_id}"),
        previous_sha256=message.previous_sha256 if rotated else None,
        previous_expires_at=message.previous_expires_at_ms / 1000 if rotated else None,
        budgets=tuple(_budget(one, f"keys.{public_id}.budgets") for one in message.budgets),
        require_pricing=message.require_pricing,
        tags=tuple(sorted(message.tags.items())),
    )


def _tenant(name: str, body: bytes) -> Tenant:
    message = types_pb2.Tenant()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise CatalogRefused([Problem(f"tenants.{name}", "is not a readable protobuf message")]) from error
    return Tenant(
        name=name,
        budgets=tuple(_budget(one, f"tenants.{name}.budgets") for one in message.budgets),
        provider_caps={provider: _budget(one, f"tenants.{name}.provider_caps") for provider, one in message.provider_caps.items()},
        limits=_limits(message.limits),
        priority=_priority(message, f"tenants.{name}"),
        capture_content=message.capture_content,
    )


def _limits(told: types_pb2.Limits) -> dict[str, int]:
    return {described.name: value for described, value in told.ListFields() if described.name != "scope"}


def _priority(told: types_pb2.Key | types_pb2.Tenant, path: str) -> str | None:
    if not told.HasField("priority"):
        return None
    if told.priority not in tuple(Priority):
        raise CatalogRefused([Problem(f"{path}.priority", f"must be one of {', '.join(Priority)}")])
    return told.priority


def _budget(told: types_pb2.Budget, path: str) -> Budget:
    if not is_window(told.window):
        raise CatalogRefused([Problem(f"{path}.window", "is none that this n4n knows")])
    unit, amount = (Unit.TOKENS, told.tokens) if told.HasField("tokens") else (Unit.USD, pico_of(told.usd or "0"))
    return Budget(unit, amount, told.window, told.soft, told.since_ms)


def to_messages(resources: Resources) -> list[types_pb2.Resource]:
    """Resources as messages, in order of (kind, name)."""
    return [types_pb2.Resource(kind=cast(types_pb2.Kind, kind), name=name, body=body) for (kind, name), body in sorted(resources.items())]


# The Watch stream, as bytes on the node's side.


def encode_hello(node: str, role: str, build: str, held: Iterable[Held]) -> bytes:
    """Who the node is and what it holds; the first message of a stream."""
    hello = discovery_pb2.Hello(node=node, role=role, build=build, held=[_told(one) for one in held if one.version])
    return discovery_pb2.WatchRequest(hello=hello).SerializeToString()


def encode_ack(held: Held) -> bytes:
    """This version is in use."""
    told = _told(held)
    ack = discovery_pb2.Ack(collection=told.collection, version=told.version, checksum=told.checksum)
    return discovery_pb2.WatchRequest(ack=ack).SerializeToString()


def encode_nack(collection: int, nack: Nack) -> bytes:
    """This version is not used, and why."""
    told = discovery_pb2.Nack(collection=_collection(collection), version=nack.version, field=nack.field, reason=nack.reason)
    return discovery_pb2.WatchRequest(nack=told).SerializeToString()


def decode_watch(encoded: bytes) -> Part | Heads | None:
    """What the control plane sent; None: a kind of message of a newer version. Unreadable when it is no message at all."""
    try:
        response = discovery_pb2.WatchResponse.FromString(encoded)
    except DecodeError as error:
        raise Unreadable("the control plane sent a message that cannot be read") from error
    match response.WhichOneof("kind"):
        case "update":
            return _part(response.update)
        case "heartbeat":
            beat = response.heartbeat
            return Heads(tuple(Held(head.collection, head.version, head.checksum) for head in beat.heads), beat.routers)
    return None


def _part(update: discovery_pb2.Update) -> Part:
    return Part(
        collection=update.collection,
        version=update.version,
        checksum=update.checksum,
        base_version=update.base_version,
        base_checksum=update.base_checksum,
        upserts=tuple(((resource.kind, resource.name), resource.body) for resource in update.upserts),
        removed=tuple((name.kind, name.name) for name in update.removed),
        part=update.part,
        parts=update.parts,
    )


def _collection(number: int) -> types_pb2.Collection:
    return cast(types_pb2.Collection, number)


def _told(held: Held) -> discovery_pb2.Held:
    return discovery_pb2.Held(collection=_collection(held.collection), version=held.version, checksum=held.checksum)


# Usage, on the router's side.


def encode_usage(node: str, source: str, offset: int, lines: bytes) -> bytes:
    """Settled rows on their way to a control plane; `offset`: where they end in their segment."""
    return usage_pb2.UsageReport(node=node, source=source, offset=offset, lines=lines).SerializeToString()


def acknowledged_usage(encoded: bytes) -> int | None:
    """The offset before which all is safe; None: the answer is no receipt."""
    try:
        return usage_pb2.UsageReceipt.FromString(encoded).offset
    except DecodeError:
        return None


# The last good state on a router's own disk: one DiskSnapshot per collection, each after its length (8 bytes, big-endian).


def encode_disk(collections: Iterable[tuple[Held, Resources]], saved_at_ms: int) -> bytes:
    """What a router keeps on its disk."""
    encoded = bytearray()
    for held, resources in collections:
        message = discovery_pb2.DiskSnapshot(held=[_told(held)], resources=to_messages(resources), saved_at_ms=saved_at_ms)
        body = message.SerializeToString(deterministic=True)
        encoded += len(body).to_bytes(8, "big") + body
    return bytes(encoded)


def decode_disk(encoded: bytes) -> tuple[list[tuple[Held, Resources]], int]:
    """The collections and when they were saved (Unix ms, the oldest); Unreadable when the bytes are not `encode_disk`'s."""
    collections: list[tuple[Held, Resources]] = []
    saved_at: list[int] = []
    at = 0
    while at < len(encoded):
        end = at + 8 + int.from_bytes(encoded[at : at + 8], "big")
        try:
            message = discovery_pb2.DiskSnapshot.FromString(encoded[at + 8 : end])
        except DecodeError as error:
            raise Unreadable("holds something that is no snapshot") from error
        if end > len(encoded) or len(message.held) != 1:
            raise Unreadable("ends too early")
        told = message.held[0]
        resources: dict[ResourceId, bytes] = {(resource.kind, resource.name): resource.body for resource in message.resources}
        collections.append((Held(told.collection, told.version, told.checksum), resources))
        saved_at.append(message.saved_at_ms)
        at = end
    return collections, min(saved_at, default=0)


def encode_vitals(node: str, run: str, vitals: Vitals) -> bytes:
    """How a node is, on its way to a control plane."""
    told = operations_pb2.Vitals(
        node=node,
        run=run,
        store_up=vitals.store_up,
        usage_waiting_bytes=vitals.usage_waiting_bytes,
        waiting=vitals.waiting,
        ended=vitals.ended,
        failed=vitals.failed,
        fell_back=vitals.fell_back,
        changes=vitals.changes,
        inversions=vitals.inversions,
        candidates=vitals.candidates,
    )
    for provider, account, limit_type, used in vitals.quotas:
        told.quotas.add(provider=provider, account=account, limit_type=limit_type, used=used)
    for provider, account, reason in vitals.accounts_out:
        told.accounts_out.add(provider=provider, account=account, reason=reason)
    return told.SerializeToString()
