"""How a refusal leaves over gRPC: a status, one line, and the detail in the trailing metadata `n4n-error-bin`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from sqlalchemy.exc import DataError

from control_plane.audit import SOURCE
from control_plane.refusals import InvalidRequest, Refused
from control_plane.schema import DatabaseAway
from n4n.runtime.logs import fields
from n4n.runtime.spans import current_work
from n4n.v1 import catalog_pb2

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Context = grpc.aio.ServicerContext[Message, Message]
DETAIL_KEY: Final = "n4n-error-bin"
_DETAIL_BYTES = 3_500  # clients refuse metadata beyond 8 KiB in all, of which the line takes a part
_LINE = 600
_STATUS: Mapping[str, grpc.StatusCode] = {
    "invalid_request": grpc.StatusCode.INVALID_ARGUMENT,
    "invalid_catalog": grpc.StatusCode.INVALID_ARGUMENT,
    "version_conflict": grpc.StatusCode.ABORTED,
    "shrink": grpc.StatusCode.FAILED_PRECONDITION,
    "revoked": grpc.StatusCode.FAILED_PRECONDITION,
    "label_taken": grpc.StatusCode.ALREADY_EXISTS,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "permission_denied": grpc.StatusCode.PERMISSION_DENIED,
}
_MAX_LINE = 1000
_log = logging.getLogger("n4n.control_plane")
_LAST_MS = 4_102_444_800_000  # the year 2100
_MAX_AUTHOR = 200


@asynccontextmanager
async def answering(context: Context) -> AsyncIterator[None]:
    """Turns refusals inside it into the call's status; changes inside it are audited as from the caller's address."""
    SOURCE.set(context.peer())
    try:
        yield
    except Refused as refused:
        await refuse(context, refused)
    except DatabaseAway as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{error}; try again once n4n status shows the database ok")
    except grpc.aio.AbortError:
        raise
    except Exception as error:  # noqa: BLE001  # the outermost: grpc would tell the caller the fault's own words, which may hold a secret
        if isinstance(error, DataError) and "NUL" in str(error.orig):
            await refuse(context, InvalidRequest("a name in the request holds a NUL character, which no name has; leave it out"))
        _log.exception("a call failed", extra=fields(code="call_failed"))
        await context.abort(grpc.StatusCode.INTERNAL, "the control plane failed; its log tells why")


async def refuse(context: grpc.aio.ServicerContext[RequestType, ReplyType], refused: Refused) -> NoReturn:
    """Ends the call with the refusal's status, line and detail."""
    work = current_work()
    if work is not None:
        work.told |= {"n4n.refused": refused.code, "n4n.problems": len(refused.problems)}
    detail = catalog_pb2.ErrorDetail(code=refused.code, message=refused.message[:_LINE], head_version=refused.head_version)
    for index, problem in enumerate(refused.problems):
        told = catalog_pb2.Problem(field=problem.field[:300], message=problem.message[:300])
        if detail.ByteSize() + told.ByteSize() > _DETAIL_BYTES:
            detail.problems.add(message=f"and {len(refused.problems) - index} more; n4n catalog validate names all")
            break
        detail.problems.append(told)
    await context.abort(_STATUS[refused.code], detail.message, ((DETAIL_KEY, detail.SerializeToString()),))


def unary_handlers(service: ServiceDescriptor, methods: Mapping[str, Callable[..., object]]) -> grpc.GenericRpcHandler[Message, Message]:
    """Handlers of a service whose calls are all one request, one reply; `methods` by their names in the proto file."""
    return grpc.method_handlers_generic_handler(service.full_name, _handlers(service, methods))


def mixed_handlers(
    service: ServiceDescriptor, methods: Mapping[str, Callable[..., object]], streams: Mapping[str, Callable[..., object]]
) -> grpc.GenericRpcHandler[Message, Message]:
    """As `unary_handlers`; `streams` answer one request with many replies."""
    handlers = _handlers(service, methods)
    for name, method in streams.items():
        described = service.methods_by_name[name]
        handlers[name] = grpc.unary_stream_rpc_method_handler(
            method,
            request_deserializer=message_factory.GetMessageClass(described.input_type).FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handlers(
    service: ServiceDescriptor, methods: Mapping[str, Callable[..., object]]
) -> dict[str, grpc.RpcMethodHandler[Message, Message]]:
    handlers = {}
    for name, method in methods.items():
        described = service.methods_by_name[name]
        handlers[name] = grpc.unary_unary_rpc_method_handler(
            method,
            request_deserializer=message_factory.GetMessageClass(described.input_type).FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )
    return handlers


def author_of(told: str) -> str:
    """Who makes a change, as the caller says."""
    return _line("author", told, _MAX_AUTHOR) or "unknown"


def message_of(told: str) -> str:
    """Why a change is made, as the caller says."""
    return _line("message", told, _MAX_LINE)


def _line(field: str, told: str, longest: int) -> str:
    line = " ".join(told.split())
    if len(line) > longest or not line.isprintable():
        raise InvalidRequest(f"{field}: must be one line of at most {longest} printable characters")
    return line


def instant(field: str, ms: int) -> datetime:
    """Unix milliseconds of a question as a time."""
    if not 0 <= ms < _LAST_MS:
        raise InvalidRequest(f"{field}: must be Unix milliseconds before the year 2100")
    return datetime.fromtimestamp(ms / 1000, UTC)
