"""The store on real servers: one contract over a single server and a cluster of three, on both loops; who may come in, and how."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.runtime.stores import Script, Store, StoreSettings, Tcp, command, settings_of
from n4n.runtime.stores.calls import NO_ANSWER
from n4n.runtime.stores.dial import NO_DATABASE, NO_NAME, NO_TLS, NOT_ADMITTED, NOT_REACHED, NOT_THERE, NOT_TRUSTED
from n4n.runtime.stores.link import CLOSED
from n4n.runtime.stores.slots import slot_of
from tests.support.certificates import Authority, needs_openssl, new_authority
from tests.support.house import free_port
from tests.support.loops import on_both_loops, on_uvloop
from tests.support.store import READY_S, Changes, open_store, starting_store
from tests.support.store_proxy import store_proxy
from tests.support.valkey import ValkeyServer, running_valkey
from tests.support.valkey_cluster import running_cluster

ECHO = Script("echo", "return {KEYS[1], ARGV[1]}")
ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
BROKEN = Script("broken", "return redis.call('LPUSH', KEYS[1], 'sk-secret')")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the servers of this file."""
    return tmp_path_factory.mktemp("valkey")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ValkeyServer]:
    """A server by itself, with a socket too."""
    with running_valkey(folder, unixsocket=str(folder / "a b.sock")) as running:
        yield running


@pytest.fixture(scope="module", params=["single", "cluster"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[ValkeyServer]]]:
    """A URL and the servers behind it."""
    place = tmp_path_factory.mktemp("servers")
    if request.param == "single":
        with running_valkey(place) as one:
            yield one.url, [one]
    else:
        with running_cluster(place) as cluster:
            yield cluster.url, cluster.nodes


@pytest.fixture
def url(servers: tuple[str, list[ValkeyServer]]) -> str:
    """Of empty servers that know no script."""
    for one in servers[1]:
        with one.client() as client:
            client.flushall()
            client.script_flush()
    return servers[0]


# The contract.


@on_both_loops
async def test_commands_and_scripts_answer_as_redis_does(url: str) -> None:
    async with open_store(url) as store:
        assert await store.command(command(b"SET", "k", "v")) == b"OK"
        assert await store.command(command(b"GET", "k")) == b"v"
        assert await store.command(command(b"GET", "none")) is None
        assert await store.command(command(b"HSET", "h", "score", 1, "at", 2)) == 2
        assert await store.command(command(b"HGETALL", "h")) == [b"score", b"1", b"at", b"2"]
        assert await store.command(command(b"MGET", "{t}a", "{t}b")) == [None, None]
        assert await store.command(command(b"PING")) == b"PONG"
        assert await store.run(ECHO, ["{acme}:rpm"], [7]) == [b"{acme}:rpm", b"7"]
        assert await store.run(ADD, [b"n"], [3]) == 3
        assert store.state is Breaker.CLOSED and store.pending == 0


@on_both_loops
async def test_a_thousand_calls_at_once_each_get_their_own_answer(url: str) -> None:
    async with open_store(url) as store:
        answers = await asyncio.gather(*(store.run(ECHO, [f"k{n}"], [n]) for n in range(1000)))
        assert answers == [[f"k{n}".encode(), str(n).encode()] for n in range(1000)]


@on_both_loops
async def test_a_pipeline_answers_all_together_each_with_its_own_outcome(url: str) -> None:
    async with open_store(url) as store:
        await store.command(command(b"SET", "{acme}text", "v"))
        outcomes = await store.pipeline(
            [ADD.call(["{acme}n"], [1]), BROKEN.call(["{acme}text"]), command(b"GET", "{acme}text"), ADD.call(["{openai-main}n"], [2])]
        )
        assert [outcomes[0], outcomes[2], outcomes[3]] == [1, b"v", 2]
        assert isinstance(outcomes[1], StoreRefused)
        assert await store.pipeline([]) == []


