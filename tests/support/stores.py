"""Real stores for tests: PostgreSQL and Redis by URL, in containers, or the embedded ones in a folder of this run.

`N4N_TEST_DATABASE_URL` and `N4N_TEST_REDIS_URL` name servers to use; a Redis named so is emptied (the database its URL selects).
Else `N4N_TEST_BACKEND=containers` starts containers, and anything else the embedded servers, once per run. Servers end with the run,
also if it is killed. Each `postgres_url` is a database of its own; each `redis_url` is an empty Redis.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from n4n.runtime.embedded import THROWAWAY, start_postgres, start_valkey

POSTGRES_IMAGE, VALKEY_IMAGE = "postgres:18-alpine", "valkey/valkey:9-alpine"


@pytest.fixture(scope="session")
def stores_folder() -> Iterator[Path]:
    """Where the embedded servers of this run keep their files."""
    folder = Path(tempfile.mkdtemp(prefix="n4n-tests-"))
    folder.chmod(0o711)  # as root, the server is another user
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(stores_folder: Path) -> Iterator[str]:
    """The URL of a server where databases may be made; tests want `postgres_url`."""
    if url := os.environ.get("N4N_TEST_DATABASE_URL"):
        yield "postgresql+psycopg://" + url.partition("://")[2]
    elif os.environ.get("N4N_TEST_BACKEND") == "containers":
        from testcontainers.community.postgres import PostgresContainer  # only where Docker is

        with PostgresContainer(POSTGRES_IMAGE, driver="psycopg") as container:
            yield str(container.get_connection_url())
    else:
        store = start_postgres(stores_folder, settings=THROWAWAY)
        yield store.url
        store.stop()


@pytest.fixture(scope="session")
def redis_server(stores_folder: Path) -> Iterator[str]:
    """The URL of a server that may be emptied; tests want `redis_url`."""
    if url := os.environ.get("N4N_TEST_REDIS_URL"):
        yield url
    elif os.environ.get("N4N_TEST_BACKEND") == "containers":
        from testcontainers.community.redis import RedisContainer  # only where Docker is

        with RedisContainer(VALKEY_IMAGE) as container:
            yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}"
    else:
        store = start_valkey(stores_folder)
        yield store.url
        store.stop()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database for one test, gone after it (SQLAlchemy's URL for psycopg)."""
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database for all tests of one file."""
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """A Redis that is empty when the test begins."""
    with redis.Redis.from_url(redis_server) as client:
        client.flushdb()
    return redis_server


@contextmanager
def new_database(server_url: str, template: str = "template1") -> Iterator[str]:
    """Make a database beside the one of `server_url`, as a copy of `template`; drop it at the end, whoever is still connected."""
    name = f"n4n_test_{uuid.uuid4().hex[:12]}"
    _run(server_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    finally:
        _run(server_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def libpq_url(url: str) -> str:
    """The same place as psycopg itself names it."""
    return url.replace("+psycopg", "", 1)


def _run(url: str, statement: str) -> None:
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute(statement.encode())
