"""How a connection to an origin comes about: names, addresses, the gate before each of them, the egress proxy, TLS.

What was checked is what is connected to: a socket is made for one address, and there is none for an address inside the house
where the provider may not be there. Certificates are verified always; the machine's authorities count (`SSL_CERT_FILE` names
others). A name's addresses are tried in turn, the next when one failed or has not answered for a moment (RFC 8305).

With an egress proxy everything goes through it but providers with `allow_private`, which are inside. The proxy looks names up;
that they do not lead inside is then its office.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from urllib.parse import unquote, urlsplit

from n4n.core.addresses import is_public
from n4n.core.errors import StartFailed
from n4n.runtime.resolver import Address, Names, NotPublic, public_socket
from n4n.runtime.upstream.connection import Connection
from n4n.runtime.upstream.faults import INSIDE, NO_NAME, NOT_SECURE, PROXY_REFUSED, REFUSED, unsent
from n4n.runtime.upstream.pool import Origin

NEXT_ADDRESS_S = 0.25  # RFC 8305, section 5
_GRANTED = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9][ \r]")
_PROXY_HEAD = 16 << 10  # bytes of a proxy's answer to CONNECT


@dataclass(frozen=True, slots=True)
class Proxy:
    """An egress proxy. `authorization` is a line of a head, or nothing."""

    host: str
    port: int
    authorization: bytes = field(default=b"", repr=False)


def proxy_of(url: str) -> Proxy | None:
    """What N4N_EGRESS_PROXY says; '' is no proxy. StartFailed: it says nothing that can be used."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query or not url.isascii():
            raise ValueError
        port = parts.port or 3128
    except ValueError as error:
        raise StartFailed("N4N_EGRESS_PROXY must be http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT") from error
    if parts.username is None:
        return Proxy(parts.hostname, port)
    who = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(parts.hostname, port, b"proxy-authorization: Basic " + base64.b64encode(who))


def verifying() -> ssl.SSLContext:
    """TLS as a client: certificates and names are checked."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    """Makes connections."""

    def __init__(self, names: Names, proxy: Proxy | None) -> None:
        self._names, self._proxy = names, proxy
        self._tls = verifying()

    async def connect(self, origin: Origin, connection: Connection) -> None:
        """Connects it. UpstreamFault says why that failed; whoever calls bounds the time."""
        sock = await (self._direct(origin) if origin.allow_private or self._proxy is None else self._proxied(origin, self._proxy))
        loop, host = asyncio.get_running_loop(), origin.host.rstrip(".")
        tls, name = (self._tls, host) if origin.secure else (None, None)
        try:
            await loop.create_connection(lambda: connection, sock=sock, ssl=tls, server_hostname=name)
        except ssl.SSLError as error:
            raise unsent(NOT_SECURE) from error
        except OSError as error:
            raise unsent(REFUSED) from error

    async def _direct(self, origin: Origin) -> socket.socket:
        try:
            addresses = await self._addresses(origin.host)
        except OSError as error:
            raise unsent(NO_NAME) from error
        usable = addresses if origin.allow_private else [one for one in addresses if _is_public(one[1])]
        if not usable:
            raise unsent(INSIDE)
        try:
            return await _first(usable, origin.port, public_only=not origin.allow_private)
        except NotPublic as error:
            raise unsent(INSIDE) from error
        except OSError as error:
            raise unsent(REFUSED) from error

    async def _proxied(self, origin: Origin, proxy: Proxy) -> socket.socket:
        address = _literal(origin.host)
        if address is not None and not _is_public(address[1]):
            raise unsent(INSIDE)
        try:
            sock = await _first(await self._addresses(proxy.host), proxy.port, public_only=False)
        except OSError as error:
            raise unsent(PROXY_REFUSED) from error
        if origin.secure:
            try:
                await _tunnel(sock, origin, proxy)
            except OSError as error:
                raise unsent(PROXY_REFUSED) from error
        return sock

    async def _addresses(self, host: str) -> Sequence[Address]:
        address = _literal(host)
        return [address] if address is not None else await self._names.addresses(host)


def _literal(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (socket.AF_INET6 if address.version == 6 else socket.AF_INET), host


def _is_public(address: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(address))
    except ValueError:
        return False


async def _first(addresses: Sequence[Address], port: int, *, public_only: bool) -> socket.socket:
    """A socket that is connected to the first address that answers. OSError: none did."""
    if len(addresses) == 1:
        return await _connected(addresses[0], port, public_only=public_only)
    errors: list[OSError] = []
    running: set[asyncio.Task[socket.socket]] = set()
    due = iter(_in_turn(addresses))
    found: socket.socket | None = None
    try:
        while found is None:
            address = next(due, None)
            if address is not None:
                running.add(asyncio.create_task(_connected(address, port, public_only=public_only)))
            elif not running:
                raise errors[0]
            wait = NEXT_ADDRESS_S if address is not None else None
            done, running = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if isinstance(error := task.exception(), OSError):
                    errors.append(error)
                elif found is None:
                    found = task.result()
                else:
                    task.result().close()
        return found
    finally:
        await _give_up(running)


async def _give_up(running: set[asyncio.Task[socket.socket]]) -> None:
    for task in running:
        task.cancel()
    for late in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(late, socket.socket):
            late.close()


def _in_turn(addresses: Sequence[Address]) -> list[Address]:
    """One of each family after the other, beginning with the family that came first."""
    first = [one for one in addresses if one[0] == addresses[0][0]]
    other = [one for one in addresses if one[0] != addresses[0][0]]
    return [one for pair in zip_longest(first, other) for one in pair if one is not None]


async def _connected(address: Address, port: int, *, public_only: bool) -> socket.socket:
    family, host = address
    kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
    sock = public_socket((family, kind, protocol, "", (host, port))) if public_only else socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnel(sock: socket.socket, origin: Origin, proxy: Proxy) -> None:
    """Asks the proxy for a way to the origin (RFC 9110, section 9.3.6). OSError: there is none."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    target = f"{host}:{origin.port}".encode()
    lines = [b"CONNECT " + target + b" HTTP/1.1", b"host: " + target, *([proxy.authorization] if proxy.authorization else []), b"", b""]
    try:
        await _asked(sock, b"\r\n".join(lines))
    except BaseException:
        sock.close()
        raise


async def _asked(sock: socket.socket, request: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, request)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(sock, 4096)
        head += piece
        if not piece or len(head) > _PROXY_HEAD:
            raise OSError("the proxy did not answer")
    if not _GRANTED.match(head) or not head.endswith(b"\r\n\r\n"):  # what follows the head would come from nobody we know yet
        raise OSError("the proxy made no tunnel")
