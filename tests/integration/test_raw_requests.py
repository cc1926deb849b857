"""Malformed, ambiguous and smuggling requests, byte by byte, through balancer and router: what the provider sees is what was planned."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.balancer import Balancer
from tests.support.raw import RawClient
from tests.support.router import KEY, PROVIDER_SECRET, catalog, running_router
from tests.support.script import Hang
from tests.support.upstream import ScriptedUpstream

ASKED = b'{"model":"m","messages":[{"role":"user","content":"ping"}]}'
SENT = {"model": "scripted-model", "messages": [{"role": "user", "content": "ping"}]}
CHAT = b"POST /v1/chat/completions HTTP/1.1"
AUTH = b"Authorization: Bearer " + KEY.encode()
CHUNKED = b"Transfer-Encoding: chunked"
MODELS = b"GET /v1/models HTTP/1.1\r\nHost: n4n\r\n" + AUTH + b"\r\n\r\n"
UPSTREAM_HEADERS = {"host", "content-type", "accept", "authorization", "x-request-id", "accept-encoding", "content-length"}


def ask(*fields: bytes, line: bytes = CHAT, host: bytes | None = b"Host: n4n", auth: bytes = AUTH, body: bytes = ASKED) -> bytes:
    """A chat request with these header lines and its right content-length."""
    return framed(*fields, b"Content-Length: %d" % len(body), line=line, host=host, auth=auth, body=body)


def framed(*fields: bytes, line: bytes = CHAT, host: bytes | None = b"Host: n4n", auth: bytes = AUTH, body: bytes = ASKED) -> bytes:
    """A chat request with these header lines and no other framing."""
    lines = [line, *([host] if host is not None else []), auth, b"Content-Type: application/json", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunks(*pieces: bytes, size: bytes = b"%x", end: bytes = b"\r\n", last: bytes = b"0\r\n\r\n") -> bytes:
    """A chunked body; `size` is how a chunk's size is written."""
    return b"".join((size % len(piece) if b"%" in size else size) + end + piece + b"\r\n" for piece in pieces) + last


def chunked(body: bytes, *fields: bytes) -> bytes:
    """A chat request with this as its chunked body."""
    return framed(*fields, CHUNKED, body=body)


