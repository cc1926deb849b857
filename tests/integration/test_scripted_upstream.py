"""The scripted upstream itself: what other tests believe it does, it does. Bare sockets stand for the gateway."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tests.support.answers import (
    completion,
    cut_after,
    echo_headers,
    error,
    fails_after,
    garbled,
    hang_after,
    hang_after_headers,
    hang_before_headers,
    held,
    html,
    hung_up,
    nothing,
    partial,
    rate_limited,
    reset,
    reset_after,
    silent_end,
    sse,
    tool_call,
    usage,
)
from tests.support.script import Answer, Bill, Chunk, Gate, Hang, Headers, Raw, Rst, Sleep, Slice, Status, Whole, Wire
from tests.support.upstream import HostedUpstream, ScriptedUpstream, reply, running_upstream

PROMPT = b'{"model":"m","messages":[]}'


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as hosted:
        yield hosted


class Client:
    """A client of bare sockets: nothing is retried, pooled or decoded behind the test's back."""

    def __init__(self, upstream: HostedUpstream) -> None:
        port = int(upstream.base_url.split(":")[2].split("/")[0])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.received = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self.socket.close()

    def send(self, body: bytes = PROMPT, *headers: str) -> None:
        lines = ["POST /v1/chat/completions HTTP/1.1", "Host: up", f"Content-Length: {len(body)}", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)

    def ask(self, body: bytes = PROMPT, *headers: str) -> tuple[int, dict[str, str], bytes]:
        self.send(body, *headers)
        return self.answer()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one complete, properly framed response."""
        received = self.until(b"\r\n\r\n")
        head, _, rest = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if "content-length" in headers:
            while len(rest) < int(headers["content-length"]):
                rest += self.socket.recv(65536)
        elif headers.get("transfer-encoding") == "chunked":
            rest = dechunk(rest if rest.endswith(b"0\r\n\r\n") else rest + self.until(b"0\r\n\r\n"))
        else:
            rest += self.to_the_end()
        return int(status.split()[1]), headers, rest

    def until(self, mark: bytes) -> bytes:
        received = b""
        while mark not in received:
            more = self.socket.recv(65536)
            assert more, f"closed before {mark!r}: {received!r}"
            received += more
            self.received += len(more)
        return received

    def to_the_end(self) -> bytes:
        received = b""
        while more := self.socket.recv(65536):
            received += more
            self.received += len(more)
        return received


def dechunk(framed: bytes) -> bytes:
    body = b""
    while framed:
        size, _, framed = framed.partition(b"\r\n")
        body, framed = body + framed[: int(size, 16)], framed[int(size, 16) + 2 :]
    return body


def events(body: bytes) -> list[str]:
    assert body.endswith(b"\n\n")
    return [line.removeprefix("data: ") for line in body.decode().strip().split("\n\n")]


def text(stream: bytes) -> str:
    chunks = [json.loads(event) for event in events(stream) if event != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c.get("choices"))


# --- requests ---


def test_each_request_is_recorded_once_as_it_was_sent(upstream: HostedUpstream) -> None:
    with Client(upstream) as client:
        client.ask(PROMPT, "X-Twice: a", "x-twice: b")

    [call] = upstream.calls
    assert (call.method, call.path, call.body) == ("POST", "/v1/chat/completions", PROMPT)
    assert [pair for pair in call.headers if pair[0].lower() == "x-twice"] == [("X-Twice", "a"), ("x-twice", "b")]
    assert call.json == {"model": "m", "messages": []}
    assert (call.header("HOST"), call.header("absent")) == ("up", None)
    assert upstream.finished(call) >= call.received_at


def test_answers_are_taken_in_order_of_arrival_and_then_the_default_goes_on(upstream: HostedUpstream) -> None:
    upstream.script(error(500), completion("second"), then=rate_limited())
    with Client(upstream) as first, Client(upstream) as second:
        statuses = [client.ask()[0] for client in (first, second, first, second)]

    assert statuses == [500, 200, 429, 429]
    assert [call.connection for call in upstream.calls] == [1, 2, 1, 2]
    assert upstream.connections == 2


def test_a_connection_without_a_request_is_counted_but_is_no_call(upstream: HostedUpstream) -> None:
    with Client(upstream) as silent, Client(upstream) as talking:
        silent.socket.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Le")
        talking.ask()

    assert (upstream.connections, len(upstream.calls)) == (2, 1)


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_a_chunked_request_is_read_however_it_is_cut(upstream: HostedUpstream, step: int) -> None:
    framed = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b'5\r\n{"a":\r\n3;x=y\r\n 1}\r\n0\r\n\r\n'
    with Client(upstream) as client:
        for start in range(0, len(framed), step):
            client.socket.sendall(framed[start : start + step])
        assert client.answer()[0] == 200

    assert [call.body for call in upstream.calls] == [b'{"a": 1}']


def test_pipelined_requests_are_two_calls_answered_in_order(upstream: HostedUpstream) -> None:
    upstream.script((Status(201), Whole(b"one")), (Status(202), Whole(b"two")))
    with Client(upstream) as client:
        client.send()
        client.send()
        received = client.until(b"two")

    assert received.index(b"201") < received.index(b"one") < received.index(b"202")
    assert len(upstream.calls) == 2


# --- answers ---


def test_an_answer_follows_what_the_call_asked_for(upstream: HostedUpstream) -> None:
    upstream.script(then=reply("pong", usage=usage(3, 1)))
    with Client(upstream) as client:
        _, plain_headers, plain = client.ask()
        _, stream_headers, stream = client.ask(b'{"stream": true}')

    body = json.loads(plain)
    assert plain_headers["content-type"] == "application/json"
    assert body["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "pong"},
        "finish_reason": "stop",
    }
    assert body["usage"]["total_tokens"] == 4
    assert stream_headers["content-type"] == "text/event-stream"
    assert text(stream) == "pong"


def test_a_stream_has_role_pieces_finish_usage_and_done(upstream: HostedUpstream) -> None:
    upstream.script(sse("He", "llo", usage=usage(3, 2, cached=1)))
    with Client(upstream) as client:
        _, _, body = client.ask()

    *chunks, done = events(body)
    role, first, second, finish, counted = (json.loads(chunk) for chunk in chunks)
    assert role["choices"][0]["delta"] == {"role": "assistant"}
    assert [c["choices"][0]["delta"]["content"] for c in (first, second)] == ["He", "llo"]
    assert (finish["choices"][0]["finish_reason"], finish["choices"][0]["delta"]) == ("stop", {})
    assert (counted["choices"], counted["usage"]["prompt_tokens_details"]) == ([], {"cached_tokens": 1})
    assert done == "[DONE]"


def test_a_completion_with_tool_calls_finishes_for_them(upstream: HostedUpstream) -> None:
    upstream.script(completion(None, tool_calls=[tool_call("weather", '{"at":"sea"}')], usage=None))
    with Client(upstream) as client:
        body = json.loads(client.ask()[2])

    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["choices"][0]["message"]["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"at":"sea"}',
    }
    assert "usage" not in body
    assert upstream.calls[0].billed is None


def test_errors_pages_and_nonsense_come_as_providers_send_them(upstream: HostedUpstream) -> None:
    upstream.script(
        error(400, code="context_length_exceeded", type="invalid_request_error"),
        rate_limited(retry_after=1.5),
        html(502),
        nothing(),
        garbled(),
    )
    with Client(upstream) as client:
        too_long, limited, page, empty, half = (client.ask() for _ in range(5))

    assert json.loads(too_long[2])["error"]["code"] == "context_length_exceeded"
    assert (limited[0], limited[1]["retry-after"]) == (429, "1.5")
    assert (page[0], page[1]["content-type"]) == (502, "text/html")
    assert (empty[0], empty[2]) == (200, b"")
    with pytest.raises(json.JSONDecodeError):
        json.loads(half[2])


def test_headers_are_echoed_as_they_arrived(upstream: HostedUpstream) -> None:
    upstream.script(echo_headers())
    with Client(upstream) as client:
        body = json.loads(client.ask(PROMPT, "X-Label: here")[2])

    assert ["X-Label", "here"] in json.loads(body["choices"][0]["message"]["content"])


def test_any_bytes_can_be_sent_framed_as_the_script_says(upstream: HostedUpstream) -> None:
    upstream.script(
        (Headers((("content-length", "4"),)), Raw(b"\x00\xff"), Raw(b"\r\n")),
        (Wire(b"HTTP/1.1 299 Odd\r\ncontent-length: 2\r\n\r\nok"),),
        (Headers((("Connection", "close"),)), Raw(b"data: 1\ndata: 2\n")),
    )
    with Client(upstream) as client:
        answers = [client.ask() for _ in range(3)]

    assert [(status, body) for status, _, body in answers] == [
        (200, b"\x00\xff\r\n"),
        (299, b"ok"),
        (200, b"data: 1\ndata: 2\n"),
    ]


def test_slices_and_sleeps_change_the_timing_and_not_the_bytes(upstream: HostedUpstream) -> None:
    answer = sse("né", "żółć")
    upstream.script(answer, (Slice(1), *answer), (Slice(5, 0.0001), *answer), sse("né", "żółć", gap=0.001))
    with Client(upstream) as client:
        whole, *cut = (client.ask() for _ in range(4))

    assert cut == [whole] * 3


def test_a_held_answer_comes_when_the_gate_opens(upstream: HostedUpstream) -> None:
    gate = Gate()
    upstream.script(held(gate, completion("late")), completion("other"))
    with Client(upstream) as waiting, Client(upstream) as served:
        waiting.send()
        upstream.arrived(1)
        assert b"other" in served.ask()[2]
        assert upstream.calls[0].finished_at is None

        gate.open()

        assert b"late" in waiting.answer()[2]


def test_billing_is_noted_where_the_script_says_so(upstream: HostedUpstream) -> None:
    upstream.script((Bill(usage(5, 0)), Hang()), sse("a", usage=usage(3, 2)), hang_after("a"))
    with Client(upstream) as client:
        client.send()
        upstream.arrived(1)
    upstream.closed(upstream.calls[0])
    with Client(upstream) as client:
        client.ask()
        client.send()
        client.until(b'"a"')

    assert [call.billed for call in upstream.calls] == [usage(5, 0), usage(3, 2), None]


# --- faults ---


def test_a_reset_before_the_head_is_a_reset(upstream: HostedUpstream) -> None:
    upstream.script(reset())
    with Client(upstream) as client:
        client.send()
        with pytest.raises(ConnectionResetError):
            client.to_the_end()


def test_a_reset_after_output_comes_after_the_output(upstream: HostedUpstream) -> None:
    upstream.script((*reset_after("a", "b"), Chunk("never sent")), (Raw(b"x" * 4_000_000), Rst()))
    with Client(upstream) as client:
        client.send()
        assert b'"b"' in client.until(b'"b"')
        with pytest.raises(ConnectionResetError):
            client.to_the_end()
    with Client(upstream) as client:
        client.send()
        client.until(b"x" * 10)
        with pytest.raises(ConnectionResetError):
            client.to_the_end()
        assert client.received > 4_000_000


def test_a_hang_up_and_a_cut_close_in_order_without_the_proper_end(upstream: HostedUpstream) -> None:
    upstream.script(hung_up(), cut_after("a"))
    with Client(upstream) as client:
        client.send()
        assert client.to_the_end() == b""
    with Client(upstream) as client:
        client.send()
        received = client.to_the_end()

    assert b'"a"' in received
    assert not received.endswith(b"0\r\n\r\n")
    assert [call.peer_closed_at for call in upstream.calls] == [None, None]


def test_a_silent_end_and_a_failing_stream_end_properly_on_a_connection_that_stays(upstream: HostedUpstream) -> None:
    upstream.script(silent_end("a"), fails_after("a", code="insufficient_quota"))
    with Client(upstream) as client:
        _, _, silent = client.ask()
        _, _, failing = client.ask()

    assert (text(silent), len(events(silent))) == ("a", 2)
    assert json.loads(events(failing)[-1])["error"]["code"] == "insufficient_quota"
    assert upstream.connections == 1


@pytest.mark.parametrize("answer", [hang_before_headers(), hang_after_headers(), hang_after("a"), (Sleep(60), Status(200))])
def test_a_peer_that_leaves_is_noted_and_ends_the_answer(upstream: HostedUpstream, answer: Answer) -> None:
    upstream.script(answer)
    with Client(upstream) as client:
        client.send()
        call = upstream.arrived(1)
        assert call.peer_closed_at is None

    assert upstream.closed(call) >= call.received_at
    with pytest.raises(AssertionError, match="the peer left"):
        upstream.finished(call)


def test_a_hang_after_the_head_has_sent_the_head(upstream: HostedUpstream) -> None:
    upstream.script(hang_after_headers())
    with Client(upstream) as client:
        client.send()
        head = client.until(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    assert head.endswith(b"\r\n\r\n")


def test_a_request_whose_peer_left_at_once_is_still_recorded(upstream: HostedUpstream) -> None:
    for _ in range(20):
        with Client(upstream) as client:
            client.send()

    upstream.arrived(20)
    assert len(upstream.calls) == 20


def test_a_peer_that_leaves_after_the_answer_left_nothing_unfinished(upstream: HostedUpstream) -> None:
    with Client(upstream) as client:
        client.ask()

    [call] = upstream.calls
    upstream.finished(call)
    with pytest.raises(AssertionError, match="did not leave"):
        upstream.closed(call)


def test_what_does_not_happen_in_time_is_an_error(upstream: HostedUpstream) -> None:
    with pytest.raises(TimeoutError):
        upstream.arrived(1, within=0.01)


def test_a_stopped_upstream_refuses_and_comes_back_on_the_same_port(upstream: HostedUpstream) -> None:
    upstream.script(hang_before_headers(), completion("back"))
    with Client(upstream) as client:
        client.send()
        call = upstream.arrived(1)
        upstream.stop()
        with pytest.raises(ConnectionRefusedError):
            Client(upstream)
    upstream.start()
    with Client(upstream) as client:
        assert b"back" in client.ask()[2]

    assert (call.peer_closed_at, call.finished_at) == (None, None)


def test_a_broken_script_fails_the_test_and_not_only_the_peer() -> None:
    def scenario() -> None:
        with running_upstream() as upstream, Client(upstream) as client:
            client.send(b"no json")
            assert client.to_the_end() == b""

    with pytest.raises(json.JSONDecodeError):
        scenario()


# --- both ways to run it ---


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_it_lives_inside_the_loop_of_a_test_too(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        async with ScriptedUpstream() as upstream:
            upstream.script((*partial("a"), Rst()), hang_before_headers(), sse("whole"))

            reader, writer = await sent(upstream)
            assert b'"a"' in await reader.readuntil(b'"a"')
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()

            reader, writer = await sent(upstream)
            call = await upstream.arrived(2)
            writer.close()
            await upstream.closed(call)

            reader, writer = await sent(upstream)
            assert b"whole" in await reader.readuntil(b"0\r\n\r\n")
            await upstream.finished(upstream.calls[2])
            writer.close()

        assert len(upstream.calls) == upstream.connections == 3

    async def sent(upstream: ScriptedUpstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        return reader, writer

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


def test_the_hosted_one_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with running_upstream() as upstream, Client(upstream) as client:
        client.ask()

    assert threading.active_count() == before
