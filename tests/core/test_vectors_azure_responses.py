"""The recorded answers of Azure and of the Responses API: each read whole, and each stream in every split of its bytes."""

from __future__ import annotations

import pytest

from n4n.core.dialects import Dialect
from n4n.core.dialects.table import DIALECTS
from tests.support.vectors import Vector, check_every_split, check_stream, check_whole, events_of, named, pieces_of, read_whole, vectors_of

NAMES = {"azure_openai": "azure", "openai_responses": "openai_responses"}
VECTORS = [vector for name in NAMES for vector in vectors_of(name)]
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]


def dialect_of(vector: Vector) -> Dialect:
    return DIALECTS[NAMES[vector["dialect"]]]


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: Vector) -> None:
    check_stream(vector, events_of(dialect_of(vector), vector, pieces_of(vector)))


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: Vector) -> None:
    check_every_split(dialect_of(vector), vector)


@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: Vector) -> None:
    check_whole(vector, read_whole(dialect_of(vector), vector))
