"""The skins by the path they are asked at."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.skins.anthropic import Messages
from n4n.core.skins.chat import Chat
from n4n.core.skins.completions import Completions
from n4n.core.skins.embeddings import Embeddings
from n4n.core.skins.openai_responses import OpenAIResponses
from n4n.core.skins.skin import Skin

_CHAT = Chat()
MESSAGES = Messages()
SKINS: Mapping[str, Skin] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Completions(),
    "/v1/embeddings": Embeddings(),
    "/v1/messages": MESSAGES,
    "/v1/responses": OpenAIResponses(),
}


def skin_of(path: str) -> Skin:
    """In whose words an error at this path is said: those of its skin, OpenAI's where it has none."""
    return next((skin for start, skin in SKINS.items() if path == start or path.startswith(f"{start}/")), _CHAT)
