"""What is decided of Redis without a socket: slots, bytes of commands, what errors mean, URLs, when a slow server is given up."""

from __future__ import annotations

import hashlib

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.errors import StartFailed
from n4n.runtime.stores import Script, StoreSettings, Tcp, Unix, command, settings_of
from n4n.runtime.stores.commands import pack
from n4n.runtime.stores.link import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_s
from n4n.runtime.stores.replies import Ask, Ill, Moved, NoScript, NotNow, Refused, Verdict, Wrong, verdict
from n4n.runtime.stores.slots import SLOTS, Share, place_of, shares_of, slot_of
from n4n.runtime.stores.tally import LEAST, Tally

WORDS = st.one_of(st.binary(max_size=50), st.text(max_size=20), st.integers())
KEYS = st.one_of(st.binary(max_size=50), st.text(max_size=20))


# Slots.


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 0x31C3),  # the specification's own example
        ("foo", 12182),
        ("bar", 5061),
        ("somekey", 11058),
        ("", 0),
        ("{user1000}.following", slot_of("user1000")),
        ("foo{}{bar}", slot_of("xfoo{}{bar}"[1:])),  # an empty tag is none
        ("foo{{bar}}zap", slot_of("{bar")),
        ("foo{bar}{zap}", slot_of("bar")),
        ("foo{bar", slot_of(b"foo{bar")),
    ],
)
def test_known_keys_are_in_their_slots(key: str, slot: int) -> None:
    assert slot_of(key) == slot_of(key.encode()) == slot


def bit_by_bit(octets: bytes) -> int:
    """CRC16 as its definition says it: polynomial 0x1021, from 0, nothing reflected."""
    crc = 0
    for octet in octets:
        crc ^= octet << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


@given(st.binary(max_size=40).filter(lambda key: b"{" not in key), st.binary(max_size=9), st.binary(max_size=9))
def test_slots_are_the_crc_of_the_key_or_of_its_tag(key: bytes, before: bytes, after: bytes) -> None:
    assert slot_of(key) == bit_by_bit(key) % SLOTS
    if key and b"}" not in key and b"{" not in before:
        assert slot_of(before + b"{" + key + b"}" + after) == slot_of(key)


HERE = Tcp("10.0.0.1", 7000)


def test_a_map_of_slots_is_read_with_or_without_hosts() -> None:
    told = [
        [0, 5460, [b"10.0.0.2", 7001, b"id", []], [b"10.0.0.9", 7009, b"replica"]],
        [5461, 5461, [b"", 7002, b"id"]],
        [5462, 16383, [None, 7003, b"id"]],
    ]

    shares = shares_of(told, HERE)  # type: ignore[arg-type]

    assert shares == (
        Share(0, 5460, Tcp("10.0.0.2", 7001)),
        Share(5461, 5461, Tcp("10.0.0.1", 7002)),
        Share(5462, 16383, Tcp("10.0.0.1", 7003)),
    )


