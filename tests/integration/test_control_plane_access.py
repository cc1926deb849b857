"""Keys and tokens on a real PostgreSQL over real gRPC."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from n4n.core.access import AccessSnapshot
from n4n.core.errors import Unauthenticated
from n4n.runtime.wire import compile_access
from n4n.v1 import access_pb2, audit_pb2, catalog_pb2, discovery_pb2, fleet_pb2, types_pb2
from tests.control_plane.client import ACCESS, NODE, Calls, Watcher, a_plane, a_watcher, calls, detail
from tests.support.catalogs import SMALL
from tests.support.stores import libpq_url


async def create(plane: Calls, tenant: str = "acme", **settings: Any) -> access_pb2.CreateKeyReply:
    request = access_pb2.CreateKeyRequest(tenant=tenant, settings=access_pb2.KeySettings(**settings), author="ann")
    reply: access_pb2.CreateKeyReply = await plane.access.CreateKey(request, metadata=plane.token)
    return reply


async def listed(plane: Calls, **asked: Any) -> list[access_pb2.KeyInfo]:
    return list((await plane.access.ListKeys(access_pb2.ListKeysRequest(**asked), metadata=plane.token)).keys)


async def update(plane: Calls, public_id: str, *fields: str, **settings: Any) -> access_pb2.KeyInfo:
    request = access_pb2.UpdateKeyRequest(public_id=public_id, settings=access_pb2.KeySettings(**settings), fields=fields)
    reply: access_pb2.KeyInfo = await plane.access.UpdateKey(request, metadata=plane.token)
    return reply


async def held_keys(watcher: Watcher) -> AccessSnapshot:
    """What a router would authenticate with, after the next access version."""
    parts = await watcher.next_update(ACCESS)
    return compile_access(await watcher.ack(parts), version=parts[-1].version, checksum=parts[-1].checksum)


async def test_a_key_is_shown_once_and_opens_what_its_settings_say(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        limits = access_pb2.KeySettings().limits
        limits.rpm, limits.burst = 60, 5
        made = await create(
            plane, limits=limits, budgets=[types_pb2.Budget(usd="50.10", window="month")], directives=["region=eu"],
            require_directives=["region"], models=["small"], expires_at_ms=round(time.time() * 1000) + 3_600_000,
        )  # fmt: skip
        assert made.secret.startswith(f"sk-n4n-{made.key.public_id}-") and len(made.key.public_id) == 12
        keys = await held_keys(watcher)
        key = keys.authenticate(made.secret, time.time())
        assert (key.tenant, dict(key.limits), key.directives, key.require_directives, key.models) == (
            "acme", {"rpm": 60, "burst": 5}, ("region=eu",), ("region",), frozenset(["small"]),
        )  # fmt: skip
        with pytest.raises(Unauthenticated):
            keys.authenticate(made.secret, time.time() + 3601)
        shown = await plane.access.ShowKey(access_pb2.ShowKeyRequest(public_id=made.key.public_id), metadata=plane.token)
        assert shown == made.key and (await listed(plane)) == [made.key]
        (budget,) = shown.settings.budgets
        assert (shown.state, shown.author, budget.usd, budget.window, budget.soft) == ("active", "ann", "50.1", "month", False)
        assert [(one.name, one.amount) for one in key.budgets] == [("usd/month", 50_100_000_000_000)]
        assert abs(key.budgets[0].since_ms - time.time() * 1000) < 60_000
        assert made.secret.removeprefix(f"sk-n4n-{made.key.public_id}-") not in str(shown)


async def test_a_key_may_demand_prices_and_bear_tags(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        made = await create(plane, require_pricing=True, tags={"team": "search", "env": "prod"})
        key = (await held_keys(watcher)).authenticate(made.secret, time.time())
        assert (key.require_pricing, key.tags) == (True, (("env", "prod"), ("team", "search")))
        changed = await update(plane, made.key.public_id, "require_pricing", "tags", tags={"team": "ads"})
        assert not changed.settings.require_pricing and dict(changed.settings.tags) == {"team": "ads"}
        key = (await held_keys(watcher)).authenticate(made.secret, time.time())
        assert (key.require_pricing, key.tags) == (False, (("team", "ads"),))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(plane, tags={"te am": "search"})
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "a tag's name" in str(refused.value.details())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(plane, tags={f"t{n}": "1" for n in range(9)})
        assert "8 tags" in str(refused.value.details())


async def test_no_secret_is_anywhere_in_the_database(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        made = await create(plane)
        rotation = access_pb2.RotateKeyRequest(public_id=made.key.public_id, grace_ms=60_000)
        rotated = await plane.access.RotateKey(rotation, metadata=plane.token)
    secrets = [reply.secret.removeprefix(f"sk-n4n-{made.key.public_id}-") for reply in (made, rotated)]
    with psycopg.connect(libpq_url(postgres_url)) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        dump = "".join(str(row) for name in tables for row in connection.execute(f'SELECT t::text FROM "{name}" t'.encode()))
    assert made.key.public_id in dump
    assert all(len(secret) == 43 and secret not in dump for secret in secrets)


async def test_a_rotation_keeps_the_old_secret_for_the_grace_and_the_key_its_settings(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        made = await create(plane, models=["small"])
        await held_keys(watcher)
        rotate = plane.access.RotateKey
        rotated = await rotate(access_pb2.RotateKeyRequest(public_id=made.key.public_id, grace_ms=60_000), metadata=plane.token)
        keys = await held_keys(watcher)
        now = time.time()
        assert keys.authenticate(made.secret, now) == keys.authenticate(rotated.secret, now)
        with pytest.raises(Unauthenticated):
            keys.authenticate(made.secret, now + 61)
        assert list(rotated.key.settings.models) == ["small"] and rotated.key.access_version == 2

        again = await rotate(access_pb2.RotateKeyRequest(public_id=made.key.public_id), metadata=plane.token)
        keys = await held_keys(watcher)
        assert keys.authenticate(again.secret, now)
        for old in (made.secret, rotated.secret):
            with pytest.raises(Unauthenticated):
                keys.authenticate(old, now)


async def test_an_update_sets_the_named_fields_and_clears_those_not_given(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        made = await create(plane, models=["small"], directives=["region=eu"], budgets=[types_pb2.Budget(usd="5", window="day")])
        changed = await update(plane, made.key.public_id, "models", "directives", models=["large"])
        assert (list(changed.settings.models), list(changed.settings.directives)) == (["large"], [])
        assert changed.settings.budgets == made.key.settings.budgets
        cleared = await update(plane, made.key.public_id, "budgets")
        assert not cleared.settings.budgets


async def test_editing_a_budget_does_not_arm_its_window_again_and_a_new_one_begins_now(postgres_url: str) -> None:
    """Case 21."""
    async with a_plane(postgres_url) as plane:
        made = await create(plane, budgets=[types_pb2.Budget(usd="5", window="day")])
        first = made.key.settings.budgets[0].since_ms
        forged = types_pb2.Budget(usd="9", window="day", since_ms=1)
        edited = await update(plane, made.key.public_id, "budgets", budgets=[forged, types_pb2.Budget(tokens=10, window="24h")])
        assert [(one.usd, one.since_ms == first) for one in edited.settings.budgets] == [("9", True), ("", False)]
        replaced = await update(plane, made.key.public_id, "budgets", budgets=[types_pb2.Budget(usd="9", window="month")])
        assert replaced.settings.budgets[0].since_ms == first
        await update(plane, made.key.public_id, "budgets")
        again = await update(plane, made.key.public_id, "budgets", budgets=[types_pb2.Budget(usd="9", window="month")])
        assert again.settings.budgets[0].since_ms > first


async def test_a_tenant_s_rules_reach_routers_with_all_its_keys(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        made = await create(plane, tenant="acme")
        other = await create(plane, tenant="beta")
        await held_keys(watcher)
        rules = access_pb2.TenantSettings(
            budgets=[types_pb2.Budget(tokens=1000, window="week", soft=True)],
            provider_caps={"openai": types_pb2.Budget(usd="60", window="month")},
        )
        request = access_pb2.UpdateTenantRequest(name="acme", settings=rules, fields=["budgets", "provider_caps"], author="ann")
        info = await plane.access.UpdateTenant(request, metadata=plane.token)
        assert (info.name, info.settings.budgets[0].tokens, info.access_version) == ("acme", 1000, 3)
        again = await plane.access.UpdateTenant(request, metadata=plane.token)
        assert again.access_version == 3, "nothing changed"
        keys = (await held_keys(watcher)).keys
        while not keys[made.key.public_id].tenant_budgets:
            keys = (await held_keys(watcher)).keys
        key = keys[made.key.public_id]
        assert [(one.name, one.amount, one.soft) for one in key.tenant_budgets] == [("tokens/week", 1000, True)]
        assert key.provider_caps["openai"].name == "usd/month" and not keys[other.key.public_id].tenant_budgets
        listed = await plane.access.ListTenants(access_pb2.ListTenantsRequest(), metadata=plane.token)
        assert [(one.name, one.keys) for one in listed.tenants] == [("acme", 1), ("beta", 1)]
        request = access_pb2.UpdateTenantRequest(name="acme", fields=["budgets", "provider_caps"])
        await plane.access.UpdateTenant(request, metadata=plane.token)
        assert not (await held_keys(watcher)).keys[made.key.public_id].tenant_budgets


async def test_limits_and_the_usual_priority_of_a_tenant_reach_routers_with_its_keys(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        own = await create(plane, tenant="acme", limits=types_pb2.Limits(rpm=5, rpd=100), priority="interactive")
        plain = await create(plane, tenant="acme")
        rules = access_pb2.TenantSettings(limits=types_pb2.Limits(rpm=600, tpd=10**9, streams=4), priority="background")
        request = access_pb2.UpdateTenantRequest(name="acme", settings=rules, fields=["limits", "priority"])
        info = await plane.access.UpdateTenant(request, metadata=plane.token)
        assert (info.settings.limits.tpd, info.settings.priority) == (10**9, "background")
        keys = (await held_keys(watcher)).keys
        while not keys or not keys[own.key.public_id].tenant_limits:
            keys = (await held_keys(watcher)).keys
        first, second = keys[own.key.public_id], keys[plain.key.public_id]
        assert first.limits == {"rpm": 5, "rpd": 100} and (first.priority, second.priority) == ("interactive", "background")
        assert first.tenant_limits == second.tenant_limits == {"rpm": 600, "tpd": 10**9, "streams": 4}
        for bad in (access_pb2.TenantSettings(priority="urgent"), access_pb2.TenantSettings(limits=types_pb2.Limits(rpm=0))):
            wrong = access_pb2.UpdateTenantRequest(name="acme", settings=bad, fields=["limits", "priority"])
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await plane.access.UpdateTenant(wrong, metadata=plane.token)
            assert detail(refused.value).code == "invalid_request"


async def test_that_a_tenant_wants_content_in_its_traces_reaches_its_keys_alone_and_is_audited(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        own, other = await create(plane, tenant="acme"), await create(plane, tenant="beta")

        async def capture(wanted: bool) -> tuple[bool, bool]:
            rules = access_pb2.TenantSettings(capture_content=wanted)
            request = access_pb2.UpdateTenantRequest(name="acme", settings=rules, fields=["capture_content"], author="ann")
            info = await plane.access.UpdateTenant(request, metadata=plane.token)
            assert info.settings.capture_content is wanted
            while True:
                keys = (await held_keys(watcher)).keys
                if keys and keys[own.key.public_id].capture_content is wanted:
                    return keys[own.key.public_id].capture_content, keys[other.key.public_id].capture_content

        assert await capture(True) == (True, False)
        assert await capture(False) == (False, False)
        call = plane.channel.unary_unary("/n4n.v1.Audit/Query", response_deserializer=audit_pb2.AuditReply.FromString)
        reply = await call(audit_pb2.AuditQuery(name="acme").SerializeToString(), metadata=plane.token)
        assert [entry.author for entry in reply.entries if "capture_content" in entry.after_json + entry.before_json] == ["ann", "ann"]


async def test_a_revoked_key_is_gone_for_good_and_revoking_again_changes_nothing(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        made = await create(plane)
        for _ in range(2):
            info = await plane.access.RevokeKey(access_pb2.RevokeKeyRequest(public_id=made.secret), metadata=plane.token)
            assert (info.state, info.access_version) == ("revoked", 2) and info.revoked_at_ms > 0
        assert await listed(plane) == [] and [key.state for key in await listed(plane, include_revoked=True)] == ["revoked"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await update(plane, made.key.public_id, "models")
        assert detail(refused.value).code == "revoked"


async def test_keys_are_listed_by_tenant(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        made = [await create(plane, tenant=tenant) for tenant in ("b", "a", "b")]
        assert [key.public_id for key in await listed(plane, tenant="b")] == [made[0].key.public_id, made[2].key.public_id]
        assert [key.tenant for key in await listed(plane)] == ["a", "b", "b"]


async def test_an_expired_key_leaves_at_the_next_change_and_every_control_plane_agrees(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(a_plane(postgres_url)) for _ in range(2)]
        here, there = [await stack.enter_async_context(a_watcher(plane.port)) for plane in (one, other)]
        short = await create(one, expires_at_ms=round(time.time() * 1000) + 400)
        assert set((await held_keys(here)).keys) == set((await held_keys(there)).keys) == {short.key.public_id}
        while (await listed(one))[0].state != "expired":
            pass
        stays = await create(one)
        first, second = await held_keys(here), await held_keys(there)
        assert set(first.keys) == {stays.key.public_id} and first.checksum == second.checksum


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"budgets": [{"usd": "-1", "window": "day"}]}, "budgets[0].usd"),
        ({"budgets": [{"usd": "NaN", "window": "day"}]}, "budgets[0].usd"),
        ({"budgets": [{"usd": "0", "window": "day"}]}, "budgets[0].usd"),
        ({"budgets": [{"window": "day"}]}, "budgets[0]"),
        ({"budgets": [{"usd": "1", "tokens": 5, "window": "day"}]}, "budgets[0]"),
        ({"budgets": [{"usd": "1", "window": "year"}]}, "budgets[0].window"),
        ({"budgets": [{"tokens": 5, "window": "30m"}]}, "budgets[0].window"),
        ({"budgets": [{"usd": "1", "window": "day"}, {"usd": "2", "window": "day"}]}, "budgets"),
        ({"directives": ["regoin=eu"]}, "directives[0]"),
        ({"require_directives": ["regoin"]}, "require_directives[0]"),
        ({"expires_at_ms": 1}, "expires_at_ms"),
        ({"models": ["a", "a"]}, "models[1]"),
    ],
)
async def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], field: str, module_postgres_url: str) -> None:
    async with a_plane(module_postgres_url) as plane:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(plane, **settings)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert [problem.field for problem in detail(refused.value).problems] == [field]
        assert await listed(plane, include_revoked=True) == []


async def test_what_is_no_key_is_refused_without_repeating_it(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        for told, code in (("sk-n4n-something-secret", grpc.StatusCode.INVALID_ARGUMENT), ("abcdefghijkl", grpc.StatusCode.NOT_FOUND)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await plane.access.ShowKey(access_pb2.ShowKeyRequest(public_id=told), metadata=plane.token)
            assert refused.value.code() is code and "secret" not in (refused.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(plane, tenant="no such name")
        assert "tenant:" in (refused.value.details() or "")


async def test_without_a_valid_token_nothing_answers(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        for token in (None, "", "wrong", "the-admin-tokem"):
            async with calls(plane.port, token) as stranger:
                for refused_call in (
                    stranger.catalog.History(catalog_pb2.HistoryRequest(), metadata=stranger.token),
                    stranger.fleet.Status(fleet_pb2.StatusRequest(), metadata=stranger.token),
                    stranger.discovery.Watch(metadata=stranger.token).read(),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await refused_call
                    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
                    assert detail(refused.value).code == "unauthenticated"


async def test_the_node_token_may_watch_and_nothing_else(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, calls(plane.port, NODE) as node:
        await plane.apply(SMALL)
        async with a_watcher(plane.port, token=NODE) as watcher:
            await watcher.ack(await watcher.next_update())
        for refused_call in (
            node.catalog.Get(catalog_pb2.GetRequest(), metadata=node.token),
            node.access.ListKeys(access_pb2.ListKeysRequest(), metadata=node.token),
            node.fleet.Nodes(fleet_pb2.NodesRequest(), metadata=node.token),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await refused_call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_the_admin_token_may_watch_too_and_usage_is_not_served_yet(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, calls(plane.port) as admin:
        call = admin.discovery.Watch(metadata=admin.token)
        await call.write(discovery_pb2.WatchRequest(hello=discovery_pb2.Hello(node="x", role="data-plane")))
        assert isinstance(await call.read(), discovery_pb2.WatchResponse)
        call.cancel()


def test_grpc_takes_no_part_in_forks() -> None:
    told = "import control_plane, os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", told], env=environ, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