@on_both_loops
async def test_an_error_is_the_callers_alone_and_says_nothing_of_keys(url: str) -> None:
    async with open_store(url) as store:
        await store.command(command(b"SET", "sk-canary", "v"))
        results = await asyncio.gather(
            store.run(BROKEN, ["sk-canary"]),
            store.command(command(b"NONSENSE", "sk-canary")),
            store.run(ECHO, ["k"], [1]),
            return_exceptions=True,
        )
        assert results[2] == [b"k", b"1"]
        for error, code in zip(results[:2], ("WRONGTYPE", "ERR"), strict=True):
            assert isinstance(error, StoreRefused) and error.reply_code == code
            assert "sk-" not in str(error) and "127.0.0.1" not in str(error)
        assert store.state is Breaker.CLOSED


@on_both_loops
async def test_forgotten_scripts_are_learnt_again_without_a_failure(servers: tuple[str, list[ValkeyServer]], url: str) -> None:
    async with open_store(url) as store:
        for _ in range(3):
            answers = await asyncio.gather(*(store.run(ADD, [f"n{n}"], [1]) for n in range(50)))
            assert len(answers) == 50
            for one in servers[1]:
                with one.client() as client:
                    client.script_flush()
        assert await store.command(command(b"GET", "n7")) == b"3"


@on_uvloop
async def test_an_emptied_redis_is_an_empty_redis(servers: tuple[str, list[ValkeyServer]], url: str) -> None:
    async with open_store(url) as store:
        assert await store.run(ADD, ["n"], [5]) == 5
        for one in servers[1]:
            with one.client() as client:
                client.flushall()
        assert await store.run(ADD, ["n"], [1]) == 1


@on_both_loops
async def test_cancelled_callers_leave_no_answer_to_anybody_else(url: str) -> None:
    async with open_store(url) as store:
        for n in range(100):
            gone = [asyncio.ensure_future(store.run(ECHO, ["k"], [f"gone {n} {m}"])) for m in range(3)]
            await asyncio.sleep(0)
            gone[n % 3].cancel()
            assert await store.run(ECHO, ["k"], [n]) == [b"k", str(n).encode()]
            await asyncio.gather(*gone, return_exceptions=True)
        assert store.pending == 0


@on_uvloop
async def test_a_closed_store_fails_what_waits_and_what_comes(url: str) -> None:
    changes = Changes()
    async with open_store(url, changes) as store:
        await store.run(ECHO, ["k"], [1])
        waiting = asyncio.ensure_future(store.command(command(b"BLPOP", "nothing", 0)))
        await asyncio.sleep(0.01)
    with pytest.raises(StoreUnavailable, match=CLOSED):
        await waiting
    with pytest.raises(StoreUnavailable):
        await store.run(ECHO, ["k"], [1])
    assert changes[-1] == (Breaker.OPEN, CLOSED)


# Who may come in, and how.


@on_both_loops
async def test_a_database_and_a_socket_are_used_as_the_url_says(server: ValkeyServer, folder: Path) -> None:
    async with open_store(f"{server.url}/3") as tcp, open_store(f"unix://{quote(str(folder / 'a b.sock'))}?db=3") as local:
        await tcp.command(command(b"SET", "k", "in three"))
        assert await local.command(command(b"GET", "k")) == b"in three"
    async with open_store(server.url) as first:
        assert await first.command(command(b"GET", "k")) is None


@on_uvloop
async def test_users_and_passwords_are_checked_and_never_told(tmp_path: Path) -> None:
    with running_valkey(
        tmp_path, requirepass="top-secret", user=["n4n", "on", ">pässword", "~limits:*", "+@all", "-@dangerous"]
    ) as guarded:
        here = f"127.0.0.1:{guarded.port}"
        async with open_store(f"redis://:top-secret@{here}/1") as store:
            assert await store.command(command(b"PING")) == b"PONG"
        async with open_store(f"redis://n4n:{quote('pässword')}@{here}") as store:
            assert await store.run(ADD, ["limits:a"], [1]) == 1
            with pytest.raises(StoreRefused, match="NOPERM"):
                await store.run(ADD, ["other"], [1])
        for wrong in ("", ":top-secrat@", "nobody:top-secret@"):
            changes = Changes()
            async with starting_store(f"redis://{wrong}{here}", changes) as store:
                await fails_with(store, changes, NOT_ADMITTED)
                assert not await store.ready(0.01)
            assert not any(word in repr((changes, store)) for word in ("top-secr", "nobody", "127.0.0.1"))


