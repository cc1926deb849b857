"""One Redis connection on a transport that goes nowhere: whose reply is whose, what is written when, and what ends it. No sockets."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.runtime.stores import Script, StoreSettings, Tcp, command
from n4n.runtime.stores.calls import NO_ANSWER, Batch, Call, Deadlines, Outcome, Part, Single
from n4n.runtime.stores.commands import pack
from n4n.runtime.stores.connection import ASKING, FULL, GARBLED, LOST, PING, READ_BUFFER, Connection
from n4n.runtime.stores.replies import Ask, Moved, Reply

SETTINGS = StoreSettings((Tcp("localhost", 6379),), most_pending=5, most_pending_bytes=400)
WIDE = StoreSettings((Tcp("localhost", 6379),))


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_aborted = False

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(piece))

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Owner:
    """Remembers what it was told."""

    why: list[str] = field(default_factory=list)
    sent_on: list[tuple[Call, Moved | Ask]] = field(default_factory=list)
    maps_wanted: int = 0

    def lost(self, connection: Connection, why: str) -> None:
        assert not connection.is_open
        self.why.append(why)

    def send_on(self, connection: Connection, call: Call, where: Moved | Ask) -> None:
        self.sent_on.append((call, where))

    def unserved(self) -> None:
        self.maps_wanted += 1


class Peer:
    """A connection and its far side."""

    def __init__(self, settings: StoreSettings = WIDE) -> None:
        self.owner, self.wire = Owner(), Wire()
        self.buffer = memoryview(bytearray(READ_BUFFER))
        self.connection = Connection(self.owner, settings, self.buffer)
        self.connection.connection_made(self.wire)

    def call(self, *words: bytes | str | int, script: Script | None = None) -> asyncio.Future[Reply]:
        """Sends a command."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        packed = script.packed(["k"], words) if script else pack(*words)
        self.connection.send(Single(future, packed, "X", script))
        return future

    def says(self, *pieces: bytes) -> None:
        """Bytes from the far side, a read each."""
        for piece in pieces:
            room = self.connection.get_buffer(-1)
            room[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))


async def test_commands_of_one_tick_leave_in_one_write() -> None:
    peer = Peer()
    waiting = [peer.call(b"GET", f"k{n}") for n in range(3)]
    assert peer.wire.writes == []

    await asyncio.sleep(0)
    assert peer.wire.writes == [b"".join(pack(b"GET", f"k{n}") for n in range(3))]

    waiting.append(peer.call(b"GET", "k3"))
    await asyncio.sleep(0)
    assert peer.wire.writes[1:] == [pack(b"GET", "k3")]
    peer.says(b"$1\r\n0\r\n$1\r\n1\r\n$-1\r\n:3\r\n")
    assert [await one for one in waiting] == [b"0", b"1", None, 3]