# One answer, then the connection is closed; what follows on it is not read.
REFUSED: dict[str, tuple[bytes, int]] = {
    # where does the body end?
    "length and chunks": (ask(CHUNKED, body=chunks(ASKED)), 400),
    "length 0 and chunks": (framed(b"Content-Length: 0", CHUNKED, body=chunks(ASKED)), 400),
    "chunks and length": (framed(CHUNKED, b"Content-Length: 5", body=chunks(ASKED)), 400),
    "two lengths that agree": (ask(b"Content-Length: %d" % len(ASKED)), 400),
    "two lengths that differ": (ask(b"Content-Length: 3"), 400),
    "a list of lengths": (framed(b"Content-Length: 59, 59"), 400),
    "a negative length": (framed(b"Content-Length: -1"), 400),
    "a length with a plus": (framed(b"Content-Length: +%d" % len(ASKED)), 400),
    "a hexadecimal length": (framed(b"Content-Length: 0x3b"), 400),
    "a length with a space": (framed(b"Content-Length: 5 9"), 400),
    "no length": (framed(b"Content-Length:"), 400),
    "a length beyond 64 bits": (framed(b"Content-Length: 18446744073709551675"), 400),
    "coded then chunked": (framed(b"Transfer-Encoding: gzip, chunked", body=chunks(ASKED)), 400),
    "chunked then coded": (framed(b"Transfer-Encoding: chunked, gzip", body=chunks(ASKED)), 400),
    "chunked twice": (framed(CHUNKED, CHUNKED, body=chunks(ASKED)), 400),
    "chunked and identity": (framed(b"Transfer-Encoding: identity", CHUNKED, body=chunks(ASKED)), 400),
    "identity": (ask(b"Transfer-Encoding: identity"), 400),
    "nearly chunked": (framed(b"Transfer-Encoding: xchunked", body=chunks(ASKED)), 400),
    "chunked behind a vertical tab": (framed(b"Transfer-Encoding: \x0bchunked", body=chunks(ASKED)), 400),
    "chunked in quotes": (framed(b'Transfer-Encoding: "chunked"', body=chunks(ASKED)), 400),
    "chunked behind a space before the colon": (ask(b"Transfer-Encoding : chunked"), 400),
    "chunked on a folded line": (ask(b"Transfer-Encoding:\r\n chunked"), 400),
    "chunked in HTTP/1.0": (framed(CHUNKED, line=CHAT[:-1] + b"0", body=chunks(ASKED)), 400),
    "a chunk size that is none": (chunked(chunks(ASKED, size=b"zz")), 400),
    "a negative chunk size": (chunked(chunks(ASKED, size=b"-3b")), 400),
    "a chunk size with a plus": (chunked(chunks(ASKED, size=b"+3b")), 400),
    "a chunk size with 0x": (chunked(chunks(ASKED, size=b"0x3b")), 400),
    "a chunk size beyond 64 bits": (chunked(chunks(ASKED, size=b"1000000000000003b")), 400),
    "an empty chunk size": (chunked(chunks(ASKED, size=b"")), 400),
    "a chunk size before a space": (chunked(chunks(ASKED, size=b"%x ")), 400),
    "a chunk size before a bare line feed": (chunked(chunks(ASKED, end=b"\n")), 400),
    "a chunk that is longer than its size": (chunked(b"5\r\n" + ASKED + b"\r\n0\r\n\r\n"), 400),
    "a trailer that is none": (chunked(chunks(ASKED, last=b"0\r\nno trailer\r\n\r\n")), 400),
    # where does a line end, and what may stand in it?
    "bare line feeds": (ask().replace(b"\r\n", b"\n"), 400),
    "one bare line feed": (ask(b"A: b\nContent-Length: 3"), 400),
    "a bare carriage return": (ask(b"A: b\rContent-Length: 3"), 400),
    "NUL in a value": (ask(b"A: b\0c"), 400),
    "a control byte in a value": (ask(b"A: b\x01c"), 400),
    "DEL in a value": (ask(b"A: b\x7fc"), 400),
    "NUL in a name": (ask(b"A\0: b"), 400),
    "a control byte in x-request-id": (ask(b"X-Request-Id: a\x1bb"), 400),
    "a space before the colon": (ask(b"A : b"), 400),
    "a space in a name": (ask(b"A B: c"), 400),
    "no colon": (ask(b"Abc"), 400),
    "no name": (ask(b": b"), 400),
    "a space before the first header": (ask(host=b" Host: n4n"), 400),
    "a folded line": (ask(b"A: b\r\n c"), 400),
    # who is asked for what?
    "no host": (ask(host=None), 400),
    "two hosts": (ask(b"Host: elsewhere"), 400),
    "a host with a space": (ask(host=b"Host: a b"), 400),
    "a host with a slash": (ask(host=b"Host: a/b"), 400),
    "an address without a scheme": (ask(line=b"POST elsewhere:443 HTTP/1.1"), 400),
    "a star": (ask(line=b"POST * HTTP/1.1"), 400),
    "a fragment": (ask(line=b"POST /v1/chat/completions#x HTTP/1.1"), 400),
    "a space in the URL": (ask(line=b"POST /v1/chat/com pletions HTTP/1.1"), 400),
    "a control byte in the URL": (ask(line=b"POST /v1/chat\x01 HTTP/1.1"), 400),
    "bytes above ASCII in the URL": (ask(line=b"POST /v1/\xff HTTP/1.1"), 400),
    "tabs in the request line": (ask(line=b"POST\t/v1/chat/completions\tHTTP/1.1"), 400),
    "CONNECT": (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: n4n\r\n\r\nSSH-2.0", 404),
    "CONNECT without a port": (b"CONNECT / HTTP/1.1\r\nHost: n4n\r\n\r\n", 404),
    "a method in lower case": (ask(line=b"post /v1/chat/completions HTTP/1.1"), 400),
    "a method that does not exist": (ask(line=b"BREW /v1/chat/completions HTTP/1.1"), 400),
    # which protocol is this?
    "HTTP/0.9 with a head": (b"GET /v1/models\r\n\r\n", 400),
    "HTTP/2.0 as HTTP/1.1": (ask(line=b"POST /v1/chat/completions HTTP/2.0"), 400),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/1.2": (ask(line=b"POST /v1/chat/completions HTTP/1.2"), 400),
    "HTTP/1.10": (ask(line=b"POST /v1/chat/completions HTTP/1.10"), 400),
    "no version number": (ask(line=b"POST /v1/chat/completions HTTP/x"), 400),
    "another protocol": (ask(line=b"POST /v1/chat/completions RTSP/1.0"), 400),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 50, 400),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", 400),
    "noise": (b"\r\n\r\n\x00\x01noise\r\n\r\n", 400),
    # how much?
    "a long URL": (ask(line=b"POST /v1/chat/completions?a=" + b"b" * 9000 + b" HTTP/1.1"), 414),
    "a long header": (ask(b"A: " + b"b" * 17_000), 431),
    "a long header name": (ask(b"A" * 17_000 + b": b"), 431),
    "many headers": (ask(*[b"A%d: b" % number for number in range(101)]), 431),
    "many long headers": (ask(*[b"A%d: " % number + b"b" * 8000 for number in range(9)]), 431),
    "a header of a megabyte": (ask(b"A: " + b"b" * 1_000_000), 431),
    "a URL of a megabyte": (ask(line=b"POST /" + b"b" * 1_000_000 + b" HTTP/1.1"), 431),
}

