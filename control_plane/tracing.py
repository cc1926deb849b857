"""Traces of a control plane: a server span for each call that it lets in, and a span for each version that goes out to a node.

Calls without a good token leave no span: a stranger decides nothing about what is kept. No author, no key, no document and no reason in a
node's own words is in any attribute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Final, cast

import grpc

from control_plane.tokens import VITALS, WATCH
from n4n.core.tracing import Parent, read_parent, word
from n4n.runtime.spans import Tracer, Work
from n4n.runtime.tracing import Kind
from n4n.runtime.wire import ACCESS, CATALOG

QUIET: Final = frozenset((WATCH, VITALS))  # without end, and every five seconds of each router
TOGETHER_S: Final = 60.0  # a version that goes out later is a trace of its own: nobody waited for it
_FAULTS: Final = frozenset(("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"))  # ours, not theirs
_COLLECTIONS: Final[Mapping[int, str]] = {CATALOG: "catalog", ACCESS: "access"}
Context = grpc.aio.ServicerContext[object, object]


class Traced(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Makes a span of every call that has a handler; stands behind the one that asks for tokens."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[object, object]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[object, object]:
        """The handler of the call, which tells what it does."""
        call = handler_call_details
        handler = await continuation(call)
        if handler is None or call.method in QUIET:
            return handler
        method, parent = call.method.removeprefix("/"), _parent_of(call)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._answered(method, parent, handler.unary_unary), handler.request_deserializer, handler.response_serializer
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._streamed(method, parent, handler.unary_stream), handler.request_deserializer, handler.response_serializer
            )
        return handler

    def _answered(self, method: str, parent: Parent | None, inner: Callable[..., object]) -> Callable[..., object]:
        answer = cast(Callable[[object, Context], Awaitable[object]], inner)

        async def answering(request: object, context: Context) -> object:
            with self._served(method, parent, context):
                return await answer(request, context)

        return answering

    def _streamed(self, method: str, parent: Parent | None, inner: Callable[..., object]) -> Callable[..., object]:
        answers = cast(Callable[[object, Context], AsyncGenerator[object, None]], inner)

        async def streaming(request: object, context: Context) -> AsyncIterator[object]:
            with self._served(method, parent, context):
                async with aclosing(answers(request, context)) as given:
                    async for answer in given:
                        yield answer

        return streaming

    @contextmanager
    def _served(self, method: str, parent: Parent | None, context: Context) -> Iterator[None]:
        """The call's span, which tells how it ended: a refusal is worth keeping, and is no fault of ours."""
        with self._tracer.begin(method, Kind.SERVER, parent=parent) as work:
            work.told |= {"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": "UNKNOWN"}
            try:
                yield
            except grpc.aio.AbortError:
                code = _name_of(context.code())
                work.told |= {"rpc.response.status_code": code, "error.type": code}
                work.notice()
                if code in _FAULTS:
                    work.fail(code)
                work.end()
                raise
            except (asyncio.CancelledError, GeneratorExit):  # the caller left, or its time was up
                work.told["rpc.response.status_code"] = "CANCELLED"
                work.fail("CANCELLED")
                raise
            else:
                work.told["rpc.response.status_code"] = "OK"


@dataclass(frozen=True, slots=True)
class Origin:
    """How a version came to be published by this process, and the change that made it, perhaps in another."""

    version: int
    work: Work
    cause: Parent | None


def publishing(tracer: Tracer | None, collection: int, traceparent: str | None = None) -> Work | None:
    """A version was found in Postgres and is about to go out; `traceparent`: of the change that made it. None: it is not traced."""
    if tracer is None:
        return None
    cause = read_parent(traceparent)
    work = tracer.begin("n4n publish", causes=() if cause is None else (cause,), kept=cause is not None and cause.sampled)
    work.told["n4n.collection"] = _COLLECTIONS[collection]
    return work


class Pushes:
    """The spans of versions on their way to nodes. Each begins when the version goes out and ends with the node's answer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, collection: int, origin: Origin | None, node: str, versions: tuple[int, int], parts: Sequence[bytes]) -> Work:
        """An update, from a version that the node holds to another, goes out in parts."""
        before, version = versions
        if origin is not None and origin.version != version:
            origin = None
        cause = None if origin is None else origin.cause
        work = self._tracer.begin(
            "n4n push",
            Kind.CLIENT,
            parent=origin.work.context if origin is not None and self._is_recent(origin.work) else None,
            causes=() if cause is None else (cause,),
            kept=cause is not None and cause.sampled,
        )
        name = _COLLECTIONS[collection]
        work.told |= {"n4n.collection": name, f"n4n.{name}_version": version, "n4n.base_version": before}
        work.told |= {"n4n.parts": len(parts), "n4n.bytes": sum(map(len, parts))}
        named = word(node)
        if named is not None:
            work.told["n4n.node"] = named
        return work

    def _is_recent(self, work: Work) -> bool:
        return (self._tracer.wall_ns() - work.begun_ns) / 1e9 < TOGETHER_S


def answered(work: Work | None, answer: str, field: str = "") -> None:
    """The node's answer came (`acked`, `refused`), or none ever will (`left`). `field`: what it complains of."""
    if work is None:
        return
    work.told["n4n.answer"] = answer
    if answer == "refused":
        named = word(field)
        if named is not None:
            work.told["n4n.field"] = named
        work.fail("nack")
    work.end()


def _parent_of(call: grpc.HandlerCallDetails) -> Parent | None:
    told = {name: value for name, value in call.invocation_metadata or () if isinstance(value, str)}
    return read_parent(told.get("traceparent"), told.get("tracestate"))


def _name_of(code: object) -> str:
    return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
