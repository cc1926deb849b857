"""The compiled snapshot: what a document becomes, how names resolve, and that the wire changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n4n.core.access import Key
from n4n.core.catalog import (
    TRANSIENT,
    BreakerPolicy,
    Price,
    PriceList,
    PriceTier,
    RetryPolicy,
    RetryRule,
    Snapshot,
    StreamGuardPolicy,
    Target,
    Timeouts,
    collection_checksum,
    compile_snapshot,
)
from n4n.core.document import canonical_json, parse_document
from n4n.core.errors import CatalogRefused, FailureClass, ModelNotFound
from n4n.core.health.policy import HealthPolicy
from n4n.runtime import wire
from n4n.v1 import types_pb2
from tests.support.catalogs import FULL, SMALL, Raw, changed, documents


def compiled(raw: Raw, **states: str) -> Snapshot:
    document, problems = parse_document(raw)
    assert problems == []
    return compile_snapshot(document, version=7, checksum="c", states={name.replace("_", "-"): state for name, state in states.items()})


def test_an_endpoint_knows_all_that_a_request_needs() -> None:
    snapshot = compiled(FULL, acme_large="draining")

    endpoint = snapshot.endpoints["acme-large"]

    assert endpoint.provider.base_url == "https://eu.acme.example/v1"
    assert [account.name for account in endpoint.accounts] == ["acme-main", "acme-second"]
    assert endpoint.accounts[0].limits == {
        "scope": "per_model",
        "rpm": 500,
        "tpm": 200_000,
        "concurrency": 200,
        "streams": 100,
        "burst": 20,
    }
    assert (endpoint.upstream_model, endpoint.region, endpoint.weight, endpoint.state) == ("large-2026", "eu-west-1", 5.0, "draining")
    assert (endpoint.context_window, endpoint.max_output_tokens) == (64_000, 16_384)  # the smaller of the endpoint's and the model's
    assert (endpoint.supports, endpoint.trains_on_data, endpoint.retention_days) == (frozenset({"tools", "seed"}), False, 30)
    assert snapshot.by_model["large"] == (endpoint,)


def test_prices_are_whole_pico_usd_per_token_and_tiers_rise() -> None:
    assert compiled(FULL).endpoints["acme-large"].price == PriceList(
        Price(2_500_000, 10_000_000, 1_250_000, 3_750_000, 6_000_000),
        (PriceTier(200_000, Price(input=5_000_000)), PriceTier(400_000, Price(input=9_000_000))),
    )


@pytest.mark.parametrize("price", [..., {}, {"tiers": []}])
def test_what_has_no_price_is_unpriced_and_not_free(price: object) -> None:
    raw = changed(FULL, "endpoints", "acme-large", "price", to=price)

    assert compiled(raw).endpoints["acme-large"].price is None


def test_the_smallest_price_is_one_pico_usd_per_token() -> None:
    raw = changed(SMALL, "endpoints", "acme-small", "price", to={"input_per_1m": 0.000001, "output_per_1m": 0})

    assert compiled(raw).endpoints["acme-small"].price == PriceList(Price(input=1, output=0))


def test_a_model_takes_its_policies_from_the_document_and_defaults_from_the_design() -> None:
    models = compiled(FULL).models

    large, small = models["large"], models["small"]

    assert (large.scores, large.capabilities) == ({"reasoning": 0.7, "coding": 1.0, "multilingual": 0.0}, frozenset({"tools"}))
    assert large.breaker == BreakerPolicy(4, 10.0, 15.5)
    assert large.stream_guard == StreamGuardPolicy(2, 50, 12.5)
    assert large.health == HealthPolicy(300.0, 0.9, 0.1, 0.1, 0.5, 5.0, 4)
    assert large.timeouts == Timeouts(1000, 4000, 20000, 300000)
    assert (large.substitutes, large.unsupported_params, large.strategy) == (("small",), "reject", "cost")
    assert (small.breaker, small.timeouts, small.unsupported_params) == (
        BreakerPolicy(5, 20, 30),
        Timeouts(2000, None, 30000, 600000),
        "drop",
    )
    assert small.retry.retry_on == frozenset()


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"preset": "quick"}, BreakerPolicy(3, 20.0, 30.0)),
        ({"preset": "patient"}, BreakerPolicy(4, 60.0, 300.0, consecutive=True)),
        ({"preset": "patient", "recovery_timeout_sec": 60, "consecutive": False}, BreakerPolicy(4, 60.0, 60.0)),
        ({"consecutive": True}, BreakerPolicy(consecutive=True)),
    ],
)
def test_a_preset_of_the_breaker_is_what_nothing_else_says(given: dict[str, object], means: BreakerPolicy) -> None:
    assert compiled(changed(SMALL, "models", "small", "circuit_breaker", to=given)).models["small"].breaker == means


def test_words_of_a_policy_stand_for_classes_and_a_single_class_is_nearer_than_a_group() -> None:
    retry = compiled(FULL).models["large"].retry

    assert retry.retry_on == TRANSIENT
    assert retry.rule(FailureClass.TIMEOUT) == RetryRule(1, 100)
    assert retry.rule(FailureClass.QUOTA_EXHAUSTED) == RetryRule(3, 900)
    assert retry.rule(FailureClass.RATE_LIMITED) == RetryRule(0, 100)
    assert retry.rule(FailureClass.SERVER_ERROR) == RetryRule(3, 100)
    assert RetryPolicy().rule(FailureClass.TIMEOUT) == RetryRule(2, 200)


def test_what_an_endpoint_does_not_say_is_unknown() -> None:
    endpoint = compiled(SMALL).endpoints["acme-small"]

    assert (endpoint.supports, endpoint.context_window, endpoint.trains_on_data, endpoint.retention_days) == (None, None, None, None)
    assert (endpoint.upstream_model, endpoint.weight, endpoint.region, endpoint.state) == ("small", 1.0, "", "active")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("large", Target("large", ("large",))),  # type: ignore[arg-type]
        ("large-latest", Target("large-latest", ("large",))),  # type: ignore[arg-type]
        ("acme/large", Target("acme/large", ("large",))),  # type: ignore[arg-type]  # an alias comes before provider/model
        ("tier/best", Target("tier/best", ("large", "small"), tier="best")),  # type: ignore[arg-type]
        ("house/small", Target("house/small", ("small",), provider="house")),  # type: ignore[arg-type]
        ("acme/large-latest", Target("acme/large-latest", ("large",), provider="acme")),  # type: ignore[arg-type]
    ],
)
def test_a_name_is_a_model_an_alias_a_tier_or_a_model_at_a_provider_in_this_order(name: str, target: Target) -> None:
    assert compiled(FULL).resolve(name) == target


@pytest.mark.parametrize("name", ["", "lrge", "tier/none", "tier/", "house/large", "nobody/small", "acme/none", "x" * 100_000])
def test_any_other_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound) as refused:
        compiled(FULL).resolve(name)

    assert (refused.value.status, refused.value.param) == (404, "model")
    assert len(refused.value.message) < 400


def test_a_near_name_is_offered() -> None:
    with pytest.raises(ModelNotFound, match=r"there is no model named 'lage' \(did you mean large\?\)"):
        compiled(FULL).resolve("lage")


def test_tiers_unfold_in_order_each_model_once() -> None:
    assert compiled(FULL).tiers == {"best": ("large", "small"), "spare": ("small",)}


def test_tiers_that_share_tiers_or_nest_deeply_unfold_in_no_time() -> None:
    shared = {f"t{n}": {"chain": [f"tier/t{n + 1}", f"tier/u{n + 1}"]} for n in range(60)}
    shared |= {f"u{n}": {"chain": [f"tier/u{n + 1}", f"tier/t{n + 1}"]} for n in range(60)}
    shared |= {"t60": {"chain": ["small"]}, "u60": {"chain": ["small"]}}
    deep: dict[str, dict[str, object]] = {f"d{n}": {"chain": [f"tier/d{n + 1}"]} for n in range(1500)} | {"d1500": {"chain": ["small"]}}
    document, problems = parse_document({**SMALL, "tiers": shared})
    assert problems == []

    assert set(compile_snapshot(document, version=1, checksum="c").tiers.values()) == {("small",)}
    assert compile_snapshot({**document, "tiers": deep}, version=1, checksum="c").tiers["d0"] == ("small",)


def test_a_checksum_is_of_names_kinds_and_bodies_and_of_no_order() -> None:
    one = {(1, "a"): b"x", (2, "b"): b"y"}

    assert collection_checksum(one) == collection_checksum(dict(reversed(one.items())))
    others = [{}, {(1, "a"): b"x"}, {(1, "a"): b"y", (2, "b"): b"x"}, {(2, "a"): b"x", (1, "b"): b"y"}, {(1, "a"): b"x2", (2, "b"): b"y"}]
    assert len({collection_checksum(other) for other in (one, *others)}) == 6


# The wire.


def over_the_wire(raw: Raw, states: dict[str, str]) -> Snapshot:
    resources = wire.catalog_resources(parse_document(raw)[0], states)
    return wire.compile_catalog(resources, version=7, checksum=collection_checksum(resources))


def direct(raw: Raw, states: dict[str, str]) -> Snapshot:
    document = parse_document(raw)[0]
    checksum = collection_checksum(wire.catalog_resources(document, states))
    return compile_snapshot(document, version=7, checksum=checksum, states=states)


@pytest.mark.parametrize("raw", [SMALL, FULL, {}])
def test_a_catalog_that_travelled_is_the_catalog_that_was_sent(raw: Raw) -> None:
    assert over_the_wire(raw, {"acme-large": "disabled"}) == direct(raw, {"acme-large": "disabled"})


@settings(max_examples=40)
@given(documents())
def test_any_catalog_survives_the_wire(raw: Raw) -> None:
    arrived, sent = over_the_wire(raw, {}), direct(raw, {})

    assert arrived == sent
    assert list(arrived.endpoints) == list(sent.endpoints)
    for name, endpoint in sent.endpoints.items():  # 1, 1.0 and True are equal but not the same
        assert canonical_json(arrived.endpoints[name].body) == canonical_json(endpoint.body)


@settings(max_examples=60)
@given(documents(), documents(), st.sampled_from(["active", "draining", "disabled"]))
def test_a_catalog_built_on_an_earlier_one_is_the_one_built_from_nothing(earlier: Raw, later: Raw, state: str) -> None:
    mixed = {**later, "endpoints": {**later["endpoints"]}}
    for name, endpoint in earlier["endpoints"].items():  # some entries stay, some change, what they refer to may be another
        if endpoint["model"] in later["models"] and endpoint["account"] in later["accounts"]:
            mixed["endpoints"].setdefault(name, endpoint)
    before = wire.build_catalog(wire.catalog_resources(parse_document(earlier)[0], {}), version=1, checksum="a")
    resources = wire.catalog_resources(parse_document(mixed)[0], dict.fromkeys(mixed["endpoints"], state))

    after = wire.build_catalog(resources, version=2, checksum="b", before=before)

    anew = wire.build_catalog(resources, version=2, checksum="b")
    assert (after.snapshot, after.document, after.entries) == (anew.snapshot, anew.document, anew.entries)
    assert list(after.snapshot.endpoints) == list(anew.snapshot.endpoints)


def test_only_what_changed_is_read_and_compiled_again() -> None:
    def built(raw: Raw, before: wire.CatalogBuild | None = None, **states: str) -> wire.CatalogBuild:
        resources = wire.catalog_resources(parse_document(raw)[0], states)
        return wire.build_catalog(resources, version=1, checksum="c", before=before)

    first = built(FULL)
    second = built(changed(FULL, "models", "large", "strategy", to="health"), first)

    assert second.snapshot.models["small"] is first.snapshot.models["small"]
    assert second.snapshot.endpoints["house-small"] is first.snapshot.endpoints["house-small"]
    assert second.entries[(types_pb2.KIND_ENDPOINT, "acme-large")] is first.entries[(types_pb2.KIND_ENDPOINT, "acme-large")]
    assert second.snapshot.endpoints["acme-large"] is not first.snapshot.endpoints["acme-large"], "its model went into it"
    third = built(changed(FULL, "models", "large", "strategy", to="health"), second, **{"house-small": "draining"})
    assert third.snapshot.endpoints["house-small"].state == "draining"
    assert third.snapshot.endpoints["acme-large"] is second.snapshot.endpoints["acme-large"]


def test_a_refusal_names_the_same_problems_on_an_earlier_catalog_as_on_none() -> None:
    first = wire.build_catalog(wire.catalog_resources(parse_document(FULL)[0], {}), version=1, checksum="c")
    odd = types_pb2.Endpoint(model="nope", account="house", weight=-1).SerializeToString()
    resources = {name: entry.body for name, entry in first.entries.items()} | {(types_pb2.KIND_ENDPOINT, "odd"): odd}
    told = []
    for before in (None, first):
        with pytest.raises(CatalogRefused) as refused:
            wire.build_catalog(resources, version=2, checksum="c", before=before)
        told.append(refused.value.problems)

    assert told[0] == told[1] and len(told[0]) == 2


def test_equal_documents_travel_as_equal_bytes() -> None:
    reordered = {section: dict(reversed(FULL[section].items())) for section in reversed(FULL)}

    assert wire.catalog_resources(parse_document(FULL)[0], {}) == wire.catalog_resources(parse_document(reordered)[0], {})


def broken(kind: int, name: str, body: bytes) -> list[str]:
    resources = {**wire.catalog_resources(parse_document(FULL)[0], {}), (kind, name): body}
    with pytest.raises(CatalogRefused) as refused:
        wire.compile_catalog(resources, version=8, checksum=collection_checksum(resources))
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("kind", "name", "body", "said"),
    [
        (types_pb2.KIND_ENDPOINT, "e", b"\xff\xff", "endpoints.e: is not a readable protobuf message"),
        (
            types_pb2.KIND_ENDPOINT,
            "e",
            types_pb2.Endpoint(model="nope", account="house").SerializeToString(),
            "endpoints.e.model: there is no model named nope",
        ),
        (
            types_pb2.KIND_ENDPOINT,
            "e",
            types_pb2.Endpoint(model="small", account="house", body_json="{").SerializeToString(),
            "endpoints.e.body: must be a map merged into requests, not text",
        ),
        (
            types_pb2.KIND_ENDPOINT,
            "e",
            types_pb2.Endpoint(model="small", account="house", body_json="").SerializeToString(),
            "endpoints.e.body: must be a map merged into requests, not text",
        ),
        (
            types_pb2.KIND_ENDPOINT,
            "e",
            types_pb2.Endpoint(model="small", account="house", body_json="[" * 100_000).SerializeToString(),
            "endpoints.e.body: must be a map merged into requests, not text",
        ),
        (
            types_pb2.KIND_ENDPOINT,
            "e",
            types_pb2.Endpoint(model="small", account="house", weight=float("nan")).SerializeToString(),
            "endpoints.e.weight: must be a number from 0 to 1e+06, not 'NaN'",
        ),
        (types_pb2.KIND_ENDPOINT, "a b", b"", "endpoints.a b: is not a name; use letters, digits, dot, underscore and hyphen"),
        (types_pb2.KIND_TIER, "best", b"", "tiers.best.chain: is missing; it is required"),
        (
            types_pb2.KIND_PROVIDER,
            "acme",
            types_pb2.Provider(dialect="openai", base_url="http://10.0.0.1").SerializeToString(),
            "providers.acme.base_url: is a loopback, link-local or private address; set allow_private: true on the provider to allow it",
        ),
    ],
)
def test_a_bad_resource_is_refused_by_the_path_of_its_field(kind: int, name: str, body: bytes, said: str) -> None:
    assert broken(kind, name, body) == [said]


def test_resources_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(CatalogRefused, match="checksum"):
        wire.compile_catalog({}, version=1, checksum="0" * 64)


def test_a_kind_or_field_of_a_newer_version_is_passed_over_and_still_counts_in_the_sum() -> None:
    resources = {**wire.catalog_resources(parse_document(SMALL)[0], {}), (99, "new"): b"?"}
    name = (types_pb2.KIND_MODEL, "small")
    resources[name] = resources[name] + b"\xc2\x3e\x01x"  # field 1000, text "x"

    snapshot = wire.compile_catalog(resources, version=1, checksum=collection_checksum(resources))

    assert list(snapshot.models) == ["small"]


KEYS = (
    Key("abcdef012345", "acme", b"s" * 32),
    Key(
        "abcdef012346",
        "acme",
        b"s" * 32,
        expires_at=1_800_000_000.5,
        directives=("region=eu",),
        require_directives=("data",),
        models=frozenset({"small", "large"}),
        limits={"rpm": 5, "burst": 2},
        previous_sha256=b"p" * 32,
        previous_expires_at=1_700_000_000.0,
    ),
)


def test_keys_that_did_not_change_are_taken_over() -> None:
    resources = dict(wire.access_resources({key.public_id: key for key in KEYS}))
    before = wire.build_access(resources, version=3, checksum="a")
    first, second = KEYS
    after = dict(wire.access_resources({first.public_id: Key(first.public_id, "other", b"t" * 32)})) | {(99, "new"): b"?"}

    access = wire.build_access(after, version=4, checksum="b", before=before, changed=[*resources, (99, "new")])

    assert access == wire.build_access(after, version=4, checksum="b")
    kept = wire.build_access(resources, version=4, checksum="a", before=before, changed=[wire.key_resource(second.public_id)])
    assert kept.keys[first.public_id] is before.keys[first.public_id] and kept.keys == before.keys


def test_keys_that_travelled_are_the_keys_that_were_sent() -> None:
    resources = wire.access_resources({key.public_id: key for key in KEYS})

    arrived = wire.compile_access(resources, version=3, checksum=collection_checksum(resources))

    assert arrived.keys == {key.public_id: key for key in KEYS}
    with pytest.raises(CatalogRefused, match="checksum"):
        wire.compile_access(resources, version=3, checksum="0" * 64)