@pytest.mark.parametrize(
    "told", [b"OK", None, 3, [b"x"], [[0, 5]], [[5, 0, [b"h", 1]]], [[0, 16384, [b"h", 1]]], [[0, 1, [b"h", 0]]], [[0, 1, [7, 1]]]]
)
def test_what_is_no_map_of_slots_is_refused(told: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        shares_of(told, HERE)  # type: ignore[arg-type]


def test_a_node_that_does_not_know_its_host_is_where_the_asked_one_is() -> None:
    assert place_of(b"?", 1, HERE) == Tcp("10.0.0.1", 1)
    assert place_of(b"", 1, Unix("/s")) == Tcp("127.0.0.1", 1)
    assert place_of(b"redis-2.local", 1, HERE) == Tcp("redis-2.local", 1)


# Commands.


def parsed(packed: bytes) -> list[bytes]:
    """By the reader of replies: a command is an array of bulk strings, as an answer can be."""
    reader = hiredis.Reader()
    reader.feed(packed)
    words = reader.gets()
    assert reader.gets() is False
    assert isinstance(words, list)
    return words


def as_bytes(word: bytes | str | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


@given(st.lists(WORDS, min_size=1, max_size=12))
def test_a_command_is_read_back_word_by_word(words: list[bytes | str | int]) -> None:
    assert parsed(pack(*words)) == [as_bytes(word) for word in words]


@given(st.text(max_size=60), st.lists(KEYS, max_size=4), st.lists(WORDS, max_size=8))
def test_a_script_goes_by_its_hash_and_where_that_is_unknown_by_its_source(
    source: str, keys: list[bytes | str], args: list[bytes | str | int]
) -> None:
    script = Script("reserve", source)
    rest = [str(len(keys)).encode(), *map(as_bytes, keys), *map(as_bytes, args)]

    packed = script.packed(keys, args)

    assert parsed(packed) == [b"EVALSHA", hashlib.sha1(source.encode()).hexdigest().encode(), *rest]
    assert parsed(script.with_source(packed)) == [b"EVAL", source.encode(), *rest]


def test_the_first_key_decides_the_node() -> None:
    script = Script("reserve", "return 1")
    assert script.call([b"{acme}:rpm", b"{acme}:tpm"], [1]).key == b"{acme}:rpm"
    assert script.call([]).key is None
    assert command(b"HGETALL", "health:e1").key == "health:e1"
    assert command(b"PING").key is None
    assert repr(script) == "Script('reserve')"


# Errors.


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("MOVED 3999 127.0.0.1:6381", Moved(3999, b"127.0.0.1", 6381)),
        ("MOVED 0 [::1]:6381", Moved(0, b"::1", 6381)),
        ("MOVED 5 ::1:6381", Moved(5, b"::1", 6381)),
        ("MOVED 5 :6381", Moved(5, b"", 6381)),
        ("ASK 12182 node-2.local:7000", Ask(b"node-2.local", 7000)),
        ("MOVED 16384 127.0.0.1:6381", NotNow("MOVED")),
        ("MOVED", NotNow("MOVED")),
        ("ASK 1 h:99999", NotNow("ASK")),
        ("NOSCRIPT No matching script.", NoScript()),
        ("TRYAGAIN Multiple keys request during rehashing of slot", NotNow("TRYAGAIN")),
        ("CLUSTERDOWN Hash slot not served", NotNow("CLUSTERDOWN")),
        ("LOADING Valkey is loading the dataset in memory", Ill("LOADING")),
        ("BUSY Valkey is busy running a script.", Ill("BUSY")),
        ("OOM command not allowed when used memory > 'maxmemory'.", Refused("OOM")),
        ("READONLY You can't write against a read only replica.", Wrong("READONLY")),
        ("NOAUTH Authentication required.", Wrong("NOAUTH")),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Refused("WRONGTYPE")),
        ("ERR unknown command 'FOO', with args beginning with: 'sk-secret'", Refused("ERR")),
        ("sk-secret", Refused("ERR")),
        ("", Refused("ERR")),
    ],
)
def test_an_error_is_read_by_its_first_word(text: str, means: Verdict) -> None:
    assert verdict(text) == means


