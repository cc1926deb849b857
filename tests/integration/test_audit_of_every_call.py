"""Every call that there is, by the descriptors: a change leaves exactly one entry, everything else leaves none."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import psycopg
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from psycopg import errors

from n4n.core.ledger import read_rows
from n4n.runtime.control_client import AuditEntry, ControlClient
from n4n.v1 import access_pb2, audit_pb2, catalog_pb2, discovery_pb2, fleet_pb2, operations_pb2, types_pb2, usage_pb2
from tests.control_plane.client import ADMIN, Calls, a_plane
from tests.core.test_ledger import settled
from tests.support.catalogs import SMALL
from tests.support.stores import libpq_url

FILES = (access_pb2, audit_pb2, catalog_pb2, discovery_pb2, fleet_pb2, operations_pb2, usage_pb2)
AUTHOR = "zoe"
NOBODYS_BUSINESS = {  # calls of nodes, and why what they change is in no audit trail
    "Discovery/Watch": "says what a node holds: n4n nodes",
    "Usage/Report": "rows of the ledger, which are never altered themselves",
    "Operations/Report": "how a node is; forgotten after days",
}
READS = {
    "Access/ListKeys", "Access/ShowKey", "Access/ListTenants", "Access/ShowTenant", "Access/ListBudgets", "Audit/Query", "Catalog/Diff",
    "Catalog/Get", "Catalog/History", "Catalog/Validate", "Fleet/Nodes", "Fleet/Status", "Fleet/Health", "Operations/Sla",
    "Operations/Alerts", "Operations/Attempts", "Usage/Query", "Usage/Export", "Usage/Ratings",
}  # fmt: skip


def services() -> Iterator[ServiceDescriptor]:
    for file in FILES:
        yield from file.DESCRIPTOR.services_by_name.values()


METHODS: dict[str, MethodDescriptor] = {
    f"{service.name}/{name}": one for service in services() for name, one in service.methods_by_name.items()
}


@dataclass
class Place:
    """A control plane with a catalog of two versions, a key and a tenant."""

    plane: Calls
    channel: grpc.aio.Channel
    key: str = ""

    async def call(self, name: str, request: Message) -> object:
        """The reply of a call of any service."""
        method = METHODS[name]
        reply: Any = message_factory.GetMessageClass(method.output_type)
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        made: Any = kind(f"/n4n.v1.{name}", type(request).SerializeToString, reply.FromString)
        if not method.server_streaming:
            return await made(request, metadata=self.plane.token, timeout=20)
        return [reply async for reply in made(request, metadata=self.plane.token, timeout=20)][-1:] or None

    async def fresh_key(self) -> None:
        made: Any = await self.call("Access/CreateKey", access_pb2.CreateKeyRequest(tenant="acme"))
        self.key = made.key.public_id

    async def trail(self, **wanted: Any) -> list[AuditEntry]:
        async with ControlClient([f"127.0.0.1:{self.plane.port}"], ADMIN) as client:
            return list(await client.audit(0, **wanted))


@dataclass(frozen=True)
class Case:
    """A change, the entry it leaves, one that is refused, and one that changes nothing (None: there is none such)."""

    made: Callable[[Place], Message]
    action: str
    kind: str
    name: Callable[[Place, Any], str]
    refused: Callable[[Place], Message]
    nothing: Callable[[Place], Message] | None = None
    after: str = ""  # what the entry's after must name


def changed() -> str:
    models = {**SMALL["models"], "small": {**SMALL["models"]["small"], "aliases": ["tiny"]}}
    return json.dumps({**SMALL, "models": models})


ENDPOINT = next(iter(SMALL["endpoints"]))
RULES = access_pb2.KeySettings(models=["large"])
BUDGET = access_pb2.TenantSettings(budgets=[types_pb2.Budget(usd="5", window="day")])
PRICES = '{"acme-small": {"price": {"input_per_1m": 1}}}'
CASES = {
    "Catalog/Apply": Case(
        lambda place: catalog_pb2.ApplyRequest(document_json=changed(), author=AUTHOR),
        "apply", "catalog", lambda place, reply: f"version {reply.version.version}",
        lambda place: catalog_pb2.ApplyRequest(document_json='{"models": 7}', author=AUTHOR),
        lambda place: catalog_pb2.ApplyRequest(document_json=changed(), author=AUTHOR, dry_run=True),
        "models.small.aliases",
    ),
    "Catalog/Rollback": Case(
        lambda place: catalog_pb2.RollbackRequest(version=1, author=AUTHOR, allow_shrink=True),
        "rollback", "catalog", lambda place, reply: f"version {reply.version.version}",
        lambda place: catalog_pb2.RollbackRequest(version=99, author=AUTHOR),
        lambda place: catalog_pb2.RollbackRequest(version=3, author=AUTHOR),
    ),
    "Catalog/SetEndpointState": Case(
        lambda place: catalog_pb2.SetEndpointStateRequest(endpoint=ENDPOINT, state="draining", author=AUTHOR),
        "set draining", "endpoint", lambda place, reply: ENDPOINT,
        lambda place: catalog_pb2.SetEndpointStateRequest(endpoint="none", state="draining", author=AUTHOR),
        lambda place: catalog_pb2.SetEndpointStateRequest(endpoint=ENDPOINT, state="active", author=AUTHOR),
        f"endpoints.{ENDPOINT}.state",
    ),
    "Access/CreateKey": Case(
        lambda place: access_pb2.CreateKeyRequest(tenant="acme", author=AUTHOR, settings=RULES),
        "create", "key", lambda place, reply: reply.key.public_id,
        lambda place: access_pb2.CreateKeyRequest(tenant="no name", author=AUTHOR),
        after="models",
    ),
    "Access/UpdateKey": Case(
        lambda place: access_pb2.UpdateKeyRequest(public_id=place.key, settings=RULES, fields=["models"], author=AUTHOR),
        "update", "key", lambda place, reply: place.key,
        lambda place: access_pb2.UpdateKeyRequest(public_id="0" * 12, settings=RULES, fields=["models"], author=AUTHOR),
        lambda place: access_pb2.UpdateKeyRequest(public_id=place.key, fields=["models"], author=AUTHOR),
        "models",
    ),
    "Access/RotateKey": Case(
        lambda place: access_pb2.RotateKeyRequest(public_id=place.key, grace_ms=60_000, author=AUTHOR),
        "rotate", "key", lambda place, reply: place.key,
        lambda place: access_pb2.RotateKeyRequest(public_id=place.key, grace_ms=1 << 60, author=AUTHOR),
        after="former_secret_until",
    ),
    "Access/RevokeKey": Case(
        lambda place: access_pb2.RevokeKeyRequest(public_id=place.key, author=AUTHOR),
        "revoke", "key", lambda place, reply: place.key,
        lambda place: access_pb2.RevokeKeyRequest(public_id="nonsense", author=AUTHOR),
        after="state",
    ),
    "Access/UpdateTenant": Case(
        lambda place: access_pb2.UpdateTenantRequest(name="acme", settings=BUDGET, fields=["budgets"], author=AUTHOR),
        "update", "tenant", lambda place, reply: "acme",
        lambda place: access_pb2.UpdateTenantRequest(name="acme", fields=["no_such_rule"], author=AUTHOR),
        lambda place: access_pb2.UpdateTenantRequest(name="acme", fields=["budgets"], author=AUTHOR),
        "budgets",
    ),
    "Usage/Rerate": Case(
        lambda place: usage_pb2.UsageRerate(label="march", since_ms=0, prices_json=PRICES, author=AUTHOR),
        "rate", "rating", lambda place, reply: "march",
        lambda place: usage_pb2.UsageRerate(label="march 2", since_ms=0, prices_json=PRICES, author=AUTHOR),
        after="cost_usd",
    ),
}  # fmt: skip


@pytest.fixture
def around(postgres_url: str) -> Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]]:
    """Runs something at a place that has been furnished."""

    async def run(told: Callable[[Place], Awaitable[None]]) -> None:
        async with a_plane(postgres_url) as plane, grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
            place = Place(plane, channel)
            await plane.apply({**SMALL, "models": {"small": {"context_window": 9000}}})
            await plane.apply(SMALL)
            await place.fresh_key()
            await told(place)

    return run


def test_every_call_is_a_change_or_known_not_to_be_one() -> None:
    assert set(CASES) | READS | set(NOBODYS_BUSINESS) == set(METHODS)
    assert len(CASES) + len(READS) + len(NOBODYS_BUSINESS) == len(METHODS)


async def test_a_change_leaves_one_entry_and_what_changes_nothing_none(
    around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]],
) -> None:
    async def told(place: Place) -> None:
        for name, case in CASES.items():
            await place.fresh_key()
            await checked(name, case, place)

    await around(told)


async def checked(name: str, case: Case, place: Place) -> None:
    before = len(await place.trail())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await place.call(name, case.refused(place))
    assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), name
    if case.nothing is not None:
        await place.call(name, case.nothing(place))
    assert len(await place.trail()) == before, name
    reply = await place.call(name, case.made(place))
    entry, *older = await place.trail()
    assert len(older) == before, name
    assert (entry.author, entry.action, entry.kind, entry.name) == (AUTHOR, case.action, case.kind, case.name(place, reply))
    assert "127.0.0.1:" in entry.source and abs(entry.at_ms / 1000 - time.time()) < 60, name
    assert case.after in entry.after_json, name
    secret = getattr(reply, "secret", "")
    assert not secret or secret.rpartition("-")[2] not in entry.before_json + entry.after_json, name
    assert entry.id in [one.id for one in await place.trail(kind=case.kind, name=entry.name, author=AUTHOR)], name


async def test_no_question_leaves_an_entry(around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]]) -> None:
    async def told(place: Place) -> None:
        before = len(await place.trail())
        for name in sorted(READS):
            request: Any = message_factory.GetMessageClass(METHODS[name].input_type)()
            for field, value in (("public_id", place.key), ("name", "acme"), ("request_id", "req_1"), ("by", "day")):
                if field in request.DESCRIPTOR.fields_by_name and name != "Audit/Query":
                    if request.DESCRIPTOR.fields_by_name[field].is_repeated:
                        getattr(request, field).append(value)
                    else:
                        setattr(request, field, value)
            if name == "Fleet/Health":
                request.window_ms = 86_400_000
            if "document_json" in request.DESCRIPTOR.fields_by_name:
                request.document_json = json.dumps(SMALL)
            await place.call(name, request)
        await place.call("Usage/Report", usage_pb2.UsageReport(offset=1, lines=settled(1)))
        assert len(read_rows(settled(1))[0]) == 1
        assert len(await place.trail()) == before

    await around(told)


async def test_a_text_with_a_nul_is_never_a_fault_of_ours(around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]]) -> None:
    """Postgres holds none: in whichever member of whichever call, it is refused in words, or is as good as any other."""

    async def told(place: Place) -> None:
        asked, ours = 0, []
        for name, method in METHODS.items():
            texts = [one for one in method.input_type.fields if one.type == one.TYPE_STRING]
            for field in texts if not method.client_streaming else ():
                request: Any = message_factory.GetMessageClass(method.input_type)()
                for other, value in (("public_id", place.key), ("name", "acme"), ("request_id", "req_1"), ("document_json", "{}")):
                    if other in request.DESCRIPTOR.fields_by_name and not request.DESCRIPTOR.fields_by_name[other].is_repeated:
                        setattr(request, other, value)
                if field.is_repeated:
                    getattr(request, field.name).append("a\0b")
                else:
                    setattr(request, field.name, "a\0b")
                asked += 1
                try:
                    await place.call(name, request)
                except grpc.aio.AioRpcError as error:
                    if error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
                        ours.append(f"{name}: {field.name}")
        assert ours == []
        assert asked > 40

    await around(told)


async def test_budgets_of_keys_and_tenants_are_found_by_that_name(
    around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]],
) -> None:
    async def told(place: Place) -> None:
        settings = access_pb2.KeySettings(budgets=BUDGET.budgets)
        await place.call(
            "Access/UpdateKey", access_pb2.UpdateKeyRequest(public_id=place.key, settings=settings, fields=["budgets"], author="ann")
        )
        await place.call(
            "Access/UpdateKey", access_pb2.UpdateKeyRequest(public_id=place.key, settings=RULES, fields=["models"], author="ben")
        )
        await place.call(
            "Access/UpdateTenant", access_pb2.UpdateTenantRequest(name="acme", settings=BUDGET, fields=["budgets"], author="cem")
        )
        await place.call("Access/UpdateTenant", access_pb2.UpdateTenantRequest(name="acme", fields=["budgets"], author="dee"))
        assert [(one.author, one.kind) for one in await place.trail(kind="budget")] == [
            ("dee", "tenant"),
            ("cem", "tenant"),
            ("ann", "key"),
        ]

    await around(told)


async def test_the_trail_is_read_page_by_page_without_a_gap(
    around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]],
) -> None:
    async def told(place: Place) -> None:
        for number in range(7):
            await place.call("Access/CreateKey", access_pb2.CreateKeyRequest(tenant=f"t{number}", author=AUTHOR))
        whole = [one.id for one in await place.trail()]
        pages, before = list[int](), 0
        while page := await place.trail(limit=3, before_id=before):
            pages += [one.id for one in page]
            before = pages[-1]
        assert pages == whole == sorted(whole, reverse=True)
        assert len(whole) == 10

    await around(told)


async def test_what_stands_in_headers_of_a_provider_is_in_no_entry(
    around: Callable[[Callable[[Place], Awaitable[None]]], Awaitable[None]],
) -> None:
    def with_headers(value: str) -> dict[str, Any]:
        providers = {name: {**one, "headers": {"x-vendor-auth": value}} for name, one in SMALL["providers"].items()}
        return {
            **SMALL,
            "providers": {**providers, "fresh": {"dialect": "openai", "base_url": "https://x.example/v1", "headers": {"x-k": value}}},
        }

    async def told(place: Place) -> None:
        for value in ("hush-1", "hush-2"):
            await place.plane.apply(with_headers(value))
        await place.plane.apply(SMALL)
        entries = await place.trail(kind="catalog")
        assert "hush" not in "".join(one.before_json + one.after_json for one in entries)
        assert "x-vendor-auth" in entries[1].after_json and "x-k" in entries[2].after_json

    await around(told)


@pytest.mark.parametrize("statement", ["UPDATE audit SET author = 'nobody'", "DELETE FROM audit WHERE id = 1", "TRUNCATE audit"])
async def test_not_even_a_replica_may_alter_an_entry(statement: str, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        with psycopg.connect(libpq_url(postgres_url)) as connection:
            connection.execute(b"SET session_replication_role = replica")
            with pytest.raises(errors.RaiseException, match="append only"):
                connection.execute(statement.encode())
