"""`explicit_system_prompt` of an endpoint: its model overlooks system messages, so what they say is put before the first user message.

One step in front of every dialect. A client's own words in another dialect are left aside for it: the translation says the same.
"""

from __future__ import annotations

from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest

_ROLES = ("system", "developer")
_GAP = "\n\n"
_Message = dict[str, object]


def spelled_out(request: ChatRequest, endpoint: Endpoint) -> ChatRequest:
    """The request as this endpoint has to be asked; the same object where nothing has to change."""
    if not endpoint.explicit_system_prompt or "messages" not in request.fields:
        return request
    messages = json_bytes.parse(bytes(request.fields["messages"]))
    if not isinstance(messages, list) or not any(_is_system(one) for one in messages):
        return request
    told = _GAP.join(filter(None, (_text(one["content"]) for one in messages if _is_system(one))))
    kept = [one for one in messages if not _is_system(one)]
    fields = {**request.fields, "messages": msgspec.Raw(json_bytes.dump(_with(told, kept)))}
    return msgspec.structs.replace(request, fields=fields, native=None)


def _is_system(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _ROLES and isinstance(message.get("content"), str | list)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = (part.get("text") for part in cast(list[object], content) if isinstance(part, dict))
    return _GAP.join(part for part in parts if isinstance(part, str))


def _with(told: str, messages: list[object]) -> list[object]:
    """The words before those of the first user message, or as one of their own where there is none at the beginning."""
    if not told:
        return messages
    first = next((at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "user"), None)
    if first is None:
        return [{"role": "user", "content": told}, *messages]
    message = cast(_Message, messages[first])
    content = message.get("content")
    if isinstance(content, list):
        changed: object = [{"type": "text", "text": told}, *content]
    else:
        changed = f"{told}{_GAP}{content}" if isinstance(content, str) and content else told
    return [*messages[:first], {**message, "content": changed}, *messages[first + 1 :]]
