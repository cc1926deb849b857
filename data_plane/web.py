"""The HTTP server of one worker: routes, bounds, and the outermost handler, where every error becomes an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from urllib.parse import unquote

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from data_plane.answers import ClientGone, answer_fields
from data_plane.bodies import BodyBounds, BoundedRequest
from data_plane.callers import Asked, authenticate
from data_plane.connections import Bounds, Connection, Door, Refused
from data_plane.counts import Totals
from data_plane.meter import Meter
from data_plane.outgoing import Outgoing
from data_plane.record import Record
from data_plane.replies import error_body, error_fields, outcome, plan_facts
from data_plane.router import Router
from data_plane.scrapes import Page
from data_plane.skins.conversation import converse
from data_plane.skins.counting import Counting
from data_plane.skins.explain import encode, explain_route
from data_plane.skins.models import list_models, show_model
from n4n.core import gen_ai
from n4n.core.errors import Draining, GatewayError, ModelNotFound, NoSuchRoute, TooManyConnections
from n4n.core.skins.messages_models import model, page
from n4n.core.skins.skin import Skin
from n4n.core.skins.table import MESSAGES, SKINS, skin_of
from n4n.runtime.exemplars import CONTENT_TYPE as OPENMETRICS_TYPE
from n4n.runtime.exemplars import OPENMETRICS, openmetrics
from n4n.runtime.labels import new_request_id
from n4n.runtime.logs import fields
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import exposition

_ENCODE = msgspec.json.Encoder().encode
log = logging.getLogger("n4n.data_plane")
Handler = Callable[[BoundedRequest, Outgoing, Asked, Record], Awaitable[web.StreamResponse | None]]


class Web:
    """The handler of every request of this worker."""

    def __init__(self, router: Router, meter: Meter, settings: Settings) -> None:
        self._router, self._meter, self._settings = router, meter, settings
        self._counting = Counting(router)
        self._plain_page, self._open_page = [Page(make, meter.tell, router.clock) for make in (exposition, openmetrics)]
        self._body_bounds = BodyBounds(settings.max_body_mib << 20, float(settings.body_timeout_sec))
        self.leaving = False  # /ready says so, and a balancer looks elsewhere
        self.draining = False  # every answer closes its connection; requests are served as ever
        self.running: dict[asyncio.Task[None], Record] = {}  # the requests in the works
        self._ended: dict[asyncio.Task[None], GatewayError] = {}  # those that we end, and why
        self._cut = False
        self._plain: dict[str, Callable[[BoundedRequest], Awaitable[web.StreamResponse]]] = {
            "/live": self._live,
            "/ready": self._ready,
            "/metrics": self._metrics,
        }
        self._routes: dict[tuple[str, str], Handler] = {
            **{("POST", path): partial(converse, router, meter, skin, gen_ai.OPERATIONS[path]) for path, skin in SKINS.items()},
            ("POST", "/v1/messages/count_tokens"): self._count,
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
            protocol.began(payload, upgrading=message.upgrade)
        if self.draining:
            message = message._replace(should_close=True)
        return BoundedRequest(message, payload, protocol, writer, task, self._body_bounds)

    def _refusal(self, error: GatewayError) -> Refused:
        """The answer, and the record, of bytes that never became a request."""
        record = self._record()
        self._note(record, error)
        record.status = error.status
        self._meter.close(record)
        return Refused(error.status, answer_fields(record) + error_fields(error), _ENCODE(error_body(error, record)))

    def _full(self) -> Refused:
        """The answer to a client above the bound; it leaves no record, or a flood of clients would be a flood of lines."""
        error, record = TooManyConnections(retry_after_s=1), self._record()
        fields = b"server: n4n\r\nx-request-id: %b\r\n" % record.request_id.encode()
        return Refused(error.status, fields + error_fields(error), _ENCODE(error_body(error, record)))

    def _record(self) -> Record:
        clock = self._router.clock
        return Record(request_id=new_request_id(), started=clock(), clock=clock, closing=self._closing)

    def _closing(self) -> bool:
        return self.draining

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, whatever it is. The outermost handler: here every error becomes an answer. One step: all requests take it."""
        assert isinstance(request, BoundedRequest)
        plain = self._plain.get(request.raw_path)
        if plain is not None and request.method in ("GET", "HEAD"):
            return self._unsent(await plain(request))
        record, outgoing, task = self._record(), Outgoing(request), request.task
        if self._meter.tracer is not None:
            record.trace = self._meter.tracer.began(request)
        self.running[task] = record
        try:
            try:
                request.check()
                asked = Asked(request)
                if not asked.plain:
                    record.request_id = asked.request_id or record.request_id
                response = await self._route(request)(request, outgoing, asked, record)
                if response is not None:
                    return self._unsent(response)
            except GatewayError as error:
                await self._failed(request, outgoing, record, error)
            except ClientGone:
                raise
            except asyncio.CancelledError:
                ended = self._ended.get(task)
                if ended is None and not self._cut:
                    raise  # the client is gone
                task.uncancel()
                await self._failed(request, outgoing, record, ended or Draining(retry_after_s=1))
                record.outcome = "cancelled" if ended is not None else record.outcome
            except Exception:  # a fault of ours, told without details
                log.exception("request %s failed", record.request_id, extra=_told_of(record))
                await self._failed(request, outgoing, record, GatewayError("the gateway failed; its log tells why under this request id"))
        except ClientGone:
            record.status, record.outcome = 499, "cancelled"
        finally:
            del self.running[task]
            if self._ended:
                self._ended.pop(task, None)
            self._meter.close(record)
        return outgoing.written  # type: ignore[return-value]  # the connection knows it

    def _unsent(self, response: web.StreamResponse) -> web.StreamResponse:
        """An answer that aiohttp sends."""
        if self.draining:
            response.force_close()
        return response

    @property
    def totals(self) -> Totals:
        """What was counted of requests since the start."""
        return self._meter.totals

    def told(self) -> None:
        """The last counts, for the end of the process."""
        self._meter.tell()

    def cut(self) -> None:
        """Ends what still runs: a 503, or a last event where output has been sent."""
        self._cut = True
        for task in self.running:
            task.cancel()

    def end(self, task: asyncio.Task[None], error: GatewayError) -> None:
        """Ends one that still runs: this error, or a last event where output has been sent. Again, it changes nothing."""
        if task in self.running and task not in self._ended:
            self._ended[task] = error
            task.cancel()

    def _note(self, record: Record, error: GatewayError) -> None:
        record.outcome, record.error_code = outcome(error), error.code
        if record.plan is None:
            considered, record.eliminated = plan_facts(error, record)
            record.considered = considered or 0
            catalog = self._router.in_force()[0]
            if catalog is not None and record.model is not None and not isinstance(error, ModelNotFound):
                with suppress(ModelNotFound):
                    record.target = catalog.resolve(record.model)

    async def _failed(self, request: BoundedRequest, outgoing: Outgoing, record: Record, error: GatewayError) -> None:
        self._note(record, error)
        if record.interrupt is not None:
            record.status = 200
            await record.interrupt(error)
            return
        record.status = error.status
        self._tell_limits(record)
        body = _ENCODE(_skin_of(request).envelope(error_body(error, record)))
        record.bytes_out = len(body)
        last = request.doubtful or not request.content.is_eof() or self.draining  # the rest is not waited for
        try:
            outgoing.whole(error.status, answer_fields(record) + error_fields(error), body, last=last)
            if outgoing.clogged:
                await outgoing.room()
        except ConnectionError as gone:
            raise ClientGone from gone

    def _tell_limits(self, record: Record) -> None:
        """Notes what the caller has left, for an answer that was given before anything was asked for."""
        quotas, key_id = self._router.quotas, record.key_id
        if record.limit_fields or quotas is None or key_id is None:
            return
        key = self._router.access().keys.get(key_id)
        if key is not None:
            record.limit_fields = quotas.known_fields(key)

    def _route(self, request: BoundedRequest) -> Handler:
        handler = self._routes.get((request.method, request.raw_path))
        if handler is not None:
            return handler
        path = request.rel_url.raw_path  # as it came: %6detrics is not what a rule in front of us knows as metrics
        handler = self._routes.get((request.method, path))
        if handler is not None:
            return handler
        if request.method == "GET" and path.startswith("/v1/models/"):
            return self._model
        known = sorted({route for _, route in self._routes})
        raise NoSuchRoute(f"there is no {request.method[:16]} {path[:100]!r} here; this gateway serves {', '.join(known)}")

    async def _explain(self, request: BoundedRequest, _: Outgoing, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        return self._json(record, encode(await explain_route(self._router, key, asked, await request.read())))

    async def _models(self, request: BoundedRequest, _: Outgoing, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        listed = list_models(self._router.snapshot, key)
        if _speaks_messages(request):
            listed = page(listed, **{name: asked.query(name) for name in ("limit", "after_id", "before_id")})
        return self._json(record, encode(listed))

    async def _model(self, request: BoundedRequest, _: Outgoing, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        name = unquote(request.rel_url.raw_path.removeprefix("/v1/models/"))
        shown = show_model(self._router.snapshot, key, name)
        return self._json(record, encode(model(shown) if _speaks_messages(request) else shown))

    async def _count(self, request: BoundedRequest, _: Outgoing, asked: Asked, record: Record) -> web.StreamResponse:
        key = authenticate(self._router.access(), asked)
        record.tenant, record.key_id = key.tenant, key.public_id
        if self._router.quotas is not None:
            await self._router.quotas.one_request(key, record)
        return self._json(record, await self._counting.answer(key, asked, await request.read(), record))

    def _json(self, record: Record, body: bytes) -> web.Response:
        record.status, record.outcome, record.bytes_out = 200, "success", len(body)
        self._tell_limits(record)
        limits = dict(line.split(": ", 1) for line in record.limit_fields.decode().splitlines())
        headers = {"server": "n4n", "x-request-id": record.request_id, **limits}
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _live(self, _: BoundedRequest) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: BoundedRequest) -> web.Response:
        if self.leaving:
            return web.Response(status=503, text="draining\n")
        if not self._router.ready:
            return web.Response(status=503, text="no catalog yet\n")
        return web.Response(text="ok\n")

    async def _metrics(self, request: BoundedRequest) -> web.Response:
        if OPENMETRICS in request.headers.get("accept", ""):
            return web.Response(body=await self._open_page.read(), headers={"content-type": OPENMETRICS_TYPE})
        return web.Response(body=await self._plain_page.read(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


def _told_of(record: Record) -> dict[str, dict[str, object]]:
    """What the line of a fault of ours has, so that the request's other lines are found."""
    trace = {} if record.trace is None else {"trace_id": f"{record.trace.trace_id:032x}"}
    return fields(code="request_failed", request_id=record.request_id, **trace)


def _speaks_messages(request: BoundedRequest) -> bool:
    """Whether a question about models comes from a client of Anthropic's API."""
    return "anthropic-version" in request.headers


def _skin_of(request: BoundedRequest) -> Skin:
    """In whose words the client is told of an error."""
    path = request.rel_url.raw_path
    return MESSAGES if path.startswith("/v1/models") and _speaks_messages(request) else skin_of(path)
