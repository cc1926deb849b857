"""The skin of POST /v1/messages/count_tokens: how many tokens a Messages request would be, without sending it."""

from __future__ import annotations

from data_plane.callers import Asked
from data_plane.router import Router
from n4n.core import json_bytes
from n4n.core.access import Key
from n4n.core.candidates import model_barred
from n4n.core.errors import ModelNotAllowed
from n4n.core.skins.messages import read_messages
from n4n.core.skins.messages_count import count_body, rough_count

_WARNING = "the count is an estimate from sizes"


def count_tokens(router: Router, key: Key, asked: Asked, body: bytes) -> bytes:
    """The answer as JSON. Raises MalformedRequest, ModelNotFound, ModelNotAllowed. No provider is asked, so that a count costs nothing."""
    chat = read_messages(body, beta=asked.get("anthropic-beta"))
    snapshot = router.snapshot
    target = snapshot.resolve(chat.model)
    if any(model_barred(key.models, snapshot.models[model], target.name) for model in target.models):
        raise ModelNotAllowed(f"this API key may not use the model {target.name[:200]!r}", param="model")
    return count_body(rough_count(body), json_bytes.encode({"warnings": [_WARNING]}))
