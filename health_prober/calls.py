"""One call to one endpoint, as a router makes it: the same dialects, the same connections, the same signatures. No retry, no fallback."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from n4n.core.catalog import Account, Endpoint, Provider
from n4n.core.chat import ChatRequest, Chunk, Done, Failed, Usage
from n4n.core.dialects import Dialect
from n4n.core.dialects.system_prompt import spelled_out
from n4n.core.dialects.wording import without_secret
from n4n.core.errors import Failure, FailureClass, RequestError
from n4n.core.probes import balances
from n4n.runtime.rehearsal import endured
from n4n.runtime.signing import signed
from n4n.runtime.upstream import Phases, Reply, Upstream, UpstreamFault

_CONNECT_S = 3.0  # at most, of a probe's time
_NO_FIRST_TOKEN = Failure(FailureClass.TIMEOUT, "the provider did not send a first token in time")


class Heard(msgspec.Struct, frozen=True):
    """How a call ended; `failure` None: well. `answer`: the whole one, in its dialect's shape, of a call that was no stream.

    `injected`: what befell it by the catalog's fault; empty: nothing.
    """

    failure: Failure | None
    latency_s: float
    ttft_s: float | None = None
    usage: Usage | None = None
    output_bytes: int = 0
    answer: bytes = b""
    injected: str = ""


class Calls:
    """`secret` reveals an account's key; `clock` is monotonic, `wall` Unix time, in seconds; `draw` gives numbers in [0, 1)."""

    def __init__(
        self,
        upstream: Upstream,
        dialects: Mapping[str, Dialect],
        secret: Callable[[str], str | None],
        clock: Callable[[], float],
        wall: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._upstream, self._dialects, self._secret = upstream, dialects, secret
        self._clock, self._wall, self._draw = clock, wall, draw

    async def ask(
        self,
        request: ChatRequest,
        endpoint: Endpoint,
        account: Account,
        timeout_s: float,
        request_id: str,
        first_token_s: float,
        extra: bytes = b"",
    ) -> Heard:
        """Never raises for anything a provider can do. `first_token_s`: how long the first output may take, of a stream.

        `extra`: whole header lines.
        """
        begun = self._clock()
        first_s = first_token_s if request.stream else timeout_s
        phases = Phases(min(_CONNECT_S, first_s), first_s, timeout_s, begun + timeout_s)
        if endpoint.fault is None:
            return await self._asked(request, endpoint, account, phases, begun, request_id, extra)
        strike, dialect = endpoint.fault.strike(self._draw), self._dialects[endpoint.provider.dialect]
        came = await endured(strike, dialect, phases, self._clock, self._wall)
        if isinstance(came, Failure):
            return Heard(dataclasses.replace(came, may_have_run=False), self._clock() - begun, injected=str(strike))
        return replace(await self._asked(request, endpoint, account, came, begun, request_id, extra), injected=str(strike))

    async def _asked(
        self, request: ChatRequest, endpoint: Endpoint, account: Account, phases: Phases, begun: float, request_id: str, extra: bytes
    ) -> Heard:
        dialect, secret = self._dialects[endpoint.provider.dialect], self._secret(account.name)
        first_by = self._clock() + phases.first_byte_s
        try:
            call = dialect.encode(spelled_out(request, endpoint), endpoint, secret)
            if call.signing is not None:
                call = await signed(call, secret, self._wall())
            async with self._upstream.send(call, request_id, phases, extra) as reply:
                if reply.status != 200:
                    failure = dialect.failure(reply.status, reply.headers, await reply.read_error(), self._wall())
                    return Heard(without_secret(failure, secret), self._clock() - begun)
                if request.stream:
                    heard = await self._streamed(request, dialect, reply, begun, first_by)
                else:
                    heard = self._whole(dialect.decode(await reply.read(), reply.content_type, request), begun)
                return heard if heard.failure is None else replace(heard, failure=without_secret(heard.failure, secret))
        except UpstreamFault as fault:
            return Heard(fault.failure, self._clock() - begun)
        except RequestError as error:  # it cannot be said in this endpoint's words
            return Heard(Failure(FailureClass.BAD_REQUEST, error.message, param=error.param, may_have_run=False), self._clock() - begun)

    def _whole(self, came: Chunk | Failure, begun: float) -> Heard:
        took = self._clock() - begun
        if isinstance(came, Failure):
            return Heard(came, took)
        return Heard(None, took, None, came.usage, came.output_bytes, came.payload)

    async def _streamed(self, request: ChatRequest, dialect: Dialect, reply: Reply, begun: float, first_by: float) -> Heard:
        """Until every choice has finished and its usage has come, or the stream ends."""
        decoder = dialect.decoder(request)
        ttft: float | None = None
        usage: Usage | None = None
        output_bytes, over = 0, False
        while not over:
            piece = await reply.next(first_by if ttft is None else None)
            if piece is None:
                return Heard(_NO_FIRST_TOKEN, self._clock() - begun)
            events = decoder.feed(piece) if piece else decoder.end()
            for event in events:
                match event:
                    case Chunk():
                        if ttft is None and (event.content or event.finishes):
                            ttft = self._clock() - begun
                        usage, output_bytes = event.usage or usage, output_bytes + event.output_bytes
                    case Failed(failure=failure):
                        return Heard(failure, self._clock() - begun, ttft)
                    case Done():
                        over = True
                    case _:
                        pass
            over = over or not piece
        took = self._clock() - begun
        return Heard(None if ttft is not None else _NO_FIRST_TOKEN, took, ttft, usage, output_bytes)

    async def balance(
        self, api: str, provider: Provider, account: Account, timeout_s: float, request_id: str, extra: bytes = b""
    ) -> balances.Left | Failure:
        """What is left on an account, as its provider tells it."""
        begun = self._clock()
        phases = Phases(min(_CONNECT_S, timeout_s), timeout_s, timeout_s, begun + timeout_s)
        secret = self._secret(account.name)
        try:
            question = balances.question(api, provider, secret)
            async with self._upstream.send(question, request_id, phases, extra) as reply:
                if reply.status != 200:
                    dialect = self._dialects[provider.dialect]
                    return without_secret(dialect.failure(reply.status, reply.headers, await reply.read_error(), self._wall()), secret)
                told = balances.left(api, provider, await reply.read())
        except UpstreamFault as fault:
            return fault.failure
        return told or Failure(FailureClass.SERVER_ERROR, "the provider's answer holds no balance", status=200)
