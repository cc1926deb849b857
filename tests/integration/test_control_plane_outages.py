"""The control plane as a program, and what it does while its database is away."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import psycopg
import pytest

from control_plane.schema import migrate
from n4n.runtime.embedded import THROWAWAY, RunningStore, start_postgres
from n4n.v1 import catalog_pb2, fleet_pb2
from tests.control_plane.client import ADMIN, NODE, Calls, a_plane, a_watcher, calls
from tests.support.catalogs import SMALL, changed
from tests.support.stores import libpq_url
from tests.support.valkey import running_valkey

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own_folder(stores_folder: Path) -> Path:
    folder = stores_folder / "own"
    folder.mkdir(mode=0o711)
    return folder


@pytest.fixture
def own_postgres(own_folder: Path) -> Iterator[RunningStore]:
    """A PostgreSQL that the test may stop; its URL stays when it is started again."""
    store = start_postgres(own_folder, settings=THROWAWAY)
    with psycopg.connect(libpq_url(store.url), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    yield store
    store.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def a_program(**environ: str) -> AsyncIterator[Process]:
    """`python -m control_plane`, killed at the end if it still runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("N4N_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "control_plane", cwd=ROOT, stderr=PIPE, env={**inherited, **environ}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def configured(url: str, port: int, **more: str) -> dict[str, str]:
    addresses = {"N4N_DATABASE_URL": url, "N4N_ADMIN_PORT": str(port), "N4N_METRICS_PORT": "0"}
    return {**addresses, "N4N_ADMIN_TOKEN": ADMIN, "N4N_NODE_TOKEN": NODE, **more}


async def line_with(process: Process, text: str) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(15):
        while line := (await process.stderr.readline()).decode():
            if text in line:
                return line
    raise AssertionError(f"it ended without saying {text!r}")


async def status(plane: Calls) -> fleet_pb2.StatusReply:
    reply: fleet_pb2.StatusReply = await plane.fleet.Status(fleet_pb2.StatusRequest(), metadata=plane.token)
    return reply


async def test_while_postgres_is_away_watchers_are_served_from_memory_and_it_recovers_by_itself(
    own_postgres: RunningStore, own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "n4n.control_plane")
    async with a_plane(own_postgres.url, poll_s=0.1) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(SMALL)
        await watcher.ack(await watcher.next_update())

        own_postgres.stop()
        async with a_watcher(plane.port, node="router-2") as late:
            await late.ack(await late.next_update())
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await plane.apply(SMALL)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE and "cannot be reached" in (refused.value.details() or "")
            told = await status(plane)
            assert "cannot be reached" in told.database and told.catalog_version == 1
            assert [(node.node, node.applied_version) for node in told.nodes] == [("router-1", 1), ("router-2", 1)]
            assert (await plane.catalog.Validate(catalog_pb2.ValidateRequest(document_json="{}"), metadata=plane.token)).problems == []
            await asyncio.sleep(0.5)

            again = start_postgres(own_folder, settings=THROWAWAY)
            await plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=2))
            for each in (watcher, late):
                await each.ack(await each.next_update())
            for _ in range(200):
                told = await status(plane)
                back = any(record.message == "the database is back" for record in caplog.records)
                if told.database == "ok" and back and [node.applied_version for node in told.nodes] == [2, 2]:
                    break
                await asyncio.sleep(0.05)
            assert (told.database, len(told.nodes)) == ("ok", 2)
    again.stop()
    lines = [record.message for record in caplog.records if record.name == "n4n.control_plane"]
    assert sum("watchers are served from memory" in line for line in lines) == 1
    assert sum(line == "the database is back" for line in lines) == 1


async def test_a_control_plane_that_starts_before_its_database_serves_once_that_is_there(
    own_postgres: RunningStore, own_folder: Path
) -> None:
    own_postgres.stop()
    port = free_port()
    async with a_program(**configured(own_postgres.url, port)) as process:
        await line_with(process, "cannot be reached")
        again = start_postgres(own_folder, settings=THROWAWAY)
        await line_with(process, "the control plane serves on")
        async with calls(port) as plane:
            assert (await plane.apply(SMALL)).version.version == 1
        process.send_signal(signal.SIGTERM)
        rest = (await process.communicate())[1].decode()
        assert process.returncode == 0 and "Traceback" not in rest
    again.stop()


