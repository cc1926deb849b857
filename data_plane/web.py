"""The HTTP server of one worker: routes, bounds, and the outermost handler, where every error becomes an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from data_plane.answers import ClientGone, answer_headers
from data_plane.callers import Asked, authenticate
from data_plane.meter import Meter, Record
from data_plane.replies import error_body, error_headers, outcome
from data_plane.router import Router
from data_plane.skins.chat import chat_completions
from data_plane.skins.explain import encode, explain_route
from data_plane.skins.models import list_models, show_model
from n4n.core.errors import BodyTooLarge, Draining, GatewayError, MalformedRequest, NoSuchRoute
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import exposition

log = logging.getLogger("n4n.data_plane")
Handler = Callable[[web.BaseRequest, Asked, Record], Awaitable[web.StreamResponse]]


class Web:
    """The handler of every request of this worker."""

    def __init__(self, router: Router, meter: Meter, settings: Settings) -> None:
        self._router, self._meter, self._settings = router, meter, settings
        self._max_body = settings.max_body_mib << 20
        self.draining = False
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/route:explain"): self._explain,
            ("GET", "/v1/models"): self._models,
        }

    def server(self) -> web.Server:
        """The aiohttp server; a request's task is cancelled when its client goes."""
        return web.Server(
            self.answer,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=float(self._settings.keep_alive_sec),
            lingering_time=2.0,
        )

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: object,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._max_body)  # type: ignore[arg-type]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, whatever it is."""
        plain = {"/live": self._live, "/ready": self._ready, "/metrics": self._metrics}.get(request.path)
        if plain is not None and request.method in ("GET", "HEAD"):
            return await plain()
        return await self._recorded(request)

    async def _recorded(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request)
        record = Record(request_id=asked.request_id, started=self._router.clock(), clock=self._router.clock)
        try:
            return await self._answered(request, asked, record)
        except ClientGone as gone:
            record.status, record.outcome = 499, "cancelled"
            return gone.response
        finally:
            self._meter.close(record)

    async def _answered(self, request: web.BaseRequest, asked: Asked, record: Record) -> web.StreamResponse:
        try:
            return await self._route(request)(request, asked, record)
        except GatewayError as error:
            return await self._failed(record, error)
        except web.HTTPRequestEntityTooLarge:
            limit = f"the request body is larger than {self._settings.max_body_mib} MiB, the bound that N4N_MAX_BODY_MIB sets"
            return await self._failed(record, BodyTooLarge(limit))
        except web.RequestPayloadError:
            return await self._failed(record, MalformedRequest("the request body broke off or is not well-formed HTTP"))
        except ClientGone:
            raise
        except Exception:  # the outermost handler: a fault of ours, told without details
            log.exception("request %s failed", record.request_id)
            return await self._failed(record, GatewayError("the gateway failed; its log tells why under this request id"))

    async def _failed(self, record: Record, error: GatewayError) -> web.StreamResponse:
        record.outcome, record.error_code = outcome(error), error.code
        if record.interrupt is not None:
            record.status = 200
            return await record.interrupt(error)
        record.status = error.status
        headers = answer_headers(record) | error_headers(error)
        return web.Response(
            status=error.status, body=error_body(error, record.request_id), content_type="application/json", headers=headers
        )

    def _route(self, request: web.BaseRequest) -> Handler:
        if self.draining:
            raise Draining(retry_after_s=1)
        path = request.path
        handler = self._routes.get((request.method, path))
        if handler is not None:
            return handler
        if request.method == "GET" and path.startswith("/v1/models/"):
            return self._model
        known = sorted({route for _, route in self._routes})
        raise NoSuchRoute(f"there is no {request.method[:16]} {path[:100]!r} here; this gateway serves {', '.join(known)}")

    async def _chat(self, request: web.BaseRequest, asked: Asked, record: Record) -> web.StreamResponse:
        return await chat_completions(self._router, self._meter, request, asked, record, float(self._settings.slow_reader_sec))

    async def _explain(self, request: web.BaseRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        return self._json(record, encode(explain_route(self._router, key, asked, await request.read())))

    async def _models(self, request: web.BaseRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        return self._json(record, encode(list_models(self._router.world().snapshot, key)))

    async def _model(self, request: web.BaseRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        name = unquote(request.path.removeprefix("/v1/models/"))
        return self._json(record, encode(show_model(self._router.world().snapshot, key, name)))

    def _json(self, record: Record, body: bytes) -> web.Response:
        record.status, record.outcome = 200, "success"
        return web.Response(body=body, content_type="application/json", headers={"server": "n4n", "x-request-id": record.request_id})

    async def _live(self) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self) -> web.Response:
        if self.draining:
            return web.Response(status=503, text="draining\n")
        if not self._router.ready:
            return web.Response(status=503, text="no catalog yet\n")
        return web.Response(text="ok\n")

    async def _metrics(self) -> web.Response:
        body = await asyncio.to_thread(exposition)
        return web.Response(body=body, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})
