"""Lines of the request log: never torn, never mixed, and the loop never waits for whoever reads them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.runtime.records import BUFFER_LIMIT, PIPE_BUF, LineWriter


def line(number: int, size: int = 200) -> bytes:
    return json.dumps({"n": number, "pad": "x" * size}).encode() + b"\n"


def numbers(text: bytes) -> list[int]:
    """Of whole lines of JSON; anything else fails."""
    return [json.loads(one)["n"] for one in text.splitlines()]


async def until_written(path: Path, count: int) -> list[int]:
    async with asyncio.timeout(5):
        while path.read_bytes().count(b"\n") < count:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
    return numbers(path.read_bytes())  # noqa: ASYNC240


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


async def test_a_line_that_a_full_disk_tore_is_finished_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write, room = tmp_path / "log", os.write, [500]

    def full(fd: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(fd, content[: room[0]])
        room[0] -= written
        return written

    with path.open("ab") as out:
        lines = LineWriter(out.fileno(), asyncio.get_running_loop())
        monkeypatch.setattr(os, "write", full)
        for number in range(10):
            lines.write(line(number))
            await asyncio.sleep(0)
        lines.flush()
        assert path.stat().st_size == 500
        room[0] = 1 << 20
        assert await until_written(path, 10) == list(range(10))
    assert lines.dropped == 0


@pytest.mark.parametrize(("to_file", "most"), [(True, 1 << 20), (False, PIPE_BUF)])
async def test_a_file_takes_the_lines_of_a_tick_at_once_and_a_pipe_what_it_takes_whole(
    to_file: bool, most: int, tmp_path: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, sizes = os.write, list[int]()

    def seen(fd: int, content: bytes) -> int:
        sizes.append(len(content))
        return write(fd, content)

    with (tmp_path / "log").open("ab") as out:
        lines = LineWriter(out.fileno() if to_file else pipe[1], asyncio.get_running_loop())
        monkeypatch.setattr(os, "write", seen)
        for number in range(40):
            lines.write(line(number, 500))
        await asyncio.sleep(0.01)
    assert max(sizes) <= most
    assert (len(sizes) == 1) is to_file


async def test_a_disk_that_stays_full_costs_a_bounded_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (tmp_path / "log").open("ab") as out:
        lines = LineWriter(out.fileno(), asyncio.get_running_loop())
        monkeypatch.setattr(os, "write", full)
        for number in range(20):
            lines.write(line(number, BUFFER_LIMIT // 10))
        await asyncio.sleep(0.05)
        assert lines.dropped == 11


async def test_lines_for_a_reader_that_is_gone_are_counted(pipe: tuple[int, int]) -> None:
    lines = LineWriter(pipe[1], asyncio.get_running_loop())
    os.close(pipe[0])
    for number in range(3):
        lines.write(line(number))
    await asyncio.sleep(0.05)
    os.dup2(pipe[1], pipe[0])  # something to close at the end
    assert lines.dropped == 3


async def test_a_long_line_does_not_wait_for_a_reader_that_stalls(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines, begun = LineWriter(writer, asyncio.get_running_loop()), time.monotonic()
    sizes = [200, 3 * PIPE_BUF] * 20
    for number, size in enumerate(sizes):
        lines.write(line(number, size))
    await asyncio.sleep(0.1)
    assert time.monotonic() - begun < 3  # a writer that waits would wait for ever
    os.set_blocking(reader, False)
    text = b""
    async with asyncio.timeout(10):
        while text.count(b"\n") < len(sizes):
            try:
                text += os.read(reader, 1 << 16)
            except BlockingIOError:
                await asyncio.sleep(0.01)
    assert numbers(text) == list(range(len(sizes)))
    assert lines.dropped == 0