# One answer that refuses; the request was well-formed, and so is what follows on its connection.
DECLINED: dict[str, tuple[bytes, int]] = {
    "TRACE": (b"TRACE /v1/models HTTP/1.1\r\nHost: n4n\r\n" + AUTH + b"\r\n\r\n", 404),
    "OPTIONS of everything": (b"OPTIONS * HTTP/1.1\r\nHost: n4n\r\n\r\n", 404),
    "another method": (ask(line=b"PUT /v1/chat/completions HTTP/1.1"), 404),
    "a path with dots": (ask(line=b"POST /v1/x/../chat/completions HTTP/1.1"), 404),
    "a path with coded dots": (ask(line=b"POST /v1/%2e%2e/v1/chat/completions HTTP/1.1"), 404),
    "a path with coded slashes": (ask(line=b"POST /v1%2fchat%2fcompletions HTTP/1.1"), 404),
    "a path with coded letters": (b"GET /%6detrics HTTP/1.1\r\nHost: n4n\r\n\r\n", 404),
    "a path with two slashes": (ask(line=b"POST //v1/chat/completions HTTP/1.1"), 404),
    "a path with a parameter": (ask(line=b"POST /v1/chat/completions;a=b HTTP/1.1"), 404),
    "percent signs that code nothing": (ask(line=b"POST /v1/%zz HTTP/1.1"), 404),
    "a URL of elsewhere without a path": (ask(line=b"POST http://elsewhere HTTP/1.1"), 404),
    "control bytes in a query": (ask(line=b"POST /v1/chat/completions?x-request-id=a%0d%0aA:b HTTP/1.1"), 400),
    "NUL in a query": (ask(line=b"POST /v1/chat/completions?x-n4n-routing=region%3deu%00 HTTP/1.1"), 400),
    "two request ids": (ask(b"X-Request-Id: a", b"X-Request-Id: b"), 400),
    "two directive headers": (ask(b"X-N4n-Routing: region=eu", b"X-N4n-Routing: sort=cost"), 400),
    "two keys": (ask(AUTH), 401),
    "a key that is not ASCII": (ask(auth=b"Authorization: Bearer \xff\xfe"), 401),
    "a key in the query": (ask(auth=b"A: b", line=b"POST /v1/chat/completions?authorization=Bearer%20" + KEY.encode() + b" HTTP/1.1"), 401),
    "a request in a body": (ask(body=ASKED + b"\r\n\r\n" + ask()), 400),
    "a body that is not JSON": (ask(body=b"\xff\xfe"), 400),
    "no body": (framed(body=b""), 400),
    "a body that is not gzip": (ask(b"Content-Encoding: gzip"), 400),
    "Brotli": (ask(b"Content-Encoding: br"), 415),
    "gzip twice": (ask(b"Content-Encoding: gzip, gzip"), 415),
    "another expectation": (ask(b"Expect: 200-ok"), 417),
}  # fmt: skip