@on_uvloop
async def test_a_database_that_is_not_there_is_named_as_the_cause(server: ValkeyServer) -> None:
    changes = Changes()
    async with starting_store(f"{server.url}/99", changes) as store:
        await fails_with(store, changes, NO_DATABASE)


async def fails_with(store: Store, changes: Changes, why: str) -> None:
    """Once it has found out, calls fail at once and say why."""
    await changes.until_reason(why)
    with pytest.raises(StoreUnavailable, match=why):
        await store.command(command(b"PING"))


@on_uvloop
async def test_what_is_not_there_is_told_and_found_when_it_comes(tmp_path: Path) -> None:
    port, changes = free_port(), Changes()
    async with starting_store(f"redis://127.0.0.1:{port}", changes) as store:
        await fails_with(store, changes, NOT_THERE)
        with running_valkey(tmp_path, port=port):
            assert await store.ready(READY_S)
            assert await store.run(ADD, ["n"], [1]) == 1
    for url, why in ((f"unix://{tmp_path}/none.sock", NOT_THERE), ("redis://no-such-host.invalid", NO_NAME)):
        changes = Changes()
        async with starting_store(url, changes) as store:
            await fails_with(store, changes, why)


@on_uvloop
async def test_of_several_hosts_one_that_is_there_is_found(server: ValkeyServer) -> None:
    async with open_store(f"redis://127.0.0.1:{free_port()},localhost:{server.port}") as store:
        assert await store.command(command(b"PING")) == b"PONG"


# TLS: the embedded server has none, so a proxy speaks it.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs."""
    return new_authority(tmp_path_factory.mktemp("authority"))


def shown(authority: Authority, name: str, host: str = "IP:127.0.0.1") -> ssl.SSLContext:
    """What a server shows."""
    files = authority.certified(name, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return context


@needs_openssl
@on_both_loops
async def test_tls_is_spoken_with_a_certificate_that_is_trusted(server: ValkeyServer, authority: Authority) -> None:
    async with store_proxy(server.port, shown(authority, "good")) as proxy:
        async with open_store(f"{proxy.url}?ssl_ca_certs={quote(authority.ca)}") as store:
            answers = await asyncio.gather(*(store.run(ECHO, ["k"], ["x" * 3000]) for _ in range(100)))
            assert answers == [[b"k", b"x" * 3000]] * 100


@needs_openssl
@on_both_loops
async def test_a_certificate_of_another_name_or_authority_is_refused(server: ValkeyServer, authority: Authority) -> None:
    trusting = f"?ssl_ca_certs={quote(authority.ca)}"
    for host, more in (("DNS:redis.example", trusting), ("IP:127.0.0.1", "")):
        async with store_proxy(server.port, shown(authority, "bad", host)) as proxy:
            changes = Changes()
            async with starting_store(proxy.url + more, changes) as store:
                await fails_with(store, changes, NOT_TRUSTED)


@needs_openssl
@on_uvloop
async def test_a_server_without_tls_is_not_talked_to_in_the_clear(server: ValkeyServer, authority: Authority) -> None:
    changes = Changes()
    async with starting_store(f"rediss://:secret@127.0.0.1:{server.port}?ssl_ca_certs={quote(authority.ca)}", changes):
        await changes.until(lambda: any(state is Breaker.OPEN for state, _ in changes))
    assert changes[1][1] in (NO_TLS, NOT_REACHED, NO_ANSWER) and "secret" not in server.log.read_text()


def test_settings_by_hand_and_by_url_have_the_same_deadline() -> None:
    assert settings_of("redis://h:1").deadline_s == StoreSettings((Tcp("h", 1),)).deadline_s == 0.05
    assert settings_of("redis://h:1?socket_timeout=0.2").deadline_s == 0.2


def test_the_callers_and_the_accounts_keys_may_be_on_two_nodes() -> None:
    assert slot_of("{acme}:rpm") == slot_of("{acme}:tpm") != slot_of("{openai-main}:rpm")
