"""What translation costs: CPU of reading and saying in a client's words what an endpoint of each dialect is told and answers.

In this process, without sockets and plans: a request read by its skin and written for its endpoint, then its answer read and said, whole
or as a stream of which every event comes by itself. The measure is the skin's own dialect, where nothing is translated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench import payloads
from bench.answers import Answers, answers
from bench.measured import Measured, Translated
from bench.pairs import NAME
from bench.peers import Peer
from bench.turns import Turns
from n4n.core.catalog import Account, Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import Chunk
from n4n.core.dialects import Dialect
from n4n.core.dialects.table import DIALECTS
from n4n.core.skins.skin import Skin
from n4n.core.skins.table import SKINS

OWN = {"chat": "openai", "messages": "anthropic", "responses": "openai_responses"}  # each skin's own dialect
_PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_NOTE = b'{"cost_usd":0.0004}'
_WARM = 20


def request(skin: str, *, stream: bool) -> bytes:
    """The bench's request in a skin's words."""
    chat = json.loads(payloads.request(stream=stream))
    instructions, asked = (message["content"] for message in chat["messages"])
    shared = {"model": chat["model"], "temperature": chat["temperature"], **({"stream": True} if stream else {})}
    match skin:
        case "messages":
            words = {"system": instructions, "messages": [{"role": "user", "content": asked}], "max_tokens": 256}
        case "responses":
            words = {"instructions": instructions, "input": asked, "max_output_tokens": 256, "store": False}
        case _:
            return payloads.request(stream=stream)
    return json.dumps({**shared, **words}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Pair:
    """One skin before one dialect."""

    skin: Skin
    dialect: Dialect
    endpoint: Endpoint
    answers: Answers
    whole_body: bytes
    stream_body: bytes

    def whole(self) -> bytes:
        """One request and its whole answer."""
        asked = self.skin.read(self.whole_body, _no_header)
        self.dialect.encode(asked, self.endpoint, "key")
        came = self.dialect.decode(self.answers.whole, "application/json", asked)
        assert isinstance(came, Chunk), came
        return self.skin.whole(came, asked, came.usage, _NOTE)

    def stream(self) -> bytes:
        """One request and its streamed answer."""
        asked = self.skin.read(self.stream_body, _no_header)
        self.dialect.encode(asked, self.endpoint, "key")
        decoder, frames = self.dialect.decoder(asked), self.skin.frames(asked)
        said: list[bytes] = []
        usage = None
        for piece in self.answers.pieces:
            for event in decoder.feed(piece):
                if isinstance(event, Chunk):
                    usage = event.usage or usage
                    said += frames.receive(event)
        said += frames.finish(usage, _NOTE)
        return b"".join(said)


def pairs() -> Mapping[tuple[str, str], Pair]:
    """Every skin before every dialect."""
    told = answers()
    return {
        (skin, dialect): Pair(SKINS[path], DIALECTS[dialect], _endpoint(dialect, told[dialect].model), told[dialect],
                              request(skin, stream=False), request(skin, stream=True))
        for skin, path in _PATHS.items()
        for dialect in told
    }  # fmt: skip


def _endpoint(dialect: str, model: str) -> Endpoint:
    return Endpoint(
        EndpointId("e"), ModelId("m"), Provider("p", dialect, "https://a.example/v1"), (Account("a", "p"),), upstream_model=model
    )


def _no_header(_: str) -> None:
    return None


def cpu_us(work: Callable[[], object], seconds: float) -> float:
    """Microseconds of CPU that it takes, the median of ten parts of the time."""
    for _ in range(_WARM):
        work()
    seen = []
    for _ in range(10):
        count, begun = 0, time.thread_time()
        while (spent := time.thread_time() - begun) < seconds / 10:
            work()
            count += 1
        seen.append(spent / count * 1e6)
    return sorted(seen)[len(seen) // 2]


@dataclass(frozen=True, slots=True)
class Translation:
    """See above."""

    name: str = "translate"
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """n4n, whose worker rests meanwhile."""
        return peer.name == NAME

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Each pair for a thirtieth of a turn, whole and streamed."""
        share = seconds / 30
        for (skin, dialect), pair in pairs().items():
            into.translated.setdefault(f"{skin} ▸ {dialect}", []).append(Translated(cpu_us(pair.whole, share), cpu_us(pair.stream, share)))
        return f"{len(pairs())} pairs"
