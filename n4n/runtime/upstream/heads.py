"""Requests as bytes. Everything that calls to one endpoint through one account have in common is put together once."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from n4n.core.chat import UpstreamRequest
from n4n.runtime.upstream.faults import BAD_HEADER, NO_ADDRESS, unsent
from n4n.runtime.upstream.pool import Origin

MOST_HEADS = 1024  # endpoints times accounts times two, for streams and whole answers; many more than a router has in use
_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_URL = re.compile(r"[!-~]+\Z")
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?\Z")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, repr=False)
class Head:
    """Where a request goes, and the beginning of it: all but the values of x-request-id and content-length. Holds a key."""

    origin: Origin
    start: bytes
    proxied: bool  # whether a proxy reads it


class Heads:
    """The heads in use. `proxied`: what stands in the head of a plain request that goes through the egress proxy."""

    def __init__(self, proxied: bytes | None = None) -> None:
        self._proxied = proxied
        self._known: dict[tuple[str, tuple[tuple[str, str], ...], bool], Head] = {}

    def of(self, request: UpstreamRequest) -> Head:
        """The head of a request. UpstreamFault: it cannot be sent at all."""
        if request.signing is not None or request.method != "POST":  # good for this call alone, or seldom
            return self._made(request)
        key = (request.url, request.headers, request.allow_private)
        head = self._known.get(key)
        if head is None:
            if len(self._known) >= MOST_HEADS:
                self._known.clear()
            head = self._known[key] = self._made(request)
        return head

    def forget(self) -> None:
        """Keys among them may be of accounts that are no more."""
        self._known.clear()

    def _made(self, request: UpstreamRequest) -> Head:
        origin, authority, path = parted(request.url, allow_private=request.allow_private)
        lines = [b"host: " + authority, *(_line(name, value) for name, value in request.headers), b"accept-encoding: identity"]
        proxied = self._proxied is not None and not origin.secure and not origin.allow_private
        if proxied:
            path = b"http://" + authority + path
            lines += [self._proxied] if self._proxied else []
        return Head(origin, request.method.encode() + b" " + path + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\nx-request-id: ", proxied)


def parted(url: str, *, allow_private: bool) -> tuple[Origin, bytes, bytes]:
    """Origin, authority and path of an absolute URL. UpstreamFault: it is none."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
        usual = _PORTS[parts.scheme]
        if not host or port == 0 or not _URL.match(url):
            raise ValueError
        if ":" not in host and not _HOST.match(host):
            raise ValueError
        shown = f"[{ipaddress.IPv6Address(host)}]" if ":" in host else host
    except (KeyError, ValueError) as error:
        raise unsent(NO_ADDRESS) from error
    authority = shown if port in (None, usual) else f"{shown}:{port}"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Origin(parts.scheme == "https", host, usual if port is None else port, allow_private), authority.encode(), path.encode()


def _line(name: str, value: str) -> bytes:
    raw, said = name.encode(), value.encode()
    if not _NAME.match(raw) or _NOT_IN_VALUES.search(said):
        raise unsent(BAD_HEADER)
    return raw + b": " + said
