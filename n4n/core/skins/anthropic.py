"""The skin of POST /v1/messages, put together: Anthropic's Messages in, a message or its events out."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.skins import messages_answer, messages_errors
from n4n.core.skins.messages import read_messages
from n4n.core.skins.messages_chat import losses
from n4n.core.skins.messages_stream import KEEP_ALIVE, MessagesStream
from n4n.core.skins.skin import Header
from n4n.core.usage import estimate


class Messages:
    """See above."""

    keep_alive = KEEP_ALIVE

    def read(self, body: bytes, header: Header) -> ChatRequest:
        """A Messages request; `anthropic-beta` goes with it to providers of the same dialect."""
        return read_messages(body, beta=header("anthropic-beta"))

    def losses(self, request: ChatRequest) -> tuple[str, ...]:
        """What only Messages has a word for."""
        return losses(request)

    def frames(self, request: ChatRequest) -> MessagesStream:
        """Events; the first one guesses the input from the request's size, the last one tells the truth."""
        return MessagesStream(estimate(request.body_bytes, 0).prompt_tokens)

    def whole(self, chunk: Chunk, _: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """A message."""
        return messages_answer.whole(chunk, usage, note)

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Anthropic's envelope."""
        return messages_errors.envelope(body)
