"""The bench's arithmetic and wording: medians, ratios, and the place in the document. No program is started here."""

import json

import pytest

from bench import payloads
from bench.load import Outcome
from bench.measured import Run
from bench.report import BEGIN, END, load_table, placed


def run(rate: float, *, cpu_us: float = 100.0, errors: int = 0) -> Run:
    used = rate * 2 * cpu_us / 1e6
    return Run(Outcome(int(rate * 2), 2.0, errors, p50_ms=1.0, p99_ms=9.0), used * 1.5, used, mib=60.0, foreign=0.05)


def test_a_table_shows_medians_and_ratios_to_other_peers() -> None:
    runs = {"direct": [run(4000), run(9000), run(5000)], "n4n": [run(1000, errors=2), run(1000, cpu_us=300), run(1000, errors=1)]}

    lines = load_table("JSON", "requests", runs, over=["direct", "absent"]).splitlines()

    assert lines[2] == (
        "|  | requests/s | lowest–highest | × direct | CPU µs/request | with all processes |"
        " busy % | p50 ms | p99 ms | RSS MiB | errors | others % |"
    )
    assert lines[4] == "| direct | 5,000 | 4,000–9,000 | 1.00 | 100 | 150 | 50 | 1.0 | 9.0 | 60 | 0 | 5 |"
    assert lines[5] == "| n4n | 1,000 | 1,000–1,000 | 0.20 | 100 | 150 | 10 | 1.0 | 9.0 | 60 | 3 | 5 |"


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    once = placed(document, "new")

    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert placed(once, "new") == once


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        placed(f"before {END}", "new")


def test_the_pieces_of_the_stream_are_one_chunked_response_with_every_event() -> None:
    head, _, body = b"".join(payloads.stream_pieces()).partition(b"\r\n\r\n")

    assert b"Transfer-Encoding: chunked" in head
    events = []
    while body:
        size, _, body = body.partition(b"\r\n")
        events.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    *chunks, done, end = events
    assert (len(chunks) + 1, done, end) == (payloads.EVENTS, b"data: [DONE]\n\n", b"")
    usage = json.loads(chunks[-1].removeprefix(b"data: "))
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 412 + payloads.EVENTS - 3)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_about_two_kilobytes(stream: bool) -> None:
    body = payloads.request(stream=stream)

    assert 1_800 < len(body) < 2_300
    assert (b'"stream":true' in body) is stream
