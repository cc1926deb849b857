"""Twenty kinds of bad pushes: an operator is refused, a router NACKs, both by the path of the field, and the last good stays in use."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from n4n.core.catalog import collection_checksum
from n4n.runtime import wire
from n4n.runtime.wire import Resources
from n4n.v1 import discovery_pb2, types_pb2
from tests.control_plane.client import Calls, a_plane, detail
from tests.integration.test_discovery_client import router, serving
from tests.support.catalogs import FULL, Raw, changed
from tests.support.control_plane import ScriptedControlPlane, resources_of, update

GOOD = resources_of(FULL)
PROVIDER, ACCOUNT, MODEL = types_pb2.KIND_PROVIDER, types_pb2.KIND_ACCOUNT, types_pb2.KIND_MODEL
ENDPOINT, TIER = types_pb2.KIND_ENDPOINT, types_pb2.KIND_TIER


def entry(kind: int, name: str, message: Message) -> Resources:
    """The good catalog with one entry added or put in another's place."""
    return {**GOOD, (kind, name): message.SerializeToString()}


def endpoint(**fields: object) -> types_pb2.Endpoint:
    return types_pb2.Endpoint(**{"model": "small", "account": "house", **fields})  # type: ignore[arg-type]


def without(kind: int, name: str) -> Resources:
    return {known: body for known, body in GOOD.items() if known != (kind, name)}


# What is wrong with the content: by its path, the document an operator might apply and the resources a faulty control plane might push.
CONTENT: Mapping[str, tuple[str, Raw, Resources]] = {
    "a model that is not there": (
        "endpoints.house-small.model",
        changed(FULL, "endpoints", "house-small", "model", to="nope"),
        entry(ENDPOINT, "house-small", endpoint(model="nope", supports_given=True, weight=0)),
    ),
    "an account that is not there": (
        "endpoints.house-small.account",
        changed(FULL, "endpoints", "house-small", "account", to="nope"),
        entry(ENDPOINT, "house-small", endpoint(account="nope")),
    ),
    "a provider that was taken away": ("accounts.house.provider", changed(FULL, "providers", "house", to=...), without(PROVIDER, "house")),
    "an account and a pool at once": (
        "endpoints.house-small.accounts",
        changed(FULL, "endpoints", "house-small", "accounts", to=["house"]),
        entry(ENDPOINT, "house-small", endpoint(accounts=["house"])),
    ),
    "a pool of two providers": (
        "endpoints.acme-large.accounts",
        changed(FULL, "endpoints", "acme-large", "accounts", to=["acme-main", "house"]),
        entry(ENDPOINT, "acme-large", types_pb2.Endpoint(model="large", accounts=["acme-main", "house"])),
    ),
    "a negative weight": (
        "endpoints.house-small.weight",
        changed(FULL, "endpoints", "house-small", "weight", to=-1),
        entry(ENDPOINT, "house-small", endpoint(weight=-1)),
    ),
    "a price that is no money": (
        "endpoints.house-small.price.input_per_1m",
        changed(FULL, "endpoints", "house-small", "price", to={"input_per_1m": "cheap"}),
        entry(ENDPOINT, "house-small", endpoint(price=types_pb2.Price(input_per_1m="cheap"))),
    ),
    "a region in capitals": (
        "endpoints.house-small.region",
        changed(FULL, "endpoints", "house-small", "region", to="EU West"),
        entry(ENDPOINT, "house-small", endpoint(region="EU West")),
    ),
    "an address inside the house": (
        "providers.acme.base_url",
        changed(FULL, "providers", "acme", "base_url", to="http://169.254.169.254/v1"),
        entry(PROVIDER, "acme", types_pb2.Provider(dialect="openai", base_url="http://169.254.169.254/v1")),
    ),
    "a dialect that nobody speaks": (
        "providers.acme.dialect",
        changed(FULL, "providers", "acme", "dialect", to="klingon"),
        entry(PROVIDER, "acme", types_pb2.Provider(dialect="klingon", base_url="https://api.acme.example")),
    ),
    "a key in the catalog": (
        "accounts.acme-main.credential",
        changed(FULL, "accounts", "acme-main", "credential", to="sk-canary"),
        entry(ACCOUNT, "acme-main", types_pb2.Account(provider="acme", credential="sk-canary")),
    ),
    "a header that we set": (
        "providers.acme.headers.Authorization",
        changed(FULL, "providers", "acme", "headers", to={"Authorization": "x"}),
        entry(
            PROVIDER, "acme", types_pb2.Provider(dialect="openai", base_url="https://a.example", headers={"Authorization": "x"})
        ),
    ),
    "an alias that is another's": (
        "models.small.aliases[0]",
        changed(FULL, "models", "small", "aliases", to=["large-latest"]),
        entry(MODEL, "small", types_pb2.Model(aliases=["large-latest"])),
    ),
    "a tier that leads to itself": (
        "tiers.best.chain",
        changed(FULL, "tiers", "spare", "chain", to=["tier/best"]),
        entry(TIER, "spare", types_pb2.Tier(chain=["tier/best"])),
    ),
    "retries without end": (
        "models.small.retry.max_retries",
        changed(FULL, "models", "small", "retry", to={"max_retries": 1000}),
        entry(MODEL, "small", types_pb2.Model(retry=types_pb2.RetryPolicy(max_retries=1000))),
    ),
}  # fmt: skip


