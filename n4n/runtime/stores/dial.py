"""How a connection to Redis comes about: names, TLS, who we are, which database. Nobody waits for it, and it is bounded in time.

All that goes wrong is a StoreUnavailable that says what, without host, user or password.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.runtime.resolver import Address, system_look_up
from n4n.runtime.stores.calls import NO_ANSWER, Call, Single
from n4n.runtime.stores.commands import Word, pack
from n4n.runtime.stores.connection import LOST, READ_BUFFER, Connection, Owner
from n4n.runtime.stores.place import Place, StoreSettings, Tcp, Unix
from n4n.runtime.stores.replies import Ask, Moved, Reply

NOT_ADMITTED = "Redis refuses the user or password of N4N_REDIS_URL"
NO_DATABASE = "Redis does not have the database of N4N_REDIS_URL, or the user may not select it"
NOT_TRUSTED = "the certificate of Redis is not trusted"
NO_TLS = "Redis does not speak TLS where N4N_REDIS_URL says that it does"
NO_NAME = "the host of N4N_REDIS_URL has no address"
NOT_THERE = "nothing listens where N4N_REDIS_URL says that Redis is"
NOT_REACHED = "Redis cannot be reached"


class Dialer:
    """Makes the connections of one store; they read into one buffer."""

    def __init__(self, settings: StoreSettings, *, strangers: bool = False) -> None:
        """With `strangers` a server that knows no such user is talked to all the same: Sentinels often have no password."""
        self._settings, self._tls, self._strangers = settings, settings.tls_context(), strangers
        self._buffer = memoryview(bytearray(READ_BUFFER))
        self._looking: dict[str, asyncio.Task[Sequence[Address]]] = {}

    async def connect(self, place: Place, owner: Owner) -> Connection:
        """A connection on which Redis knows us and has just answered a PING within the deadline. StoreUnavailable."""
        connection = Connection(owner, self._settings, self._buffer)
        try:
            async with asyncio.timeout(self._settings.connect_s):
                await self._open(place, connection)
                await self._introduce(connection)
            async with asyncio.timeout(self._settings.deadline_s):
                await _asked(connection, "PING")
        except TimeoutError as error:
            connection.end(NO_ANSWER)
            raise StoreUnavailable(NO_ANSWER) from error
        except StoreRefused as error:
            connection.end(LOST)
            raise StoreUnavailable(NOT_ADMITTED if error.reply_code == "NOAUTH" else error.message) from error
        except BaseException:
            connection.end(LOST)
            raise
        if not connection.is_open:
            raise StoreUnavailable(LOST)
        return connection

    async def ask(self, place: Place, name: str, *words: Word) -> Reply:
        """One answer over a connection of its own. StoreUnavailable; StoreRefused where Redis answers with an error."""
        connection = await self.connect(place, _Nobody())
        try:
            async with asyncio.timeout(self._settings.connect_s):
                return await _asked(connection, name, *words)
        except TimeoutError as error:
            raise StoreUnavailable(NO_ANSWER) from error
        finally:
            connection.end(LOST)

    async def close(self) -> None:
        """Gives up look-ups that still run."""
        for task in (running := list(self._looking.values())):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _open(self, place: Place, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            match place:
                case Unix(path):
                    await loop.create_unix_connection(lambda: connection, path)
                case Tcp(host, port):
                    await self._open_tcp(host, port, connection)
        except ssl.SSLCertVerificationError as error:
            raise StoreUnavailable(NOT_TRUSTED) from error
        except ssl.SSLError as error:
            raise StoreUnavailable(NO_TLS) from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise StoreUnavailable(NOT_THERE) from error
        except TimeoutError:
            raise
        except OSError as error:
            raise StoreUnavailable(NOT_REACHED) from error

    async def _open_tcp(self, host: str, port: int, connection: Connection) -> None:
        """The addresses of a name in turn, each for its share of the time."""
        addresses = await self._addresses(host)
        name = host if self._tls else None
        for left in range(len(addresses) - 1, -1, -1):
            try:
                async with asyncio.timeout(self._settings.connect_s / len(addresses)):
                    sock = await _socket(*addresses[left], port)
                break
            except OSError:  # TimeoutError is one
                if not left:
                    raise
        await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock, ssl=self._tls, server_hostname=name)

    async def _addresses(self, host: str) -> Sequence[Address]:
        """One look-up of a name at a time: one that hangs keeps a thread, and the next attempt waits for the same."""
        with suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [(family, host)]
        task = self._looking.get(host)
        if task is None:
            task = self._looking[host] = asyncio.create_task(_look_up(host), name="redis name look-up")
            task.add_done_callback(lambda done: self._looked(host, done))
        try:
            return await asyncio.shield(task)
        except (OSError, UnicodeError) as error:  # the latter: it cannot be a name
            raise StoreUnavailable(NO_NAME) from error

    def _looked(self, host: str, task: asyncio.Task[Sequence[Address]]) -> None:
        del self._looking[host]
        if not task.cancelled():
            task.exception()  # seen, whoever waits

    async def _introduce(self, connection: Connection) -> None:
        settings = self._settings
        if settings.password:
            who = (settings.username, settings.password) if settings.username else (settings.password,)
            try:
                await _asked(connection, "AUTH", *who)
            except StoreRefused as error:
                if not self._strangers:
                    raise StoreUnavailable(NOT_ADMITTED) from error
        if settings.database:
            try:
                await _asked(connection, "SELECT", settings.database)
            except StoreRefused as error:
                raise StoreUnavailable(NOT_ADMITTED if error.reply_code == "NOAUTH" else NO_DATABASE) from error


class _Nobody:
    """Owns a connection that is used for one question."""

    def lost(self, connection: Connection, why: str) -> None:
        """What waited has failed already."""

    def send_on(self, connection: Connection, call: Call, where: Moved | Ask) -> None:
        """Nothing that is asked so has a key."""
        call.fail(StoreRefused("MOVED", call.name))

    def unserved(self) -> None:
        """Told to whoever asked."""


async def _look_up(host: str) -> Sequence[Address]:
    """All its addresses, the one to try first last. OSError: there are none."""
    found = list(await system_look_up(host))
    if not found:
        raise OSError("no address")
    return found[::-1]


async def _socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _asked(connection: Connection, name: str, *words: Word) -> Reply:
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    connection.send(Single(future, pack(name, *words), name))
    return await future
