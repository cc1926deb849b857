"""A counting process of a test's own, on a socket in the test's folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from data_plane.counting_process import Counters
from n4n.runtime.tokenizer import Tokenizer


@cache
def tokenizer() -> Tokenizer:
    """One for all tests of a run: its vocabularies take a second to load."""
    return Tokenizer()


@asynccontextmanager
async def counters(folder: Path) -> AsyncIterator[str]:
    """Serves in this loop; its socket's path."""
    path = str(folder / "counting.sock")
    server = await asyncio.start_unix_server(Counters(tokenizer()).serve, path)
    try:
        yield path
    finally:
        server.close()
