"""Provider addresses: what may be named freely, what only with `allow_private`, and what never."""

from __future__ import annotations

import ipaddress

import pytest

from n4n.core.addresses import is_public, url_problem

INSIDE = [
    "http://localhost", "http://LOCALHOST:8000/v1", "http://localhost.", "http://a.localhost/v1", "http://127.0.0.1",
    "http://127.1.2.3:80", "http://0.0.0.0", "http://10.0.0.1/v1", "http://172.16.0.1", "http://172.31.255.255", "http://192.168.1.1",
    "http://169.254.169.254/latest/meta-data", "http://100.64.0.1", "http://192.0.0.1", "http://192.0.2.5", "http://198.18.0.1",
    "http://198.51.100.7", "http://203.0.113.9", "http://192.88.99.1", "http://224.0.0.1", "http://240.0.0.1", "http://255.255.255.255",
    "http://[::1]:8000", "http://[::]", "http://[::ffff:127.0.0.1]", "http://[::ffff:a9fe:a9fe]", "http://[::127.0.0.1]",
    "http://[64:ff9b::7f00:1]", "http://[64:ff9b::10.0.0.1]", "http://[64:ff9b:1::1]", "http://[2002:7f00:1::]", "http://[2002:a00:1::1]",
    "http://[2001::1]", "http://[2001:db8::1]", "http://[3fff::1]", "http://[fc00::1]", "http://[fd12:3456::1]", "http://[fe80::1]",
    "http://[fe80::1%25eth0]", "http://[fec0::1]", "http://[ff02::1]", "http://[100::1]", "http://[4000::1]", "http://[2600::1%25eth0]",
    "http://metadata.google.internal", "http://printer.local", "http://nas.lan", "http://x.home.arpa", "http://box.localdomain",
    "http://redis:6379", "http://vllm/v1", "http://wiki.corp", "http://wiki.intranet.",
]  # fmt: skip

NEVER = [
    "ftp://api.example.com", "file:///etc/passwd", "gopher://127.0.0.1", "javascript:alert(1)", "//api.example.com", "api.example.com/v1",
    "",
    "http://", "https:///v1", "http:/api.example.com", "http://:8080", "http://?x", "http://api.example.com:0", "http://api.example.com:99999",
    "http://api.example.com:port", "http://user@api.example.com", "http://user:pw@api.example.com", "http://@api.example.com",
    "http://api.example.com@127.0.0.1", "https://api.example.com/v1?key=x", "https://api.example.com/v1#x", "https://api.example.com/v1?",
    "http://2130706433", "http://0x7f000001", "http://0x7f.1", "http://017700000001", "http://0177.0.0.1", "http://127.1", "http://127.0.1",
    "http://0", "http://0x", "http://127.0.0.1.", "http://1.2.3.4.", "http://[::1", "http://::1", "http://[v1.x]", "http://[127.0.0.1]",
    "http://api.example.com\\@127.0.0.1", "http://api example.com", "http://api.example.com/\n", "http://\tapi.example.com",
    "http://api.example.com\x00", "http://api.example.com\x7f", "http://１２７.0.0.1", "http://ⓛocalhost.example.com", "http://\u212aube.example.com",
    "http://127.0.0.1%2f.example.com", "http://-a.example.com", "http://a-.example.com", "http://a..example.com", "http://.example.com",
    "http://api.example.com..", "http://" + "a" * 64 + ".com", "http://" + "a." * 130 + "com", "https://api.example.com/{", "https://api.example.com/<x>",
]  # fmt: skip

OUTSIDE = [
    "https://api.openai.com/v1", "http://api.example.com", "HTTPS://API.EXAMPLE.COM/v1", "https://api.example.com:8443/v1", "https://8.8.8.8/v1",
    "https://my-resource.openai.azure.com/openai/v1", "https://bedrock-runtime.eu-west-1.amazonaws.com", "https://under_score.example.com",
    "https://[2606:4700::1111]/v1", "https://[2002:808:808::1]", "https://[64:ff9b::8.8.8.8]", "https://[::ffff:8.8.8.8]", "https://api.example.com.",
    "https://api.example.com:", "https://localhost.example.com", "https://10.example.com", "https://1.2.3.4.example.com",
]  # fmt: skip


@pytest.mark.parametrize("url", INSIDE)
def test_an_address_inside_the_house_needs_the_providers_permission(url: str) -> None:
    problem = url_problem(url, allow_private=False)

    assert problem is not None and "allow_private: true" in problem
    assert url_problem(url, allow_private=True) is None


@pytest.mark.parametrize("url", NEVER)
def test_an_odd_spelling_is_refused_whatever_is_allowed(url: str) -> None:
    assert url_problem(url, allow_private=False)
    assert url_problem(url, allow_private=True)


@pytest.mark.parametrize("url", OUTSIDE)
def test_an_address_on_the_internet_may_be_named(url: str) -> None:
    assert url_problem(url, allow_private=False) is None


@pytest.mark.parametrize(("url", "words"), [
    ("ftp://api.example.com", "must begin with http:// or https://"),
    ("http://u:secret@api.example.com", "must not hold a user name or password"),
    ("https://api.example.com?key=secret", "must not hold a query"),
    ("https://[::1", "is not a URL"),
    ("https://api.example.com:0", "must not name port 0"),
    ("https://", "names no host"),
    ("http://0x7f000001", "must write an IPv4 address as four decimal numbers"),
    ("http://a..b", "names a host that is not valid"),
    ("http://printer.local", "is a local host name"),
    ("http://[::1]", "is a loopback, link-local or private address"),
])  # fmt: skip
def test_a_refusal_says_what_is_wrong_without_repeating_the_url(url: str, words: str) -> None:
    problem = url_problem(url, allow_private=False)

    assert problem is not None and problem.startswith(words)
    assert "secret" not in problem


def test_an_address_is_public_where_the_internet_routes_it() -> None:
    assert is_public(ipaddress.ip_address("1.1.1.1"))
    assert is_public(ipaddress.ip_address("2606:4700::1111"))
    assert not is_public(ipaddress.ip_address("224.0.0.251"))
    assert not is_public(ipaddress.ip_address("ff0e::1"))
