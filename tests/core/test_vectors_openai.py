"""The recorded answers of OpenAI and its likes: each read whole, and each stream in every split of its bytes."""

from __future__ import annotations

import pytest

from n4n.core.chat import Chunk
from n4n.core.dialects.table import DIALECTS
from n4n.core.quota_headers import read_quotas
from tests.support.vectors import (
    Vector,
    check_stream,
    check_whole,
    events_of,
    named,
    now_of,
    pieces_of,
    read_whole,
    vectors_of,
)

VECTORS = vectors_of("openai_chat")
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]
DIALECT = DIALECTS["openai"]


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: Vector) -> None:
    check_stream(vector, events_of(DIALECT, vector, pieces_of(vector)))


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: Vector) -> None:
    raw = b"".join(pieces_of(vector))
    expected = events_of(DIALECT, vector, [raw])
    check_stream(vector, expected)

    for cut in range(1, len(raw)):
        assert events_of(DIALECT, vector, (raw[:cut], raw[cut:])) == expected
    for size in (1, 2, 3, 7):
        assert events_of(DIALECT, vector, (raw[at : at + size] for at in range(0, len(raw), size))) == expected


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_passes_byte_for_byte(vector: Vector) -> None:
    raw = b"".join(pieces_of(vector))
    payloads = [event.payload for event in events_of(DIALECT, vector, [raw]) if isinstance(event, Chunk)]

    raw += raw.replace(b'"role":"assistant",', b"")  # told again with every delta, it is taken out
    assert sum(payload in raw for payload in payloads) >= len(payloads) - ("multi_line_data" in vector["kinds"])


@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: Vector) -> None:
    got = read_whole(DIALECT, vector)

    check_whole(vector, got)
    assert not isinstance(got, Chunk) or got.payload == vector["upstream"]["body"].encode()


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if "rate_limit" in vector["expected"]], ids=named)
def test_what_a_recorded_answer_says_about_limits_is_read(vector: Vector) -> None:
    quotas = read_quotas(vector["upstream"]["headers"], now_of(vector))

    for family, expected in vector["expected"]["rate_limit"].items():
        for name, value in expected.items():
            assert getattr(quotas[family], name) == pytest.approx(value, abs=0.01)
