"""The counting process of a node: counts tokens for all its routers, so that none of them holds a vocabulary or waits for a count.

Routers bring a request and its answer over a socket of their own user; nothing of it is written down, logged or kept. One is counted at a
time; what waits beyond a socket's buffers waits in the routers, which drop what does not fit. No router depends on this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from asyncio import IncompleteReadError, StreamReader, StreamWriter

from n4n.core.counting.encodings import encoding_of
from n4n.core.counting.texts import output_of, prompt_of
from n4n.core.counting.wire import LENGTH, MOST_BYTES, Counted, Question, Unreadable, packed, question
from n4n.runtime.settings import Settings
from n4n.runtime.tokenizer import Tokenizer

NICENESS = 10  # routers go first where the machine is short of CPU
log = logging.getLogger("n4n.counting")


def answer(tokenizer: Tokenizer, asked: Question) -> Counted:
    """What was asked for."""
    encoding = encoding_of(asked.model)
    prompt, output = prompt_of(asked.body), output_of(asked.pieces)

    def tokens(texts: list[str]) -> int:
        return sum(tokenizer.count(encoding, text) for text in texts)

    return Counted(
        number=asked.number,
        encoding=encoding,
        prompt=None if prompt is None else tokens(prompt.texts) + prompt.more,
        prompt_exact=prompt is not None and prompt.exact,
        output=None if output is None else tokens(output.texts),
        output_exact=output is not None and output.exact,
        reasoning=0 if output is None else tokens(output.reasoning),
    )


class Counters:
    """Serves every router that connects."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._turn = asyncio.Lock()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One router, until it goes, or says what is no question."""
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH), "big")
                if length > MOST_BYTES:
                    raise Unreadable
                asked = question(await reader.readexactly(length))
                async with self._turn:  # in turn, however much one of them has brought
                    told = packed(answer(self._tokenizer, asked))
                writer.write(told)
                await writer.drain()
        except (IncompleteReadError, ConnectionError):
            pass  # it has gone
        except Unreadable:
            log.warning("a router of another version asks in words that are none; its tokens are not counted")
        finally:
            writer.close()


async def count(settings: Settings) -> None:
    """Until it is told to go. `settings.listen_fd`: the socket that routers connect to."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gone.set)
    sock = socket.socket(fileno=settings.listen_fd)
    server = await asyncio.start_unix_server(Counters(Tokenizer()).serve, sock=sock)
    log.info("counting tokens")
    await gone.wait()
    server.close()


def main(settings: Settings) -> int:
    """Runs until told to stop, then 0."""
    os.nice(NICENESS)
    asyncio.run(count(settings))
    return 0
