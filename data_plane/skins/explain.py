"""The skin of POST /v1/route:explain: a dry run of the plan, every candidate kept or eliminated and by what. Sends nothing."""

from __future__ import annotations

from functools import partial

import msgspec

from data_plane.callers import Asked
from data_plane.router import Router
from data_plane.skins.models import price_block
from n4n.core import json_bytes, large
from n4n.core.access import Key
from n4n.core.catalog import Snapshot
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import read_chat
from n4n.core.fitness import EMBEDDINGS
from n4n.core.plan import explain
from n4n.core.skins.skin import Header, Skin
from n4n.core.skins.table import MESSAGES, SKINS

_NO_MESSAGES = msgspec.Raw(b'[{"role":"user","content":""}]')
_NO_INPUT = msgspec.Raw(b'"-"')


def read_explain(body: bytes, header: Header, snapshot: Snapshot) -> ChatRequest:
    """A request of any skin, told by its members; what is asked may be left out of it. Raises MalformedRequest, ModelNotFound.

    Chat and Messages share `messages`: a client of the latter is known by its `anthropic-version`, its `system` or its tools' schemas.
    Responses and embeddings share `input`, text completions and Responses `prompt`.
    """
    try:
        fields = json_bytes.members(body)
    except json_bytes.NotJson:
        return read_chat(body)  # which says what is wrong
    skin, part = _skin(fields, header, snapshot)
    fields.setdefault(*part)
    return skin.read(json_bytes.join(fields.items()), header)


def _skin(fields: json_bytes.Members, header: Header, snapshot: Snapshot) -> tuple[Skin, tuple[str, msgspec.Raw]]:
    """The skin, and what stands for the question where there is none."""
    if "messages" not in fields:
        if json_bytes.is_object(fields.get("prompt")):
            return _RESPONSES, ("input", _NO_INPUT)
        if "prompt" in fields:
            return _TEXTS, ("prompt", _NO_INPUT)
        if "dimensions" in fields or "encoding_format" in fields or _embeds(fields, snapshot):
            return _VECTORS, ("input", _NO_INPUT)
        if "input" in fields:
            return _RESPONSES, ("input", _NO_INPUT)
    elif header("anthropic-version") is not None or "system" in fields or b'"input_schema"' in bytes(fields.get("tools", b"")):
        return MESSAGES, ("messages", _NO_MESSAGES)
    return _CHAT, ("messages", _NO_MESSAGES)


def _embeds(fields: json_bytes.Members, snapshot: Snapshot) -> bool:
    """Whether the model asked makes embeddings alone."""
    name = json_bytes.parse(bytes(fields.get("model", b"null")))
    target = snapshot.resolve(name) if isinstance(name, str) and name else None
    models = () if target is None else target.models
    endpoints = [endpoint for model in models for endpoint in snapshot.by_model[model]]
    return bool(endpoints) and all(endpoint.supports is not None and EMBEDDINGS in endpoint.supports for endpoint in endpoints)


_CHAT, _TEXTS, _VECTORS, _RESPONSES = (SKINS[f"/v1/{name}"] for name in ("chat/completions", "completions", "embeddings", "responses"))


async def explain_route(router: Router, key: Key, asked: Asked, body: bytes) -> dict[str, object]:
    """Candidates in the order they would be tried, then the eliminated ones."""
    if len(body) < large.LARGE:
        chat = read_explain(body, asked.get, router.snapshot)
    else:
        large.check(body)
        chat = await router.aside.do(partial(read_explain, body, asked.get, router.snapshot))
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
                "injected_fault": None if row.endpoint.fault is None else str(row.endpoint.fault),
            }
            for row in rows
        ],
    }


encode = msgspec.json.Encoder(decimal_format="number").encode
