"""The skin of POST /v1/chat/completions: OpenAI's chat request in, OpenAI's answer or stream out."""

from __future__ import annotations

from data_plane.answers import Answer, StreamAnswer, WholeAnswer
from data_plane.bodies import BoundedRequest
from data_plane.callers import Asked, authenticate
from data_plane.meter import Meter
from data_plane.outgoing import Outgoing
from data_plane.record import Record
from data_plane.request import Exchange, serve
from data_plane.router import Router
from n4n.core.chat_request import read_chat


async def chat_completions(router: Router, meter: Meter, request: BoundedRequest, outgoing: Outgoing, asked: Asked, record: Record) -> None:
    """Answers one chat request, or raises GatewayError."""
    key = authenticate(router.access(), asked)
    record.tenant, record.key_id, record.no_store = key.tenant, key.public_id, asked.no_store
    timeout_s = asked.timeout_s
    asked.check_priority()
    chat = read_chat(await request.read())
    record.model, record.stream = chat.model, chat.stream
    directives = asked.directives(key, chat)
    answer: Answer = WholeAnswer(outgoing, record)
    if chat.stream:
        answer = StreamAnswer(outgoing, record, meter, include_usage=chat.include_usage, keep_alive_s=router.keep_alive_s)
    exchange = Exchange(
        chat=chat,
        directives=directives,
        allowed_models=key.models,
        deadline=None if timeout_s is None else record.started + timeout_s,
        answer=answer,
        record=record,
    )
    await serve(router, exchange)