@given(st.data())
def test_whoever_gives_up_every_reply_reaches_its_own_caller_and_nobody_else(data: st.DataObject) -> None:
    async def story() -> None:
        peer = Peer()
        count = data.draw(st.integers(1, 20))
        waiting = [peer.call(b"ECHO", n) for n in range(count)]
        gone = data.draw(st.sets(st.integers(0, count - 1)))
        stream = b"".join(b"$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(count))
        cuts = sorted(data.draw(st.sets(st.integers(1, len(stream)), max_size=6)) | {len(stream)})
        before = data.draw(st.integers(0, len(cuts)))
        for number, (begin, end) in enumerate(zip([0, *cuts], cuts, strict=False)):
            if number == before:
                for n in gone:
                    waiting[n].cancel()
            peer.says(stream[begin:end])
        for n, one in enumerate(waiting):
            assert one.cancelled() or one.result() == str(n).encode()
            assert one.done()
        assert peer.connection.pending == 0 and peer.connection.is_open

    asyncio.run(story())


async def test_bounds_of_number_and_of_bytes_refuse_at_once() -> None:
    peer = Peer(SETTINGS)
    waiting = [peer.call(b"GET", "k") for _ in range(5)]
    with pytest.raises(StoreUnavailable, match=FULL):
        peer.call(b"GET", "k")
    peer.says(b":1\r\n" * 5)
    assert [await one for one in waiting] == [1] * 5

    big = peer.call(b"SET", "k", b"x" * 300)
    with pytest.raises(StoreUnavailable, match=FULL):
        peer.call(b"SET", "k", b"x" * 100)
    peer.says(b"+OK\r\n")
    assert await big == b"OK"
    assert peer.call(b"SET", "k", b"x" * 100) is not None
    assert repr(peer.connection) == "<Connection open, 1 pending>"


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\x16\x03\x01\x00", b"*-7\r\n", b"$x\r\n"])
async def test_what_is_no_answer_ends_the_connection_and_fails_all_at_once(garbage: bytes) -> None:
    peer = Peer()
    waiting = [peer.call(b"GET", "k") for _ in range(3)]

    peer.says(b":1\r\n" + garbage)

    assert await waiting[0] == 1
    for one in waiting[1:]:
        with pytest.raises(StoreUnavailable, match=GARBLED):
            await one
    assert peer.wire.is_aborted and peer.owner.why == [GARBLED]
    with pytest.raises(StoreUnavailable, match=LOST):
        peer.call(b"GET", "k")
    peer.says(b":1\r\n")  # what still comes is nobody's


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    peer = Peer()
    peer.says(b":1\r\n")
    assert peer.owner.why == [GARBLED]


async def test_a_lost_connection_fails_all_at_once_and_once() -> None:
    peer = Peer()
    waiting = [peer.call(b"GET", "k"), peer.call(b"GET", "k")]
    waiting[0].cancel()
    peer.connection.connection_lost(OSError("sk-secret"))
    peer.connection.connection_lost(None)
    with pytest.raises(StoreUnavailable, match=LOST):
        await waiting[1]
    assert peer.owner.why == [LOST] and peer.connection.pending == 0


async def test_a_script_that_is_unknown_is_sent_once_more_with_its_source() -> None:
    peer, script = Peer(), Script("reserve", "return 1")
    one = peer.call(1, script=script)
    peer.says(b"-NOSCRIPT No matching script.\r\n")
    await asyncio.sleep(0)
    assert peer.wire.writes[-1].endswith(script.with_source(script.packed(["k"], [1])))
    peer.says(b":7\r\n")
    assert await one == 7

    one = peer.call(1, script=script)
    peer.says(b"-NOSCRIPT a script that says so itself\r\n")
    peer.says(b"-NOSCRIPT a script that says so itself\r\n")
    with pytest.raises(StoreRefused, match="Redis refused X with NOSCRIPT"):
        await one


async def test_nothing_is_tried_again_for_a_caller_that_is_gone() -> None:
    peer, script = Peer(), Script("reserve", "return 1")
    for answer in (b"-NOSCRIPT x\r\n", b"-MOVED 1 h:1\r\n", b"-ASK 1 h:1\r\n"):
        peer.call(1, script=script).cancel()
        await asyncio.sleep(0)
        written = len(peer.wire.writes)
        peer.says(answer)
        await asyncio.sleep(0)
        assert len(peer.wire.writes) == written and not peer.owner.sent_on


async def test_errors_name_the_command_and_never_their_text() -> None:
    peer = Peer()
    one = peer.call(b"FOO", "sk-secret")
    peer.says(b"-ERR unknown command 'FOO', with args beginning with: 'sk-secret'\r\n")
    with pytest.raises(StoreRefused) as caught:
        await one
    assert (str(caught.value), caught.value.reply_code) == ("Redis refused X with ERR", "ERR")


async def test_a_slot_that_nobody_serves_asks_for_the_map() -> None:
    peer = Peer()
    one = peer.call(b"GET", "k")
    peer.says(b"-CLUSTERDOWN Hash slot not served\r\n")
    with pytest.raises(StoreUnavailable, match="CLUSTERDOWN"):
        await one
    assert peer.owner.maps_wanted == 1 and peer.connection.is_open


async def test_a_server_that_became_a_replica_or_forgot_us_is_left() -> None:
    for text in (b"READONLY You can't write against a read only replica.", b"NOAUTH Authentication required."):
        peer = Peer()
        one, other = peer.call(b"SET", "k", 1), peer.call(b"SET", "k", 1)
        peer.says(b"-" + text + b"\r\n")
        for failed in (one, other):
            with pytest.raises(StoreUnavailable):
                await failed
        assert peer.owner.why == [f"Redis was left: it answered {text.split()[0].decode()}"]


async def test_redirections_go_to_the_owner_and_asking_goes_before_its_command() -> None:
    peer = Peer()
    one, other = peer.call(b"GET", "k"), peer.call(b"GET", "k")
    peer.says(b"-MOVED 12 10.0.0.1:7000\r\n-ASK 12 10.0.0.1:7001\r\n")
    assert [where for _, where in peer.owner.sent_on] == [Moved(12, b"10.0.0.1", 7000), Ask(b"10.0.0.1", 7001)]
    assert not one.done() and not other.done()

    target, call = Peer(), peer.owner.sent_on[1][0]
    target.connection.send_asking(call)
    await asyncio.sleep(0)
    assert target.wire.writes == [ASKING + pack(b"GET", "k")]
    target.says(b"+OK\r\n$1\r\nv\r\n")
    assert await other == b"v"


async def test_a_server_that_cannot_work_is_given_up_as_one_that_does_not_answer() -> None:
    settings = StoreSettings((Tcp("h", 1),), deadline_s=1e-6)
    peer = Peer(settings)
    for n in range(4):
        one = peer.call(b"GET", "k")
        peer.says(b"-LOADING Valkey is loading the dataset in memory\r\n")
        assert isinstance(one.exception(), StoreUnavailable)
        assert peer.connection.is_open is (n < 3)
    assert peer.owner.why == [NO_ANSWER]


# Deadlines.


class ManualLoop:
    """Time and timers by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> ManualLoop:
        self.timers.append((when, callback))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def rings(self, late: float = 0.0) -> None:
        """Lets the next timer ring, this late."""
        (when, callback), self.timers = self.timers[0], self.timers[1:]
        self.now = when + late
        callback()  # type: ignore[operator]


@dataclass(eq=False)
class Carrier:
    """Counts misses."""

    told: list[int] = field(default_factory=list)

    def missed(self, calls: int, now: float) -> None:
        self.told.append(calls)


def pending(carrier: Carrier) -> tuple[Single, asyncio.Future[Reply]]:
    """A call on its way."""
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    call = Single(future, b"", "X")
    call.carrier = carrier
    return call, future


async def test_each_call_fails_at_its_own_deadline_with_one_timer_for_all() -> None:
    loop, carrier = ManualLoop(), Carrier()
    deadlines = Deadlines(loop, 0.05)  # type: ignore[arg-type]
    calls = []
    for _ in range(3):
        calls.append(pending(carrier))
        deadlines.begin(calls[-1][0])
        loop.now += 0.01
    assert len(loop.timers) == 1
    calls[1][1].set_result(None)

    loop.rings()
    assert loop.now == pytest.approx(100.05) and isinstance(calls[0][1].exception(), StoreUnavailable)
    assert not calls[2][1].done() and carrier.told == [1] and len(deadlines) == 1
    loop.rings()
    assert loop.now == pytest.approx(100.07) and str(calls[2][1].exception()) == NO_ANSWER
    assert loop.timers == [] and carrier.told == [1, 1]

    deadlines.begin(pending(carrier)[0])
    assert len(loop.timers) == 1
    deadlines.stop()
    assert loop.timers == [] and len(deadlines) == 0


async def test_after_our_own_pause_what_came_meanwhile_is_read_before_anybody_fails() -> None:
    loop, carrier = ManualLoop(), Carrier()
    deadlines = Deadlines(loop, 0.05)  # type: ignore[arg-type]
    calls = [pending(carrier), pending(carrier)]
    for call, _ in calls:
        deadlines.begin(call)

    loop.rings(late=0.2)
    assert not any(future.done() for _, future in calls)
    calls[0][1].set_result(b"it had come")
    loop.rings()
    assert calls[1][1].exception() is not None and carrier.told == [1]


# Pipelines.


async def test_a_pipeline_ends_with_its_last_outcome_and_keeps_the_order_of_its_commands() -> None:
    for order in ([0, 1, 2], [2, 0, 1], random.sample(range(3), 3)):
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        parts = [Part(batch, n, command(b"GET", "k")) for batch in [Batch(future, 3)] for n in range(3)]
        refusal = StoreUnavailable(LOST)
        for n in order:
            assert not future.done()
            if n == 1:
                parts[n].fail(refusal)
                parts[n].fail(StoreUnavailable("another"))
            else:
                assert parts[n].answer(n)
            assert not parts[n].answer(9) and parts[n].is_done()
        assert await future == [0, refusal, 2]


async def test_answers_for_a_pipeline_that_is_gone_are_dropped() -> None:
    future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    batch = Batch(future, 2)
    first, second = Part(batch, 0, command(b"GET", "k")), Part(batch, 1, command(b"GET", "k"))
    assert first.answer(1)
    future.cancel()
    assert second.is_done() and not second.answer(2)
    second.fail(StoreUnavailable(LOST))


async def test_a_ping_counts_as_any_call() -> None:
    peer = Peer()
    call = peer.connection.ping()
    await asyncio.sleep(0)
    assert peer.wire.writes == [PING] and not call.is_done()
    peer.says(b"+PONG\r\n")
    assert call.is_done() and peer.connection.pending == 0
    assert not call.answer(b"PONG")
    late = peer.connection.ping()
    late.fail(StoreUnavailable(NO_ANSWER))
    assert late.is_done()
