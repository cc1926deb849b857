"""The recorded answers of Gemini: each read whole, and each stream in every split of its bytes."""

from __future__ import annotations

import pytest

from n4n.core.dialects.gemini import Gemini, Vertex
from tests.support.vectors import Vector, check_every_split, check_stream, check_whole, events_of, named, pieces_of, read_whole, vectors_of

VECTORS = vectors_of("gemini_generate")
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]
DIALECTS = [Gemini(), Vertex({})]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: Vector, dialect: Gemini | Vertex) -> None:
    check_stream(vector, events_of(dialect, vector, pieces_of(vector)))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: Vector, dialect: Gemini | Vertex) -> None:
    check_every_split(dialect, vector)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: Vector, dialect: Gemini | Vertex) -> None:
    check_whole(vector, read_whole(dialect, vector))
