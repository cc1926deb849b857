"""Which provider addresses a catalog may name: http or https, and nothing inside the house unless it is allowed.

Loopback, link-local, private and otherwise not globally routed addresses, and names that only a local network knows, need
`allow_private: true` on the provider. Spellings of an address that only a C library understands (decimal, octal,
hexadecimal, short forms) are refused always. Registries: IANA special-purpose address registries, RFC 6890, RFC 6762, RFC 8375.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?\Z")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?\Z")
_INSIDE = ("localhost", "local", "internal", "localdomain", "home.arpa", "lan", "home", "corp", "private", "intranet")
_PATH_FORBIDS = frozenset('{}<>"`^|')
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out
_NEVER_GLOBAL = (
    ipaddress.IPv6Network("2001::/23"),  # protocol assignments, Teredo among them
    ipaddress.IPv6Network("2001:db8::/32"),  # documentation
    ipaddress.IPv6Network("3fff::/20"),  # documentation
    ipaddress.IPv4Network("192.88.99.0/24"),  # relays to 6to4, withdrawn
    ipaddress.IPv4Network("192.0.0.0/24"),  # protocol assignments; a cloud's metadata are at .192, older Pythons call it global
)


def url_problem(url: str, *, allow_private: bool) -> str | None:
    """What is wrong with a base URL, as words to follow the field's name; None when it may be used."""
    if not url.isascii() or any(c <= " " or c in "\\\x7f" for c in url):
        return "must be ASCII without spaces, backslashes or control characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL; write https://HOST/PATH"
    if port == 0:
        return "must not name port 0"
    return _form_problem(url, parts) or _host_problem(parts, allow_private)


def _form_problem(url: str, parts: SplitResult) -> str | None:
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user name or password; put the key in an account's credential"
    if "?" in url or "#" in url:
        return "must not hold a query or fragment"
    if _PATH_FORBIDS.intersection(url):
        return "must not hold braces, quotes or angle brackets"
    return None


def _host_problem(parts: SplitResult, allow_private: bool) -> str | None:
    host = (parts.hostname or "").lower()
    if not host:
        return "names no host"
    address = _address(host)
    if "[" in parts.netloc and not isinstance(address, ipaddress.IPv6Address):
        return "must hold an IPv6 address within its brackets"
    if address is not None:
        if allow_private or is_public(address):
            return None
        return "is a loopback, link-local or private address; set allow_private: true on the provider to allow it"
    if _NUMERIC.match(host):
        return "must write an IPv4 address as four decimal numbers"
    if not _HOST.match(host) or len(host) > 253:
        return "names a host that is not valid"
    if not allow_private and _is_local_name(host.rstrip(".")):
        return "is a local host name; set allow_private: true on the provider to allow it"
    return None


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_local_name(name: str) -> bool:
    """A name without a dot, or of a zone that no public resolver serves."""
    return "." not in name or name.endswith(tuple("." + zone for zone in _INSIDE))


def is_public(address: Address) -> bool:
    """Whether an address is globally routed unicast; IPv4 inside IPv6 is judged by the IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST or address.scope_id is not None:
            return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _NEVER_GLOBAL)
