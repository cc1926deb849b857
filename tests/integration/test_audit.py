"""Every change leaves an entry that cannot be altered: who, from where, what it was and what it is, and never a secret."""

from __future__ import annotations

import json
import time

import psycopg
import pytest
from psycopg import errors

from n4n.runtime.control_client import AuditEntry, ControlClient, ControlRefused
from n4n.v1 import access_pb2, catalog_pb2
from tests.control_plane.client import ADMIN, NODE, Calls, a_plane
from tests.support.catalogs import SMALL
from tests.support.stores import libpq_url


async def trail(plane: Calls, **wanted: str) -> list[AuditEntry]:
    async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client:
        return list(await client.audit(0, **wanted))  # type: ignore[arg-type]


async def test_every_kind_of_change_leaves_one_entry(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL, author="ann")
        [endpoint, *_] = SMALL["endpoints"]
        for state in ("draining", "active"):
            request = catalog_pb2.SetEndpointStateRequest(endpoint=endpoint, state=state, author="ben")
            await plane.catalog.SetEndpointState(request, metadata=plane.token)
        made = await plane.access.CreateKey(
            access_pb2.CreateKeyRequest(tenant="acme", author="cem", settings=access_pb2.KeySettings(models=["small"])),
            metadata=plane.token,
        )
        public_id = made.key.public_id
        settings = access_pb2.KeySettings(models=["large"])
        await plane.access.UpdateKey(
            access_pb2.UpdateKeyRequest(public_id=public_id, settings=settings, fields=["models"], author="dee"), metadata=plane.token
        )
        await plane.access.RotateKey(access_pb2.RotateKeyRequest(public_id=public_id, grace_ms=60_000, author="eva"), metadata=plane.token)
        await plane.access.RevokeKey(access_pb2.RevokeKeyRequest(public_id=public_id, author="fox"), metadata=plane.token)
        await plane.access.RevokeKey(
            access_pb2.RevokeKeyRequest(public_id=public_id, author="fox"), metadata=plane.token
        )  # changes nothing
        entries = await trail(plane)
        ours = await trail(plane, kind="key", name=public_id)
        bens = await trail(plane, author="ben")
    assert [(one.author, one.action, one.kind, one.name) for one in reversed(entries)] == [
        ("ann", "apply", "catalog", "version 1"),
        ("ben", "set draining", "endpoint", endpoint),
        ("ben", "set active", "endpoint", endpoint),
        ("cem", "create", "key", public_id),
        ("dee", "update", "key", public_id),
        ("eva", "rotate", "key", public_id),
        ("fox", "revoke", "key", public_id),
    ]
    assert all("127.0.0.1:" in one.source for one in entries)
    assert all(abs(one.at_ms / 1000 - time.time()) < 60 for one in entries)
    revoke, rotate, update, create = ours
    assert (create.before_json, json.loads(create.after_json)["models"]) == ("", ["small"])
    assert (json.loads(update.before_json), json.loads(update.after_json)) == ({"models": ["small"]}, {"models": ["large"]})
    assert list(json.loads(rotate.after_json)) == ["former_secret_until"]
    assert (json.loads(revoke.before_json)["state"], json.loads(revoke.after_json)["state"]) == ("active", "revoked")
    assert len(bens) == 2
    assert made.secret.rpartition("-")[2] not in "".join(one.before_json + one.after_json for one in entries)


async def test_a_change_that_is_refused_or_none_leaves_no_entry(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        await plane.apply(SMALL)
        await plane.apply(SMALL, dry=True)
        with pytest.raises(Exception, match="expect_version"):
            await plane.apply({**SMALL, "tiers": {}}, expect=7)
        assert len(await trail(plane)) == 1


@pytest.mark.parametrize("statement", ["UPDATE audit SET author = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_an_entry_cannot_be_altered(postgres_url: str, statement: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        with psycopg.connect(libpq_url(postgres_url)) as connection, pytest.raises(errors.RaiseException, match="append only"):
            connection.execute(statement.encode())
        assert len(await trail(plane)) == 1


async def test_a_router_may_not_read_the_trail(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        async with ControlClient([f"127.0.0.1:{plane.port}"], NODE) as client:
            with pytest.raises(ControlRefused):
                await client.audit(0)
