"""The skin of POST /v1/route:explain: a dry run of the plan, every candidate kept or eliminated and by what. Sends nothing."""

from __future__ import annotations

import msgspec

from data_plane.callers import Asked
from data_plane.router import Router
from data_plane.skins.models import price_block
from n4n.core import json_bytes
from n4n.core.access import Key
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import read_chat
from n4n.core.plan import explain

_NO_MESSAGES = msgspec.Raw(b'[{"role":"user","content":""}]')


def read_explain(body: bytes) -> ChatRequest:
    """A chat request whose messages may be left out."""
    try:
        fields = json_bytes.members(body)
    except json_bytes.NotJson:
        return read_chat(body)  # which says what is wrong
    fields.setdefault("messages", _NO_MESSAGES)
    return read_chat(json_bytes.join((name, bytes(raw)) for name, raw in fields.items()))


def explain_route(router: Router, key: Key, asked: Asked, body: bytes) -> dict[str, object]:
    """Candidates in the order they would be tried, then the eliminated ones."""
    chat = read_explain(body)
    directives = asked.directives(key, chat)
    world = router.world_of(key)
    rows = explain(chat, directives, world, allowed_models=key.models, now=router.clock(), draw=router.draw)
    return {
        "model": chat.model,
        "catalog_version": world.snapshot.version,
        "directives": directives.applied,
        "candidates": [
            {
                "endpoint": row.endpoint.id,
                "provider": row.endpoint.provider.name,
                "account": row.endpoint.accounts[0].name,
                "region": row.endpoint.region or None,
                "model": row.endpoint.model,
                "kept": row.kept,
                "reason": row.reason,
                "rank": row.rank,
                "weight": row.weight,
                "price": price_block(row.endpoint.price),
            }
            for row in rows
        ],
    }


encode = msgspec.json.Encoder(decimal_format="number").encode
