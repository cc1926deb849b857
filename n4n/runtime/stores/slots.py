"""Which of a cluster's 16,384 slots a key is in, and what CLUSTER SLOTS says about who serves them. No I/O.

Source: the Redis cluster specification, "Key distribution model" and "Hash tags" (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterator
from dataclasses import dataclass

from n4n.runtime.stores.place import Place, Tcp
from n4n.runtime.stores.replies import Reply

SLOTS = 16_384


def slot_of(key: bytes | str) -> int:
    """CRC16 (XMODEM: polynomial 0x1021, from 0) of the hash tag, or of the whole key where it has none or an empty one, modulo 16,384."""
    if isinstance(key, str):
        key = key.encode()
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return crc_hqx(key, 0) % SLOTS


@dataclass(frozen=True, slots=True)
class Share:
    """The slots from `first` to `last`, both included, and their master."""

    first: int
    last: int
    master: Place


def shares_of(reply: Reply, asked: Place) -> tuple[Share, ...]:
    """An answer to CLUSTER SLOTS that came from `asked`. ValueError: it is none.

    A node that does not know its own address leaves the host out: then it is the one that was asked.
    """
    if not isinstance(reply, list):
        raise ValueError("not a list")
    return tuple(_shares(reply, asked))


def _shares(reply: list[Reply], asked: Place) -> Iterator[Share]:
    for entry in reply:
        match entry:
            case [int(first), int(last), [(bytes() | None) as host, int(port), *_], *_] if 0 <= first <= last < SLOTS and 0 < port < 65_536:
                yield Share(first, last, place_of(host or b"", port, asked))
            case _:
                raise ValueError("not a range of slots")


def place_of(host: bytes, port: int, asked: Place) -> Place:
    """Where a node is that another, at `asked`, names. No host, or an unknown one (`?`): the same as `asked`'s."""
    if host and host != b"?":
        return Tcp(host.decode(), port)
    if isinstance(asked, Tcp):
        return Tcp(asked.host, port)
    return Tcp("127.0.0.1", port)  # asked through a socket of this machine
