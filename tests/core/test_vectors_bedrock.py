"""The recorded answers of Bedrock: each read whole, and the stream in every split of its bytes."""

from __future__ import annotations

import pytest

from n4n.core.dialects.bedrock import Bedrock
from tests.support.vectors import Vector, check_every_split, check_stream, check_whole, events_of, named, pieces_of, read_whole, vectors_of

VECTORS = vectors_of("bedrock_converse")
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]
DIALECT = Bedrock()


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: Vector) -> None:
    check_stream(vector, events_of(DIALECT, vector, pieces_of(vector)))


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: Vector) -> None:
    check_every_split(DIALECT, vector)


@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: Vector) -> None:
    check_whole(vector, read_whole(DIALECT, vector))
