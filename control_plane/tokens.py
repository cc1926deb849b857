"""Who may call what: the admin token everything, the node token or a certificate the watch and reporting usage. Neither, no answer."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence

import grpc

from control_plane.refusals import Forbidden, Refused, Unauthenticated
from control_plane.service.answers import refuse
from n4n.runtime.bearer import accepted

WATCH, REPORT, VITALS = "/n4n.v1.Discovery/Watch", "/n4n.v1.Usage/Report", "/n4n.v1.Operations/Report"
_OF_NODES = frozenset((WATCH, REPORT, VITALS))
_NOBODY = "the call carries no valid token; send the metadata authorization: Bearer TOKEN (N4N_ADMIN_TOKEN, on routers N4N_NODE_TOKEN)"
_ONLY_WATCH = "the node token may watch the catalog and report usage and health, and nothing else; use the admin token (N4N_ADMIN_TOKEN)"


class Tokens(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Checks the token before any handler sees the call. `admin` and `node` may name several; an empty one admits nobody.

    `certified`: every connection has shown a certificate of our authority, which is enough for what a node does.
    """

    def __init__(self, *, admin: str, node: str, certified: bool = False) -> None:
        self._admin = accepted(admin)
        self._node = accepted(node)
        self._certified = certified

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[object, object]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[object, object]:
        """The handler of the call, or one that refuses it."""
        refused = self._verdict(handler_call_details)
        return await continuation(handler_call_details) if refused is None else _refusing(refused)

    def _verdict(self, call: grpc.HandlerCallDetails) -> Refused | None:
        presented = _bearer(call)
        is_admin, is_node = _is_one_of(presented, self._admin), _is_one_of(presented, self._node)
        if is_admin or (call.method in _OF_NODES and (is_node or self._certified)):
            return None
        return Forbidden(_ONLY_WATCH) if is_node else Unauthenticated(_NOBODY)


def _bearer(call: grpc.HandlerCallDetails) -> bytes:
    for name, value in call.invocation_metadata or ():
        if name == "authorization":
            told = value.encode() if isinstance(value, str) else value
            return told[7:].strip() if told[:7].lower() == b"bearer " else b""
    return b""


def _is_one_of(presented: bytes, tokens: Sequence[bytes]) -> bool:
    return sum(hmac.compare_digest(presented, token) for token in tokens) > 0  # all are compared, whichever it is


def _refusing(refused: Refused) -> grpc.RpcMethodHandler[object, object]:
    async def refusing(requests: object, context: grpc.aio.ServicerContext[object, object]) -> None:
        await refuse(context, refused)

    return grpc.stream_stream_rpc_method_handler(refusing)
