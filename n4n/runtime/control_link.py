"""The node's end of Discovery.Watch: one stream to one control plane at a time, a new channel for every try, never a retry by gRPC.

gRPC's own reconnection is slow after a restart and sometimes does not come at all (grpc issue 38290), so a channel is thrown
away with its first failure. The rules of the link (silence, waiting) are `n4n.core.discovery`'s.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # with it a live stream makes one in seven child processes crash before exec
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is told by n4n, in its own words

import grpc

from n4n.core.discovery import Heads, Held, LinkRules, Nack, Part, Tries, Unreadable, answered, next_try
from n4n.core.errors import StartFailed
from n4n.runtime import wire
from n4n.runtime.bearer import sent
from n4n.runtime.tls import NO_TLS, TlsFiles, channel_credentials

WATCH: Final = "/n4n.v1.Discovery/Watch"
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # messages stay under 1 MiB; the rest is room for a resource of unusual size
_SIGNS_OF_TLS = ("handshake", "verification")  # in what gRPC says
_LAST_WORDS_S = 0.5  # for a NACK to arrive before the stream is left
_log = logging.getLogger(__name__)


class LinkState(StrEnum):
    """Where the link stands."""

    DOWN = "down"
    CONNECTING = "connecting"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Ack:
    """What is held now."""

    held: Held


@dataclass(frozen=True, slots=True)
class Refuse:
    """A version is not used."""

    collection: int
    nack: Nack


@dataclass(frozen=True, slots=True)
class Leave:
    """This stream is of no more use."""

    reason: str


Answer = Ack | Refuse | Leave


class Receiver(Protocol):
    """Who follows the stream."""

    def begin(self) -> Sequence[Held]:
        """A new stream opens: what is held now. Half an update of the stream before is forgotten."""
        ...

    async def receive(self, message: Part | Heads) -> Sequence[Answer]:
        """What to answer; the next message is read afterwards."""
        ...

    def lost(self) -> None:
        """The stream ended."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is to the control plane; `token` goes with every call."""

    node: str
    role: str  # data-plane or prober
    build: str
    token: str  # empty: the certificate in `tls` is enough
    tls: TlsFiles = NO_TLS

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with a call."""
        return (("authorization", f"Bearer {sent(self.token)}"),) if self.token else ()

    def __repr__(self) -> str:
        return f"Identity({self.node!r}, {self.role!r}, {self.build!r})"


def open_channel(target: str, connect_s: float, tls: TlsFiles = NO_TLS, max_message_bytes: int = MAX_MESSAGE_BYTES) -> grpc.aio.Channel:
    """A channel of its own, which neither shares a connection nor retries a call. gRPC connects within `connect_s` or fails the call.

    StartFailed when the files of `tls` cannot be used.
    """
    options: list[tuple[str, int]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.min_reconnect_backoff_ms", max(100, round(connect_s * 1000))),  # it bounds one try at connecting
        ("grpc.initial_reconnect_backoff_ms", max(100, round(connect_s * 1000))),
        ("grpc.max_receive_message_length", max_message_bytes),
    ]
    credentials = channel_credentials(tls)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


class ControlLink:
    """Keeps one stream alive to one of several control planes; plain attributes tell how it stands."""

    def __init__(
        self,
        targets: Sequence[str],
        identity: Identity,
        receiver: Receiver,
        *,
        rules: LinkRules,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.state = LinkState.DOWN
        self.target = ""  # the control plane last tried
        self.problem = ""  # why the last stream ended; empty while up
        self._targets, self._identity, self._receiver = tuple(targets), identity, receiver
        self._rules, self._clock, self._draw = rules, clock, draw
        self._tries = Tries()

    def __repr__(self) -> str:
        return f"ControlLink({self.state.value}, {self.target!r}, {self.problem!r})"

    async def run(self) -> None:
        """Until cancelled. Without a control plane to go to it only says so."""
        if not self._targets:
            self.problem = "no control plane is named; set N4N_ADMIN_URL"
            _log.warning("control link: %s", self.problem)
            await asyncio.Event().wait()
        for target in itertools.cycle(self._targets):
            self.state, self.target = LinkState.CONNECTING, target
            try:
                reason = await self._follow(target)
            finally:
                self.state = LinkState.DOWN
                self._receiver.lost()
            if reason != self.problem:
                _log.warning("control link to %s: %s", target, reason)
            self.problem = reason
            self._tries, wait = next_try(self._tries, self._clock(), self._draw(), self._rules)
            await asyncio.sleep(wait)

    async def _follow(self, target: str) -> str:
        """One stream from its opening to its end; why it ended."""
        try:
            channel = open_channel(target, self._rules.connect_s, self._identity.tls)
        except StartFailed as error:  # a certificate that is being renewed may be half there
            return str(error)
        try:
            return await self._converse(channel)
        except TimeoutError:
            return f"nothing was heard for {self._rules.silence_s:g} s"
        except Unreadable as error:
            return str(error)
        except grpc.aio.AioRpcError as error:
            return told(error)
        except (asyncio.InvalidStateError, grpc.aio.UsageError):
            return "the stream ended while it was written to"
        finally:
            await channel.close(None)

    async def _converse(self, channel: grpc.aio.Channel) -> str:
        identity = self._identity
        watch = channel.stream_stream(WATCH, None, None)  # bytes as they are
        call = watch(None, metadata=identity.metadata)
        await self._send(call, wire.encode_hello(identity.node, identity.role, identity.build, self._receiver.begin()))
        while True:
            async with asyncio.timeout(self._rules.silence_s):
                encoded = await call.read()
            if not isinstance(encoded, bytes):
                return "the control plane ended the stream"
            message = wire.decode_watch(encoded)
            self._is_up()
            for answer in await self._receiver.receive(message) if message is not None else ():
                match answer:
                    case Ack(held):
                        await self._send(call, wire.encode_ack(held))
                    case Refuse(collection, nack):
                        await self._send(call, wire.encode_nack(collection, nack))
                    case Leave(reason):
                        await self._say_goodbye(call)
                        return reason

    async def _send(self, call: grpc.aio.StreamStreamCall[bytes, bytes], encoded: bytes) -> None:
        async with asyncio.timeout(self._rules.silence_s):
            await call.write(encoded)

    async def _say_goodbye(self, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        """Ends our half and lets the control plane read what was said: a stream that is cancelled may drop it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await call.done_writing()
                while isinstance(await call.read(), bytes):
                    pass

    def _is_up(self) -> None:
        if self.state is not LinkState.UP:
            _log.info("control link to %s is up", self.target)
        self.state, self.problem = LinkState.UP, ""
        self._tries = answered(self._tries)


def told(error: grpc.aio.AioRpcError) -> str:
    """Why a stream ended, in a line that names the remedy where there is one."""
    match error.code():
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return "the control plane refuses this node's token; give both the same N4N_NODE_TOKEN"
        case grpc.StatusCode.UNAVAILABLE if any(sign in (error.details() or "").lower() for sign in _SIGNS_OF_TLS):
            return "the control plane and this node do not agree on TLS; check N4N_TLS_CA, N4N_TLS_CERT and the names in the certificates"
        case grpc.StatusCode.UNAVAILABLE:
            return "the control plane cannot be reached"
        case grpc.StatusCode.UNIMPLEMENTED:
            return "what answers there is no n4n control plane; check N4N_ADMIN_URL"
        case code:
            return f"the control plane ended the stream: {code.name} {_one_line(error.details())}"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:300]
