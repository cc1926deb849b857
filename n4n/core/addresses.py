"""Which provider addresses a catalog may name: http or https, and nothing inside the house unless it is allowed.

Loopback, link-local, private and otherwise not globally routed addresses need `allow_private: true` on the provider.
Spellings of an address that only a C library understands (decimal, octal, hexadecimal, short forms) are refused always.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?\Z")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?\Z")
_INSIDE = ("localhost", "local", "internal", "localdomain", "home.arpa")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def url_problem(url: str, *, allow_private: bool) -> str | None:
    """What is wrong with a base URL, as words to follow the field's name; None when it may be used."""
    if any(ord(c) <= 32 or ord(c) == 127 or c == "\\" for c in url):
        return "must not hold spaces, backslashes or control characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL; write https://HOST/PATH"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user name or password; put the key in an account's credential"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "must not hold a query or fragment"
    if port == 0:
        return "must not name port 0"
    host = (parts.hostname or "").lower()
    if not host:
        return "names no host"
    return _host_problem(host, allow_private)


def _host_problem(host: str, allow_private: bool) -> str | None:
    try:
        address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None:
        if allow_private or is_public(address):
            return None
        return "is a loopback, link-local or private address; set allow_private: true on the provider to allow it"
    if _NUMERIC.match(host):
        return "must write an IPv4 address as four decimal numbers"
    if not _HOST.match(host):
        return "names a host that is not valid"
    name = host.rstrip(".")
    if not allow_private and (name in _INSIDE or name.endswith(tuple("." + zone for zone in _INSIDE))):
        return "is a local host name; set allow_private: true on the provider to allow it"
    return None


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is globally routed unicast; IPv4 inside IPv6 is judged by the IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
