"""The command's calls over real gRPC: plain values come back, and every refusal is one line that names the remedy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import grpc
import pytest

from n4n.core.errors import Problem
from n4n.runtime.access_calls import BudgetInfo, KeyInfo
from n4n.runtime.control_client import Applied, Change, ControlClient, ControlRefused, Version
from n4n.v1 import access_pb2, catalog_pb2, fleet_pb2, types_pb2
from tests.support.control_plane import Context, ScriptedControlPlane, Unary

VERSION = catalog_pb2.VersionInfo(version=3, author="a", committed_at_ms=5, message="m", checksum="c", endpoints=2, changes=1)
CHANGE = catalog_pb2.Change(path="endpoints.x.weight", before="1.0", after="2.0")
APPLIED = catalog_pb2.ApplyReply(version=VERSION, changes=[CHANGE], dry_run=True)
KEY = access_pb2.KeyInfo(
    public_id="abcdef012345",
    tenant="acme",
    state="active",
    created_at_ms=7,
    author="a",
    access_version=2,
    settings=access_pb2.KeySettings(
        limits=types_pb2.Limits(rpm=5), budgets=[types_pb2.Budget(usd="50", window="month")], directives=["region=eu"]
    ),
)
TENANT = access_pb2.TenantInfo(
    name="acme", settings=access_pb2.TenantSettings(provider_caps={"p": types_pb2.Budget(usd="6", window="day")}), keys=2
)
STANDING = access_pb2.BudgetStanding(
    tenant="acme", budget=types_pb2.Budget(tokens=9, window="30d", soft=True), spent="4", resets_at_ms=8, level=0, unpriced=1
)
NODE = fleet_pb2.NodeInfo(
    node="r1", role="data-plane", connected=True, applied_version=2, head_version=3, lag_ms=10, last_nack="version 3: x"
)
REPLIES: Mapping[str, bytes] = {
    "Catalog/Apply": APPLIED.SerializeToString(),
    "Catalog/Diff": catalog_pb2.DiffReply(changes=[CHANGE], head_version=3).SerializeToString(),
    "Catalog/Get": catalog_pb2.GetReply(version=VERSION, document_json="{}", endpoint_states={"x": "disabled"}).SerializeToString(),
    "Catalog/History": catalog_pb2.HistoryReply(versions=[VERSION]).SerializeToString(),
    "Catalog/Rollback": APPLIED.SerializeToString(),
    "Catalog/Validate": catalog_pb2.ValidateReply(problems=[catalog_pb2.Problem(field="f", message="m")]).SerializeToString(),
    "Catalog/SetEndpointState": APPLIED.SerializeToString(),
    "Access/CreateKey": access_pb2.CreateKeyReply(key=KEY, secret="sk-n4n-canary").SerializeToString(),
    "Access/ListKeys": access_pb2.ListKeysReply(keys=[KEY]).SerializeToString(),
    "Access/ShowKey": KEY.SerializeToString(),
    "Access/UpdateKey": KEY.SerializeToString(),
    "Access/RotateKey": access_pb2.CreateKeyReply(key=KEY, secret="sk-n4n-canary").SerializeToString(),
    "Access/RevokeKey": KEY.SerializeToString(),
    "Access/ListTenants": access_pb2.ListTenantsReply(tenants=[TENANT]).SerializeToString(),
    "Access/ShowTenant": TENANT.SerializeToString(),
    "Access/UpdateTenant": TENANT.SerializeToString(),
    "Access/ListBudgets": access_pb2.ListBudgetsReply(budgets=[STANDING]).SerializeToString(),
    "Fleet/Nodes": fleet_pb2.NodesReply(nodes=[NODE]).SerializeToString(),
    "Fleet/Status": fleet_pb2.StatusReply(build="0.1", catalog_version=3, database="ok", redis="ok", nodes=[NODE]).SerializeToString(),
}


class Clerk:
    """Answers every call as REPLIES says and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, bytes] = {}
        self.tokens: set[object] = set()

    def unary(self) -> dict[str, Unary]:
        return {path: self._answer(path, reply) for path, reply in REPLIES.items()}

    def _answer(self, path: str, reply: bytes) -> Unary:
        async def answer(request: bytes, context: Context) -> bytes:
            self.asked[path] = request
            self.tokens.add(dict(context.invocation_metadata() or ())["authorization"])
            return reply

        return answer


