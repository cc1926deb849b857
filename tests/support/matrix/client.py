"""What the matrix needs of a client: a request in its own words through its own SDK, and its own reading of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tests.support.matrix.words import Ask, Heard, Object, Refused, Told


class Client(Protocol):
    """One skin, through its official SDK."""

    name: str
    path: str

    async def ask(self, model: str, ask: Ask, *, stream: bool, headers: Mapping[str, str] | None = None, **more: Any) -> Heard | Refused:
        """One request and what came of it. `more` are members of the body as they are."""
        ...

    def says(self, ask: Ask) -> Ask:
        """What of a request its words can hold."""
        ...

    def hears(self, told: Told) -> Told:
        """What of an answer its words can hold."""
        ...

    def kind(self, code: str) -> str:
        """The type that an error of this code has."""
        ...


KINDS: Mapping[str, str] = {  # OpenAI's types
    "context_length_exceeded": "invalid_request_error",
    "content_filter": "invalid_request_error",
    "rate_limited": "rate_limit_error",
    "no_eligible_endpoint": "invalid_request_error",
}


def block_of(extra: Mapping[str, Any] | None) -> Object:
    """n4n's block, which SDKs keep as a member they do not know."""
    assert extra is not None
    found = extra["n4n"]
    assert isinstance(found, dict)
    return found