async def test_waiting_for_a_database_can_be_ended(own_postgres: RunningStore) -> None:
    own_postgres.stop()
    async with a_program(**configured(own_postgres.url, free_port())) as process:
        await line_with(process, "waiting for it")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_within_five_seconds_with_streams_open(number: signal.Signals, postgres_url: str) -> None:
    port, metrics = free_port(), free_port()
    async with a_program(**configured(postgres_url, port, N4N_METRICS_PORT=str(metrics))) as process:
        await line_with(process, "serves on")
        async with calls(port) as plane, a_watcher(port) as watcher:
            await plane.apply(SMALL)
            await watcher.ack(await watcher.next_update())
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics").read().decode())
            assert "n4n_catalog_version 1.0" in page and "n4n_nodes_connected 1.0" in page and "n4n_catalog_nack_total 0.0" in page
            started = time.monotonic()
            process.send_signal(number)
            process.send_signal(signal.SIGTERM)
            said = (await process.communicate())[1].decode()
            assert process.returncode == 0, said
            assert time.monotonic() - started < 5 and "Traceback" not in said


async def test_what_keeps_it_from_starting_is_one_line(postgres_url: str) -> None:
    migrate(postgres_url)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        good = configured(postgres_url, free_port())
        last = configured(postgres_url, free_port())
        cases: list[tuple[dict[str, str], str]] = [
            (good | {"N4N_ADMIN_PORT": str(port)}, f"127.0.0.1:{port} (Address already in use); free the port or choose another"),
            (good | {"N4N_METRICS_PORT": str(port)}, "N4N_METRICS_PORT"),
            (good | {"N4N_ADMIN_TOKEN": ""}, "N4N_ADMIN_TOKEN is empty"),
            (good | {"N4N_NODE_TOKEN": ADMIN}, "a token of their own"),
            (good | {"N4N_DATABASE_URL": ""}, "N4N_DATABASE_URL is empty"),
            (last | {"N4N_REDIS_URL": "nonsense"}, "N4N_REDIS_URL must be"),
            (good | {"N4N_ADMIN_PRT": "1"}, "did you mean N4N_ADMIN_PORT?"),
        ]
        for lines, (_, said) in zip(await asyncio.gather(*(last_words(environ) for environ, _ in cases)), cases, strict=True):
            assert said in lines[-1] and lines[-1].startswith("n4n control-plane: ")
            assert all(json.loads(line)["level"] == "info" for line in lines[:-1])


async def last_words(environ: dict[str, str]) -> list[str]:
    """What a program that cannot start says."""
    async with a_program(**environ) as process:
        said = (await process.communicate())[1].decode()
        assert process.returncode == 1, said
        return said.splitlines()


async def test_the_log_says_once_that_redis_cannot_be_used_and_once_that_it_can_again(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if "Redis" in one.getMessage()]

    async def until(count: int) -> None:
        async with asyncio.timeout(20):
            while len(said()) < count:  # noqa: ASYNC110  # what is waited for is written by a log
                await asyncio.sleep(0.05)

    caplog.set_level(logging.INFO, "n4n.control_plane")
    with running_valkey(tmp_path) as valkey:
        async with a_plane(postgres_url, redis_url=valkey.url):
            valkey.kill()
            await until(1)
            valkey.start()
            await until(2)
    assert [line.partition(":")[0] for line in said()] == ["Redis cannot be used", "Redis can be used again"], "and nothing at the end"


async def test_status_asks_redis_and_never_tells_its_url(postgres_url: str, redis_url: str) -> None:
    async with a_plane(postgres_url, redis_url=redis_url) as plane:
        told = await status(plane)
        assert (told.redis, told.database, told.catalog_version, told.build) == ("ok", "ok", 0, "0.1.0")
    async with a_plane(postgres_url, redis_url="redis://:secret@127.0.0.1:1/0") as plane:
        told = await status(plane)
        assert told.redis != "ok" and "secret" not in told.redis
    async with a_plane(postgres_url, redis_url="redis+sentinel://:secret@127.0.0.1:1,127.0.0.1:2/main") as plane:
        told = await status(plane)
        assert told.redis != "ok" and "secret" not in told.redis, "what a router can be configured with is no reason not to start"
    async with a_plane(postgres_url) as plane:
        assert (await status(plane)).redis == "not configured"