def refusing(code: grpc.StatusCode, details: str, detail: bytes | None = None) -> dict[str, Unary]:
    async def answer(request: bytes, context: Context) -> bytes:
        await context.abort(code, details, () if detail is None else (("n4n-error-bin", detail),))
        return b""

    return {"Fleet/Nodes": answer}


async def refusal(unary: dict[str, Unary], **times: float) -> ControlRefused:
    async with ScriptedControlPlane(unary=unary) as plane, ControlClient([plane.target], "t", **times) as client:
        with pytest.raises(ControlRefused) as refused:
            await client.nodes()
    assert "\n" not in refused.value.message
    return refused.value


async def test_every_call_asks_what_it_was_told_and_returns_plain_values() -> None:
    clerk = Clerk()
    version, change = Version(3, "a", 5, "m", "c", 2, 1), Change("endpoints.x.weight", "1.0", "2.0")
    async with ScriptedControlPlane(unary=clerk.unary()) as plane, ControlClient([plane.target], "admin-token") as client:
        applied = await client.apply("{}", author="a", message="m", dry_run=True, expect_version=0, allow_shrink=True)
        assert applied == Applied(version, (change,), unchanged=False, dry_run=True)
        assert (await client.diff("{}")).head_version == 3
        assert (await client.get(2)).endpoint_states == {"x": "disabled"}
        assert await client.history(limit=5) == (version,)
        assert await client.rollback(2, author="a") == applied
        assert await client.validate("{}") == (Problem("f", "m"),)
        assert await client.set_endpoint_state("x", "draining", author="a") == applied
        made = await client.create_key("acme", {"limits": {"rpm": 5}, "directives": ["region=eu"], "expires_at_ms": 99}, author="a")
        assert made.secret == "sk-n4n-canary" and "canary" not in repr(made)
        assert made.key == KeyInfo(
            "abcdef012345", "acme", "active", 7, None, "a", 2, {"rpm": 5}, (BudgetInfo("usd", "50", "month", False),), ("region=eu",)
        )
        assert await client.list_keys("acme", include_revoked=True) == (made.key,)
        assert await client.show_key("abcdef012345") == await client.revoke_key("abcdef012345", author="a") == made.key
        assert await client.update_key("abcdef012345", {}, ("limits",), author="a") == made.key
        assert (await client.rotate_key("abcdef012345", author="a", grace_ms=5)).key == made.key
        (tenant,) = await client.list_tenants()
        assert (tenant.name, tenant.keys, tenant.provider_caps) == ("acme", 2, {"p": BudgetInfo("usd", "6", "day", False)})
        assert await client.show_tenant("acme") == tenant == await client.update_tenant("acme", {"budgets": []}, ["budgets"], author="a")
        (standing,) = await client.budgets("acme")
        assert (standing.budget, standing.spent, standing.unpriced) == (BudgetInfo("tokens", "9", "30d", True), "4", 1)
        (node,) = await client.nodes()
        assert (node.applied_version, node.lag_ms, node.last_nack, node.last_ack_ms) == (2, 10, "version 3: x", 0)
        assert (await client.status()).nodes == (node,)

    request = catalog_pb2.ApplyRequest.FromString(clerk.asked["Catalog/Apply"])
    assert (request.HasField("expect_version"), request.expect_version, request.allow_shrink) == (True, 0, True)
    assert not catalog_pb2.RollbackRequest.FromString(clerk.asked["Catalog/Rollback"]).HasField("expect_version")
    created = access_pb2.CreateKeyRequest.FromString(clerk.asked["Access/CreateKey"])
    assert (created.settings.limits.rpm, created.settings.expires_at_ms, list(created.settings.directives)) == (5, 99, ["region=eu"])
    assert list(access_pb2.UpdateKeyRequest.FromString(clerk.asked["Access/UpdateKey"]).fields) == ["limits"]
    assert clerk.tokens == {"Bearer admin-token"}
    assert set(clerk.asked) == set(REPLIES)