# Served as meant, so many times; the connection stays.
SERVED: dict[str, tuple[bytes, int]] = {
    "a plain request": (ask(), 1),
    "chunks": (chunked(chunks(ASKED)), 1),
    "chunks of one byte": (chunked(chunks(*[bytes([byte]) for byte in ASKED])), 1),
    "chunked in capitals": (framed(b"TRANSFER-ENCODING: CHUNKED", body=chunks(ASKED)), 1),
    "a chunk size with zeros": (chunked(chunks(ASKED, size=b"0000%x")), 1),
    "a chunk extension": (chunked(chunks(ASKED, size=b"%x;a=b")), 1),
    "a trailer that looks like a directive": (chunked(chunks(ASKED, last=b"0\r\nX-N4n-Routing: region=mars\r\n\r\n")), 1),
    "two in a row": (ask() + ask(), 2),
    "three of both framings in a row": (ask() + chunked(chunks(ASKED)) + ask(), 3),
    "empty lines before": (b"\r\n\r\n" + ask(), 1),
    "a tab in a value": (ask(b"A: b\tc"), 1),
    "bytes above ASCII in a value": (ask(b"A: \xff\xfe"), 1),
    "an empty host": (ask(host=b"Host:"), 1),
    "a URL of elsewhere": (ask(line=b"POST http://elsewhere:1/v1/chat/completions HTTP/1.1"), 1),
    "an upgrade to WebSocket": (ask(b"Upgrade: websocket", b"Connection: Upgrade"), 1),
    "an upgrade to HTTP/2": (ask(b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABk"), 1),
    "hop-by-hop headers": (ask(b"Connection: keep-alive, x-hop", b"X-Hop: 1", b"TE: trailers", b"Proxy-Authorization: Basic eA=="), 1),
    "forwarding headers": (ask(b"X-Forwarded-For: 10.0.0.1", b"Forwarded: for=10.0.0.1", b"X-Original-Url: /metrics", b"Via: 1.1 x"), 1),
    "another method by header": (ask(b"X-HTTP-Method-Override: DELETE"), 1),
    "underscores for hyphens": (ask(b"Content_Length: 3", b"X_N4N_Routing: region=mars", b"Transfer_Encoding: chunked"), 1),
    "cookies": (ask(b"Cookie: a=b", b"Cookie: c=d"), 1),
    "an expectation that came with its body": (ask(b"Expect: 100-continue"), 1),
}  # fmt: skip


async def through(content: bytes, answers: int, *, then_models: bool) -> tuple[list[tuple[int, dict]], ScriptedUpstream, list[dict]]:
    """Sends bytes through a balancer and a router; the answers, the upstream, the log. Afterwards the connection is closed or serves on."""
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house, Balancer([house.port]) as balancer:
        async with await RawClient.to(balancer.port) as client:
            client.send(content)
            found = [await client.answer() for _ in range(answers)]
            if then_models:
                client.send(MODELS)
                models = await client.answer()
                assert models is not None
                assert json.loads(models.body)["object"] == "list"
            else:
                assert await client.closed()
        log = (await house.logged(answers))[:answers]
    assert all(one is not None for one in found), "closed without an answer"
    return [(one.status, one.error if one.status >= 400 else json.loads(one.body)) for one in found if one is not None], upstream, log


@pytest.mark.parametrize("form", REFUSED)
async def test_a_form_that_can_be_read_in_two_ways_is_refused_and_its_connection_closed(form):
    content, status = REFUSED[form]
    ((told, error),), upstream, (line,) = await through(content + ask() + MODELS, 1, then_models=False)
    assert told == status == line["status"]
    assert error["code"] == line["error"] != "internal_error"
    assert line["outcome"] == "rejected"
    assert upstream.connections == 0
    assert KEY not in f"{error} {line}"


@pytest.mark.parametrize("form", DECLINED)
async def test_a_request_that_is_not_served_is_declined_and_its_connection_stays(form):
    content, status = DECLINED[form]
    ((told, error),), upstream, (line,) = await through(content, 1, then_models=True)
    assert told == status == line["status"]
    assert error["code"] != "internal_error"
    assert upstream.connections == 0
    assert KEY not in f"{error} {line}"


@pytest.mark.parametrize("form", SERVED)
async def test_what_is_served_reaches_the_provider_once_and_as_it_was_meant(form):
    content, times = SERVED[form]
    answers, upstream, _ = await through(content, times, then_models=True)
    assert [status for status, _ in answers] == [200] * times
    assert [call.json for call in upstream.calls] == [SENT] * times
    for call in upstream.calls:
        assert (call.method, call.path) == ("POST", "/v1/chat/completions")
        assert [name.lower() for name, _ in call.headers if name.lower() not in UPSTREAM_HEADERS] == []
        assert len(call.headers) == len(UPSTREAM_HEADERS)
        assert call.header("authorization") == f"Bearer {PROVIDER_SECRET}"
        assert call.header("host") == f"127.0.0.1:{upstream.port}"


def test_the_corpus_is_as_large_as_it_should_be():
    assert len(REFUSED) + len(DECLINED) >= 60


async def test_every_piece_of_a_request_may_come_alone():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            for byte in b"\r\n" + chunked(chunks(ASKED)) + ask():
                client.send(bytes([byte]))
                await client.writer.drain()
            assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    assert [call.json for call in upstream.calls] == [SENT, SENT]


async def test_an_old_client_is_answered_in_its_own_way():
    old = b"GET /v1/models HTTP/1.0\r\n" + AUTH + b"\r\n"
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(old + b"\r\n")
            answer = await client.answer()
            assert (answer.version, answer.status) == ("HTTP/1.0", 200)
            assert await client.closed()
        async with await RawClient.to(house.port) as client:
            client.send(old + b"Connection: keep-alive\r\n\r\n" + MODELS)
            assert [(await client.answer()).status for _ in range(2)] == [200, 200]


async def test_a_client_that_waits_is_told_to_send_its_body_and_one_that_must_not_is_told_so_at_once():
    waiting = framed(b"Expect: 100-Continue", b"Content-Length: %d" % len(ASKED), body=b"")
    too_large = framed(b"Expect: 100-continue", b"Content-Length: %d" % (33 << 20), body=b"")
    unknown = framed(b"Expect: 100-continue", b"Content-Length: %d" % len(ASKED), auth=b"A: b", body=b"")
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(waiting)
            assert (await client.answer()).status == 100
            client.send(ASKED)
            assert (await client.answer()).status == 200
        for content, status in ((too_large, 413), (unknown, 401)):
            async with await RawClient.to(house.port) as client:
                client.send(content)
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert len(upstream.calls) == 1


async def test_whoever_was_answered_or_left_is_not_at_work_any_more():
    """By that number an answer knows whether it is alone, and leaves at once."""
    async with ScriptedUpstream() as provider, running_router(catalog(provider.base_url)) as router:
        for sent in (ask(), ask() + ask(), MODELS, ask(auth=b"Authorization: Bearer x"), b"no request\r\n\r\n", ask()[:-1]):
            async with await RawClient.to(router.port) as client:
                client.send(sent)
                for _ in range(sent.count(b"HTTP/1.1")):
                    if sent != ask()[:-1]:
                        await client.answer()
        provider.script((Hang(),))
        before = len(provider.calls)
        async with await RawClient.to(router.port) as client:  # who leaves while its provider is silent
            client.send(ask())
            async with asyncio.timeout(5):
                while len(provider.calls) == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert router.door.at_work == 1
        async with asyncio.timeout(5):
            while router.door.at_work:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert router.door.at_work == 0