def tampered(change: Callable[[discovery_pb2.Update], None]) -> list[bytes]:
    """A good second version, changed on its way."""
    (encoded,) = update(2, resources_of(changed(FULL, "endpoints", "acme-large", "weight", to=2)))
    message = discovery_pb2.WatchResponse.FromString(encoded)
    change(message.update)
    return [message.SerializeToString()]


def unreadable(told: discovery_pb2.Update) -> None:
    told.upserts[0].body = b"\xff\xff"
    told.checksum = collection_checksum({(one.kind, one.name): one.body for one in told.upserts})


def lost(told: discovery_pb2.Update) -> None:
    del told.upserts[-1]


def doubled(told: discovery_pb2.Update) -> None:
    told.upserts.add(kind=ENDPOINT, name="acme-large", body=b"")


# What is wrong with the message: by the field of the NACK.
MESSAGES: Mapping[str, tuple[str, list[bytes]]] = {
    "a checksum of something else": ("checksum", tampered(lambda told: setattr(told, "checksum", "0" * 64))),
    "no checksum": ("checksum", tampered(lambda told: told.ClearField("checksum"))),
    "a resource lost on the way": ("checksum", tampered(lost)),
    "a resource twice, the second another": ("checksum", tampered(doubled)),
    "bytes that are no message": ("providers.acme", tampered(unreadable)),
    "version 0": ("version", tampered(lambda told: setattr(told, "version", 0))),
    "no parts": ("parts", tampered(lambda told: setattr(told, "parts", 0))),
    "a part beyond the last": ("part", tampered(lambda told: setattr(told, "part", 3))),
    "a delta to an older version": ("base_version", tampered(lambda told: setattr(told, "base_version", 5))),
    "a delta from what is not held": ("base_version", update(9, GOOD, base=(8, {}))),
}


def test_there_are_at_least_twenty_kinds() -> None:
    assert len(CONTENT) + len(MESSAGES) >= 20


@pytest.mark.parametrize("kind", [*CONTENT, *MESSAGES])
async def test_a_router_refuses_it_by_its_path_and_serves_on_until_the_next_good_one(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    field, messages = (CONTENT[kind][0], update(2, CONTENT[kind][2])) if kind in CONTENT else MESSAGES[kind]
    async with ScriptedControlPlane() as plane, router(plane.target, path=tmp_path / "catalog.snapshot") as (follower, _):
        await serving(plane, 1, GOOD)
        served = follower.state

        plane.push(messages)
        nack = await plane.nack()

        assert nack.field == field
        assert nack.reason and "canary" not in nack.reason + caplog.text
        assert follower.state is served and (follower.version, follower.nacks) == (1, 1)
        if (nack.field, nack.version) == ("base_version", 9):
            await plane.hello()  # it asks anew, on a stream of its own
        plane.push(update(10, resources_of(changed(FULL, "endpoints", "acme-large", "weight", to=9))))
        assert (await plane.ack()).version == 10
        assert follower.state.catalog is not None and follower.state.catalog.endpoints["acme-large"].weight == 9


async def test_an_operator_is_refused_by_the_same_path_and_the_last_good_stays_the_head(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL)
        for kind, (field, raw, _) in CONTENT.items():
            told = await refusal(plane, raw)
            assert field in [problem.field for problem in told.problems], kind
            assert "canary" not in str(told)
        assert (await plane.apply(changed(FULL, "endpoints", "acme-large", "weight", to=9))).version.version == 2


async def refusal(plane: Calls, raw: Raw) -> object:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plane.apply(json.dumps(raw))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return detail(refused.value)


def test_the_wire_form_of_every_good_entry_is_what_the_table_starts_from() -> None:
    assert wire.compile_catalog(GOOD, version=1, checksum=collection_checksum(GOOD)).version == 1