async def test_a_refusal_carries_its_code_its_problems_and_the_head() -> None:
    problems = [catalog_pb2.Problem(field="endpoints.x.account", message="there is no account named y")]
    detail = catalog_pb2.ErrorDetail(code="invalid_catalog", message="the catalog\nis not valid", problems=problems, head_version=9)

    refused = await refusal(refusing(grpc.StatusCode.INVALID_ARGUMENT, "no", detail.SerializeToString()))

    assert (refused.code, refused.message, refused.head_version) == ("invalid_catalog", "the catalog is not valid", 9)
    assert refused.problems == (Problem("endpoints.x.account", "there is no account named y"),)


@pytest.mark.parametrize(
    ("status", "details", "code", "says"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "", "unauthenticated", "set N4N_ADMIN_TOKEN"),
        (grpc.StatusCode.UNAVAILABLE, "the database is away", "unavailable", "cannot answer now: the database is away"),
        (grpc.StatusCode.INTERNAL, "odd\nthing", "internal", "failed: INTERNAL odd thing"),
        (grpc.StatusCode.PERMISSION_DENIED, "the node token may only watch", "permission_denied", "the node token may only watch"),
    ],
)
async def test_a_status_becomes_one_line_with_its_remedy(status: grpc.StatusCode, details: str, code: str, says: str) -> None:
    refused = await refusal(refusing(status, details))

    assert refused.code == code and says in refused.message


async def test_a_detail_that_cannot_be_read_is_passed_over() -> None:
    refused = await refusal(refusing(grpc.StatusCode.ABORTED, "somebody was first", b"\xff\xff"))

    assert refused.code == "aborted" and "somebody was first" in refused.message


async def test_a_call_of_another_version_is_named_so() -> None:
    assert "of another version" in (await refusal({})).message


async def test_an_answer_that_does_not_come_is_a_deadline() -> None:
    async def hang(request: bytes, context: Context) -> bytes:
        await asyncio.sleep(60)
        return b""

    refused = await refusal({"Fleet/Nodes": hang}, call_s=0.2)

    assert refused.code == "deadline" and "did not answer within 0.2 s" in refused.message


async def test_a_control_plane_that_is_away_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        target = f"127.0.0.1:{unused.getsockname()[1]}"
    async with ControlClient([target], "t") as client:
        with pytest.raises(ControlRefused) as refused:
            await client.status()

    assert refused.value.code == "unreachable"
    assert refused.value.message == f"no control plane answers at {target}; start one with n4n up, or set N4N_ADMIN_URL"


async def test_a_port_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with ControlClient([f"127.0.0.1:{mute.getsockname()[1]}"], "t", connect_s=0.2) as client:
            with pytest.raises(ControlRefused, match="no control plane answers"):
                await client.status()


async def test_without_a_target_nothing_is_tried() -> None:
    async with ControlClient([], "t") as client:
        with pytest.raises(ControlRefused, match="N4N_ADMIN_URL"):
            await client.status()


async def test_the_first_control_plane_that_accepts_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        away = f"127.0.0.1:{unused.getsockname()[1]}"
    async with ScriptedControlPlane(unary=Clerk().unary()) as plane, ControlClient([away, plane.target], "canary") as client:
        assert (await client.status()).catalog_version == 3
        assert "canary" not in repr(client)


def test_rules_go_by_the_names_of_the_wire() -> None:
    assert [described.name for described in access_pb2.KeySettings.DESCRIPTOR.fields] == [
        "limits",
        "directives",
        "require_directives",
        "models",
        "expires_at_ms",
        "budgets",
        "priority",
        "require_pricing",
        "tags",
    ]
