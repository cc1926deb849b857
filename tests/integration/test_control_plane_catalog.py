"""Catalog versions on a real PostgreSQL over real gRPC: what is committed, what is refused, and what history remembers."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest

from n4n.v1 import catalog_pb2
from tests.control_plane.client import Calls, a_plane, detail
from tests.support.catalogs import FULL, SMALL, Raw, changed

PRICE = ("endpoints", "acme-small", "price")


async def get(plane: Calls, version: int | None = None) -> catalog_pb2.GetReply:
    reply: catalog_pb2.GetReply = await plane.catalog.Get(catalog_pb2.GetRequest(version=version), metadata=plane.token)
    return reply


async def history(plane: Calls, **asked: int) -> list[catalog_pb2.VersionInfo]:
    return list((await plane.catalog.History(catalog_pb2.HistoryRequest(**asked), metadata=plane.token)).versions)


async def set_state(plane: Calls, endpoint: str, state: str) -> catalog_pb2.ApplyReply:
    request = catalog_pb2.SetEndpointStateRequest(endpoint=endpoint, state=state, author="ops")
    reply: catalog_pb2.ApplyReply = await plane.catalog.SetEndpointState(request, metadata=plane.token)
    return reply


async def refusal(awaitable: object) -> tuple[grpc.StatusCode, str, catalog_pb2.ErrorDetail]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await awaitable  # type: ignore[misc]
    assert "\n" not in (raised.value.details() or "")
    return raised.value.code(), raised.value.details() or "", detail(raised.value)


async def test_a_version_keeps_author_time_message_checksum_and_its_diff(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL, author="ann", message="the first")
        reply = await plane.apply(changed(SMALL, *PRICE, to={"input_per_1m": 2.50}), author="bob", message="a price")

        second = await get(plane)
        assert (second.version.version, second.version.author, second.version.message) == (2, "bob", "a price")
        assert second.version.committed_at_ms > (await get(plane, 1)).version.committed_at_ms > 1_600_000_000_000
        assert [(c.path, c.before, c.after) for c in second.changes] == [("endpoints.acme-small.price", "", '{"input_per_1m":"2.5"}')]
        assert list(reply.changes) == list(second.changes)
        assert len(second.version.checksum) == 64 and second.version.checksum != (await get(plane, 1)).version.checksum
        assert json.loads(second.document_json)["endpoints"]["acme-small"]["price"] == {"input_per_1m": "2.5"}


async def test_what_is_equal_makes_no_version(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL)
        again = await plane.apply((await get(plane)).document_json)
        assert again.unchanged and again.version.version == 1
        assert len(await history(plane)) == 1


async def test_history_is_newest_first_and_can_be_paged(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        for weight in range(1, 6):
            await plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=weight))
        assert [info.version for info in await history(plane)] == [5, 4, 3, 2, 1]
        assert [info.version for info in await history(plane, limit=2, before_version=4)] == [3, 2]
        assert [info.changes for info in await history(plane, limit=1)] == [1]


async def test_a_rollback_is_a_new_version_with_the_old_document(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        await plane.apply(changed(SMALL, "endpoints", "acme-small", "region", to="eu"))
        request = catalog_pb2.RollbackRequest(version=1, author="cho", message="eu is down")
        reply = await plane.catalog.Rollback(request, metadata=plane.token)
        assert (reply.version.version, reply.version.message) == (3, "rollback to version 1: eu is down")
        assert (await get(plane, 3)).document_json == (await get(plane, 1)).document_json
        assert (await plane.catalog.Rollback(request, metadata=plane.token)).unchanged


async def test_an_endpoint_override_is_a_version_and_outlives_documents_and_rollbacks(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL)
        drained = await set_state(plane, "acme-large", "draining")
        assert [(c.path, c.before, c.after) for c in drained.changes] == [("endpoints.acme-large.state", "", '"draining"')]
        assert (await set_state(plane, "acme-large", "draining")).unchanged
        await plane.apply(changed(FULL, "endpoints", "acme-large", "weight", to=9))
        await plane.catalog.Rollback(catalog_pb2.RollbackRequest(version=1), metadata=plane.token)
        assert dict((await get(plane)).endpoint_states) == {"acme-large": "draining"}

        without = changed(FULL, "endpoints", "acme-large", to=...)
        await plane.apply(without, shrink=True)
        await plane.apply(FULL)
        assert not (await get(plane)).endpoint_states
        enabled = await set_state(plane, "acme-large", "active")
        assert enabled.unchanged


async def test_an_override_of_nothing_or_to_nothing_is_refused(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        code, line, told = await refusal(set_state(plane, "acme-smal", "disabled"))
        assert code is grpc.StatusCode.NOT_FOUND and told.code == "not_found" and "did you mean acme-small?" in line
        code, line, _ = await refusal(set_state(plane, "acme-small", "off"))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and line.startswith("state: must be one of")


async def test_a_stale_expectation_is_told_who_changed_what_and_when(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL, expect=0)
        await plane.apply(changed(SMALL, *PRICE, to={"input_per_1m": 1}), author="bob", message="cheaper", expect=1)
        code, line, told = await refusal(plane.apply(SMALL, author="ann", expect=1))
        assert code is grpc.StatusCode.ABORTED
        assert (told.code, told.head_version) == ("version_conflict", 2)
        assert line.startswith("expect_version: the catalog is at version 2, not 1: version 2 by bob at 20")
        assert '"cheaper" changed endpoints.acme-small.price' in line
        code, line, told = await refusal(plane.apply(SMALL, expect=9, dry=True))
        assert told.code == "version_conflict" and "there is no version 9 yet" in line
        assert [info.version for info in await history(plane)] == [2, 1]


async def test_a_dry_run_shows_everything_and_writes_nothing(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        reply = await plane.apply(changed(SMALL, "endpoints", "acme-small", "region", to="us"), dry=True)
        assert reply.dry_run and reply.version.version == 2 and [c.path for c in reply.changes] == ["endpoints.acme-small.region"]
        diff = await plane.catalog.Diff(catalog_pb2.DiffRequest(document_json=json.dumps(FULL)), metadata=plane.token)
        assert diff.head_version == 1 and len(diff.changes) > 5
        assert [info.version for info in await history(plane)] == [1]


async def test_shrinking_needs_a_deliberate_yes(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL)
        code, line, told = await refusal(plane.apply(SMALL))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and told.code == "shrink"
        assert {problem.field for problem in told.problems} == {"endpoints", "models.large"}
        assert "--allow-shrink" in line
        assert (await plane.apply(SMALL, shrink=True)).version.version == 2


def _broken() -> Raw:
    """Twenty faults in one document."""
    urls = ["file:///etc/passwd", "ftp://x.example/", "https://u:p@x.example", "http://127.0.0.1/v1", "http://169.254.169.254", "http://10.1.2.3",
            "http://2130706433/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://localhost:9000"]  # fmt: skip
    document = changed(SMALL, "providers", to={f"p{index}": {"dialect": "openai", "base_url": url} for index, url in enumerate(urls)})
    document["accounts"] = {"a": {"provider": "nobody", "limits": {"rpm": -5, "tpm": float("nan")}, "credential": "sk-real-key"}}
    document["models"] = {"m": {"aliases": ["x"]}, "n": {"aliases": ["x"]}}
    document["endpoints"] = {"p0": {"model": "m", "account": "a"}, "e": {"model": "missing", "account": "a", "price": {"input_per_1m": -1}}}
    document["tiers"] = {"empty": {"chain": []}, "one": {"chain": ["tier/two"]}, "two": {"chain": ["tier/one"]}}
    return document


async def test_every_problem_is_named_at_once_with_its_path(postgres_url: str) -> None:
    expected = {f"providers.p{index}.base_url" for index in range(10)} | {
        "accounts.a.provider", "accounts.a.limits.rpm", "accounts.a.limits.tpm", "accounts.a.credential", "models.n.aliases[0]",
        "endpoints.p0", "endpoints.e.model", "endpoints.e.price.input_per_1m", "tiers.empty.chain", "tiers.one.chain", "tiers.two.chain",
    }  # fmt: skip
    async with a_plane(postgres_url) as plane:
        code, line, told = await refusal(plane.apply(json.dumps(_broken())))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and told.code == "invalid_catalog"
        assert {problem.field for problem in told.problems} == expected
        assert line.startswith("the catalog is not valid: ") and "more)" in line and "sk-real-key" not in str(told)
        request = catalog_pb2.ValidateRequest(document_json=json.dumps(_broken()))
        validated = await plane.catalog.Validate(request, metadata=plane.token)
        assert {problem.field for problem in validated.problems} == expected
        assert not await history(plane)


async def test_more_problems_than_metadata_can_carry_are_cut_with_a_remark(postgres_url: str) -> None:
    bad = {f"e{index}": {"model": "missing", "account": "acme-main"} for index in range(500)}
    async with a_plane(postgres_url) as plane:
        _, _, told = await refusal(plane.apply(changed(SMALL, "endpoints", to=bad)))
        assert len(told.problems) > 20
        assert told.problems[-1].message.endswith("more; n4n catalog validate names all")
        wide = {f"e{index}": {"model": "missing", "account": "acme-main", "region": "語" * 2000} for index in range(50)}
        assert (await refusal(plane.apply(changed(SMALL, "endpoints", to=wide))))[2].code == "invalid_catalog"


async def test_what_is_not_a_document_is_refused_clearly(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        for text, said in (
            ("{not json", "not JSON"),
            ("[" * 100_000, "nested too deeply"),
            ("[]", "must be a map"),
            (" " * 17_000_000, "at most 16777216"),
        ):
            code, line, _ = await refusal(plane.apply(text))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and said in line
        for author, message in (("a\0b", ""), ("x" * 300, ""), ("ann", "\x1b[31m")):
            code, line, _ = await refusal(plane.apply(SMALL, author=author, message=message))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and line.split(":")[0] in ("author", "message")


async def test_a_version_that_never_was_is_not_found(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        assert (await refusal(get(plane)))[2].code == "not_found"
        await plane.apply(SMALL)
        assert (await refusal(get(plane, 7)))[0] is grpc.StatusCode.NOT_FOUND
        rollback = plane.catalog.Rollback(catalog_pb2.RollbackRequest(version=7), metadata=plane.token)
        assert (await refusal(rollback))[0] is grpc.StatusCode.NOT_FOUND


async def test_versions_come_without_gaps_however_many_commit_at_once(postgres_url: str) -> None:
    async with a_plane(postgres_url) as one, a_plane(postgres_url) as other:
        await one.apply(SMALL)
        await asyncio.gather(
            *(
                plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=n), author=f"a{n}")
                for n, plane in enumerate([one, other] * 10, 2)
            )
        )
        found = await history(one, limit=100)
        assert [info.version for info in found] == list(range(21, 0, -1))
        times = [info.committed_at_ms for info in found]
        assert times == sorted(times, reverse=True)
        expecting = [
            plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=99 + n), expect=21) for n, plane in enumerate([one, other])
        ]
        outcomes = await asyncio.gather(*expecting, return_exceptions=True)
        assert sum(isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes) == 1


async def test_history_outlives_a_restart(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL, message="kept")
        before = await get(plane)
    async with a_plane(postgres_url) as plane:
        assert await get(plane) == before
