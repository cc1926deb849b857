"""Every skin that asks a model: the request read as its protocol says, then the one engine, then the answer as the protocol says."""

from __future__ import annotations

from functools import partial

from data_plane.answers import Answer, StreamAnswer, WholeAnswer
from data_plane.bodies import BoundedRequest
from data_plane.callers import PRIORITIES, Asked, authenticate
from data_plane.content import Content
from data_plane.exchange import Exchange
from data_plane.idempotency import Held
from data_plane.meter import Meter
from data_plane.once import serve_once
from data_plane.outgoing import Outgoing, Way
from data_plane.parts import TimedAnswer
from data_plane.record import Record
from data_plane.request import serve
from data_plane.router import Router
from n4n.core import large
from n4n.core.access import Key
from n4n.core.idempotency import HEADER, check_key
from n4n.core.skins.skin import Skin
from n4n.core.tags import HEADER as TAGS
from n4n.core.tags import of_request


async def converse(
    router: Router, meter: Meter, skin: Skin, operation: str, request: BoundedRequest, outgoing: Outgoing, asked: Asked, record: Record
) -> None:
    """Answers one request, or raises GatewayError."""
    record.operation = operation
    key = authenticate(router.access(), asked)
    parts = record.parts = meter.parts(router.clock)
    if parts is not None:
        parts.auth_s = parts.clock() - record.started
    record.tenant, record.key_id = key.tenant, key.public_id
    timeout_s, priority, once = None, key.priority or PRIORITIES[0], None
    if not asked.plain:
        record.no_store, timeout_s = asked.no_store, asked.timeout_s
        asked.check_priority()
        priority = asked.get("x-n4n-priority") or priority
        once = asked.get(HEADER)
        if once is not None:
            check_key(once)
        record.tags = of_request(key.tags, asked.get(TAGS))
    elif key.tags:
        record.tags = of_request(key.tags, None)
    body = request.came()
    if body is None:
        body = await request.read()
    record.body_bytes = len(body)
    begun = 0.0 if parts is None else parts.clock()
    chat = skin.read(body, asked.get) if len(body) < large.LARGE else await router.aside.do(partial(large.read, skin, body, asked.get))
    if parts is not None:
        parts.translate_s = parts.clock() - begun
    record.model, record.stream = chat.model, chat.stream
    record.ledger, record.most_output = meter.ledger, chat.max_output_tokens
    record.priority = priority
    directives = asked.directives(key, chat)
    answer: Answer
    way: Way = outgoing
    if once is not None:
        way = held = Held(outgoing, skin.keep_alive)
        known = await router.once.known(key.tenant, once, request.rel_url.raw_path, body)
    if chat.stream:
        answer = StreamAnswer(way, record, meter, skin, skin.frames(chat), keep_alive_s=router.keep_alive_s)
    else:
        answer = WholeAnswer(way, record, skin, chat, router.aside)
    if key.capture_content and record.trace is not None and _is_still_wanted(router, key):
        record.content = Content(body)
        if chat.stream and record.trace.sampled:
            answer = record.content.heard_through(answer)
    if parts is not None:
        answer = TimedAnswer(answer, parts)
    exchange = Exchange(
        chat=chat,
        skin=skin,
        directives=directives,
        key=key,
        priority=priority,
        deadline=None if timeout_s is None else record.started + timeout_s,
        answer=answer,
        record=record,
    )
    if once is None:
        await serve(router, exchange)
    else:
        await serve_once(router, exchange, held, known)


def _is_still_wanted(router: Router, key: Key) -> bool:
    """Whether content is told of its tenant's requests now: a body may take its time."""
    now = router.access().keys.get(key.public_id)
    return now is not None and now.capture_content
