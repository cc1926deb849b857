"""Where Redis is and how long it may take: `N4N_REDIS_URL`, read once and checked.

    redis://[USER:PASSWORD@]HOST[:6379][,HOST…][/DB]              a server, or any nodes of a cluster: which, it says itself
    rediss://…                                                    the same with TLS; certificate and name are verified
    unix://[USER:PASSWORD@]/PATH[?db=DB]                          a socket of this machine, the path percent-encoded
    redis+sentinel://[USER:PASSWORD@]HOST[:26379][,HOST…]/NAME[/DB]     ask Sentinels where the master NAME is (rediss+sentinel://: TLS)

Options, as redis-py spells them: `db`, `socket_timeout` (seconds, instead of 0.05), `ssl_ca_certs` (a PEM file that is trusted instead of
the machine's authorities). Any other is refused: an option that is silently dropped is how a limiter comes to wait for ever.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from n4n.core.errors import StartFailed

DEADLINE_S = 0.05  # of one operation, from the caller's view (design, static stability)
CONNECT_S = 1.0  # a connection, TLS and AUTH; nobody waits for it
REDIS_PORT, SENTINEL_PORT = 6379, 26379
_OPTIONS = ("db", "socket_timeout", "ssl_ca_certs")
_SHAPES = "redis://HOST:PORT/DB, rediss://…, unix:///PATH or redis+sentinel://HOST:PORT/NAME"


@dataclass(frozen=True, slots=True)
class Tcp:
    """A host and a port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Unix:
    """A socket's path."""

    path: str


Place = Tcp | Unix


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`places` are tried in turn; with `master` they are Sentinels. Bounds are those of one connection."""

    places: tuple[Place, ...]
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    database: int = 0
    master: str = ""
    tls: bool = False
    ca: str = ""  # a PEM file; empty: the machine's authorities
    deadline_s: float = DEADLINE_S
    connect_s: float = CONNECT_S
    most_pending: int = 4096  # commands without an answer; beyond it calls are refused at once
    most_pending_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        if not self.places or self.database < 0 or self.deadline_s <= 0 or self.connect_s <= 0 or self.most_pending < 1:
            raise StartFailed("a store needs a place, a database of 0 or more, and times and bounds above 0")

    def tls_context(self) -> ssl.SSLContext | None:
        """TLS as a client, certificates and names verified; None: without. StartFailed: the authorities' file cannot be used."""
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:  # ssl.SSLError is one
            raise StartFailed(
                f"N4N_REDIS_URL: ssl_ca_certs must name a file of PEM certificates: {error.strerror or 'it is none'}"
            ) from error


def settings_of(url: str, *, deadline_s: float = DEADLINE_S) -> StoreSettings:
    """What N4N_REDIS_URL says. StartFailed in one line, without the URL, where it says nothing that can be used."""
    try:
        return _read(url, deadline_s)
    except ValueError as error:
        raise StartFailed(f"N4N_REDIS_URL must be {_SHAPES}") from error


def _read(url: str, deadline_s: float) -> StoreSettings:
    parts = urlsplit(url)
    options = _options(parts.query)
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    master, database = "", options.get("db", "")
    places: tuple[Place, ...]
    match parts.scheme:
        case "unix" if not hosts and parts.path and "%00" not in parts.path:
            places = (Unix(unquote(parts.path)),)
        case "redis" | "rediss" if hosts:
            places = _tcp(hosts, REDIS_PORT)
            database = parts.path.strip("/") or database
        case "redis+sentinel" | "rediss+sentinel" if hosts:
            places = _tcp(hosts, SENTINEL_PORT)
            master, _, after = parts.path.strip("/").partition("/")
            database = after or database
            if not master:
                raise ValueError("no name of a master")
        case _:
            raise ValueError("no such scheme, or no host")
    return StoreSettings(
        places,
        unquote(name),
        unquote(password),
        _number(database or "0"),
        unquote(master),
        parts.scheme.startswith("rediss"),
        os.path.expanduser(options.get("ssl_ca_certs", "")),
        float(options["socket_timeout"]) if "socket_timeout" in options else deadline_s,
    )


def _options(query: str) -> Mapping[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    for option in options:
        if option not in _OPTIONS:
            if "@" in query:  # then it is the rest of a password
                raise StartFailed("N4N_REDIS_URL has a ? in its user or password; write it as %3F")
            raise StartFailed(f"N4N_REDIS_URL: the option {option[:40]!r} is not known; there are {', '.join(_OPTIONS)}")
    return options


def _tcp(hosts: str, default_port: int) -> tuple[Tcp, ...]:
    return tuple(_one(host.strip(), default_port) for host in hosts.split(","))


def _one(host: str, default_port: int) -> Tcp:
    parts = urlsplit(f"//{host}")
    if not parts.hostname or parts.path or parts.username is not None:
        raise ValueError("no host")
    return Tcp(parts.hostname, parts.port or default_port)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("no number")
    return int(text)
