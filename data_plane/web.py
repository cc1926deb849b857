"""The HTTP server of one worker: routes, bounds, and the outermost handler, where every error becomes an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from data_plane.answers import ClientGone, answer_headers
from data_plane.bodies import BodyBounds, BoundedRequest
from data_plane.callers import Asked, authenticate, new_request_id
from data_plane.connections import Bounds, Connection, Door, Refused
from data_plane.meter import Meter, Record
from data_plane.replies import error_body, error_headers, outcome
from data_plane.router import Router
from data_plane.skins.chat import chat_completions
from data_plane.skins.explain import encode, explain_route
from data_plane.skins.models import list_models, show_model
from n4n.core.errors import Draining, GatewayError, NoSuchRoute, TooManyConnections
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import exposition

log = logging.getLogger("n4n.data_plane")
Handler = Callable[[BoundedRequest, Asked, Record], Awaitable[web.StreamResponse]]


class Web:
    """The handler of every request of this worker."""

    def __init__(self, router: Router, meter: Meter, settings: Settings) -> None:
        self._router, self._meter, self._settings = router, meter, settings
        self._body_bounds = BodyBounds(settings.max_body_mib << 20, float(settings.body_timeout_sec))
        self.leaving = False  # /ready says so, and a balancer looks elsewhere
        self.draining = False  # every answer closes its connection; requests are served as ever
        self.running: set[asyncio.Task[object]] = set()  # the requests in the works
        self._cut = False
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/route:explain"): self._explain,
            ("GET", "/v1/models"): self._models,
        }

    def server(self) -> web.Server:
        """The aiohttp server; a request's task is cancelled when its client goes."""
        bounds = Bounds.of(self._settings)
        return Door(self.answer, request_factory=self._request, bounds=bounds, refusal=self._refusal, full=self._full)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if isinstance(protocol, Connection):
            protocol.began(payload)
        if self.draining:
            message = message._replace(should_close=True)
        return BoundedRequest(message, payload, protocol, writer, task, self._body_bounds)

    def _refusal(self, error: GatewayError) -> Refused:
        """The answer, and the record, of bytes that never became a request."""
        record = self._record()
        self._note(record, error)
        record.status = error.status
        self._meter.close(record)
        return Refused(error.status, answer_headers(record) | error_headers(error), error_body(error, record))

    def _full(self) -> Refused:
        """The answer to a client above the bound; it leaves no record, or a flood of clients would be a flood of lines."""
        error, record = TooManyConnections(retry_after_s=1), self._record()
        headers = {"server": "n4n", "x-request-id": record.request_id} | error_headers(error)
        return Refused(error.status, headers, error_body(error, record))

    def _record(self) -> Record:
        clock = self._router.clock
        return Record(request_id=new_request_id(), started=clock(), clock=clock, closing=lambda: self.draining)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, whatever it is."""
        assert isinstance(request, BoundedRequest)
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        try:
            response = await self._answer(request)
            if self.draining and not response.prepared:
                response.force_close()
            return response
        finally:
            self.running.discard(task)

    def cut(self) -> None:
        """Ends what still runs: a 503, or a last event where output has been sent."""
        self._cut = True
        for task in self.running:
            task.cancel()

    async def _answer(self, request: BoundedRequest) -> web.StreamResponse:
        plain = {"/live": self._live, "/ready": self._ready, "/metrics": self._metrics}.get(request.rel_url.raw_path)
        if plain is not None and request.method in ("GET", "HEAD"):
            return await plain()
        return await self._recorded(request)

    async def _recorded(self, request: BoundedRequest) -> web.StreamResponse:
        record = self._record()
        try:
            return await self._answered(request, Asked(request), record)
        except ClientGone as gone:
            record.status, record.outcome = 499, "cancelled"
            return gone.response
        finally:
            self._meter.close(record)

    async def _answered(self, request: BoundedRequest, asked: Asked, record: Record) -> web.StreamResponse:
        try:
            request.check()
            record.request_id = asked.request_id or record.request_id
            return await self._route(request)(request, asked, record)
        except GatewayError as error:
            return await self._failed(request, record, error)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not self._cut:
                raise  # the client is gone
            return await self._failed(request, record, Draining(retry_after_s=1))
        except Exception:  # the outermost handler: a fault of ours, told without details
            log.exception("request %s failed", record.request_id)
            return await self._failed(request, record, GatewayError("the gateway failed; its log tells why under this request id"))

    def _note(self, record: Record, error: GatewayError) -> None:
        record.outcome, record.error_code = outcome(error), error.code

    async def _failed(self, request: BoundedRequest, record: Record, error: GatewayError) -> web.StreamResponse:
        self._note(record, error)
        if record.interrupt is not None:
            record.status = 200
            return await record.interrupt(error)
        record.status = error.status
        headers = answer_headers(record) | error_headers(error)
        body = error_body(error, record)
        answer = web.Response(status=error.status, body=body, content_type="application/json", headers=headers)
        if request.doubtful or not request.content.is_eof():  # the rest is not waited for
            answer.force_close()
        return answer

    def _route(self, request: BoundedRequest) -> Handler:
        path = request.rel_url.raw_path  # as it came: %6detrics is not what a rule in front of us knows as metrics
        handler = self._routes.get((request.method, path))
        if handler is not None:
            return handler
        if request.method == "GET" and path.startswith("/v1/models/"):
            return self._model
        known = sorted({route for _, route in self._routes})
        raise NoSuchRoute(f"there is no {request.method[:16]} {path[:100]!r} here; this gateway serves {', '.join(known)}")

    async def _chat(self, request: BoundedRequest, asked: Asked, record: Record) -> web.StreamResponse:
        return await chat_completions(self._router, self._meter, request, asked, record)

    async def _explain(self, request: BoundedRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        return self._json(record, encode(explain_route(self._router, key, asked, await request.read())))

    async def _models(self, request: BoundedRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        return self._json(record, encode(list_models(self._router.world().snapshot, key)))

    async def _model(self, request: BoundedRequest, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        name = unquote(request.rel_url.raw_path.removeprefix("/v1/models/"))
        return self._json(record, encode(show_model(self._router.world().snapshot, key, name)))

    def _json(self, record: Record, body: bytes) -> web.Response:
        record.status, record.outcome = 200, "success"
        return web.Response(body=body, content_type="application/json", headers={"server": "n4n", "x-request-id": record.request_id})

    async def _live(self) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self) -> web.Response:
        if self.leaving:
            return web.Response(status=503, text="draining\n")
        if not self._router.ready:
            return web.Response(status=503, text="no catalog yet\n")
        return web.Response(text="ok\n")

    async def _metrics(self) -> web.Response:
        body = await asyncio.to_thread(exposition)
        return web.Response(body=body, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})