# Settings.


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("redis://localhost", StoreSettings((Tcp("localhost", 6379),))),
        ("redis://r:6380/2", StoreSettings((Tcp("r", 6380),), database=2)),
        ("redis://r?db=2&socket_timeout=0.1", StoreSettings((Tcp("r", 6379),), database=2, deadline_s=0.1)),
        ("redis://:p%40ss@r", StoreSettings((Tcp("r", 6379),), password="p@ss")),
        ("rediss://n4n:p%3A%2F@r/0", StoreSettings((Tcp("r", 6379),), username="n4n", password="p:/", tls=True)),
        ("rediss://r?ssl_ca_certs=/etc/ca.pem", StoreSettings((Tcp("r", 6379),), tls=True, ca="/etc/ca.pem")),
        ("redis://a:7000,b:7001,[::1]:7002", StoreSettings((Tcp("a", 7000), Tcp("b", 7001), Tcp("::1", 7002)))),
        ("unix:///run/a%20b/valkey.sock", StoreSettings((Unix("/run/a b/valkey.sock"),))),
        ("unix://u:p@/run/valkey.sock?db=1", StoreSettings((Unix("/run/valkey.sock"),), username="u", password="p", database=1)),
        ("redis+sentinel://a,b:26380/main/3", StoreSettings((Tcp("a", 26379), Tcp("b", 26380)), database=3, master="main")),
        ("rediss+sentinel://:p@a/main", StoreSettings((Tcp("a", 26379),), password="p", master="main", tls=True)),
    ],
)
def test_a_url_says_the_same_as_settings_by_hand(url: str, settings: StoreSettings) -> None:
    assert settings_of(url) == settings


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "http://r", "redis://", "redis:///0", "redis://r:port", "redis://r:99999", "redis://r/x", "redis://r/-1", "unix://host/path",
     "unix://", "unix:///a%00b", "redis+sentinel://a", "redis://a,,b",
     "redis://r?socket_timeout=x", "redis://r?db", "redis://r?socket_timeout=0", "redis://r?socket_timeout=-1"],
)  # fmt: skip
def test_a_url_that_says_nothing_usable_is_refused(url: str) -> None:
    with pytest.raises(StartFailed):
        settings_of(url)


def test_an_unknown_option_is_named_instead_of_dropped_and_nothing_secret_is_told() -> None:
    with pytest.raises(StartFailed, match="'retry_on_timeout' is not known") as caught:
        settings_of("redis://:secret@host-x/0?retry_on_timeout=1")
    assert "secret" not in str(caught.value) and "host-x" not in str(caught.value)
    assert "secret" not in repr(settings_of("redis://user-x:secret@r")) and "user-x" not in repr(settings_of("redis://user-x:secret@r"))


def test_authorities_that_cannot_be_read_stop_the_start() -> None:
    with pytest.raises(StartFailed, match="ssl_ca_certs"):
        settings_of("rediss://r?ssl_ca_certs=/nowhere/ca.pem").tls_context()


# When a server that is slow is given up.


def outcomes(tally: Tally, *story: tuple[float, str]) -> list[bool]:
    """`+` is an answer in time, `-` a miss; whether it trips then."""
    tripped: list[bool] = []
    for now, what in story:
        tally.hits += what.count("+")
        if "-" in what:
            tripped.append(tally.missed(what.count("-"), now))
    return tripped


def test_a_server_that_stands_still_trips_once_the_span_has_passed() -> None:
    tally = Tally(0.4)
    assert outcomes(tally, *((n * 0.05, "-") for n in range(8))) == [False] * 8
    assert outcomes(tally, (0.4, "-")) == [True]


def test_a_short_pause_trips_nothing_and_is_forgotten() -> None:
    tally = Tally(0.4)
    assert not any(outcomes(tally, (0.0, "-" * 64), (0.05, "+" * 200), (0.6, "-")))
    assert tally.misses == 0


def test_half_of_the_calls_missing_is_too_many_and_fewer_is_not() -> None:
    assert outcomes(Tally(0.4), (0.0, "-"), (0.1, "++"), (0.5, "-"))[-1]
    assert not outcomes(Tally(0.4), (0.0, "-"), (0.1, "+++"), (0.5, "-"))[-1]


def test_a_quiet_router_needs_some_misses_before_it_judges() -> None:
    assert outcomes(Tally(0.4), *((float(n), "-") for n in range(LEAST))) == [False] * (LEAST - 1) + [True]


@given(st.integers(0, 40), st.floats(0, 0.999))
def test_pauses_grow_to_a_bound_and_differ_between_routers(tries: int, draw: float) -> None:
    longest = min(FIRST_PAUSE_S * 2**tries, LONGEST_PAUSE_S)
    assert longest / 2 <= pause_s(tries, draw) <= longest <= LONGEST_PAUSE_S


def test_a_password_with_a_question_mark_is_not_taken_for_an_option_and_told() -> None:
    with pytest.raises(StartFailed, match=r"^N4N_REDIS_URL has a \? in its user or password; write it as %3F$"):
        settings_of("redis://:sec?ret_canary=1@h")
