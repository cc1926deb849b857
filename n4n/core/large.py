"""Bodies of many MiB: from which size on reading one is worth a thread, what one may hold at most, and how it is read then.

Whatever is long in such a body (images, documents, sounds in base64) stays the bytes it came as: it is skipped, and copied in one
piece. What would hold up everybody is a body of very many small values, each of which becomes an object of Python's.
"""

from __future__ import annotations

from msgspec.structs import replace

from n4n.core.chat import ChatRequest
from n4n.core.errors import MalformedRequest
from n4n.core.fitness import least_tokens
from n4n.core.skins.skin import Header, Skin

LARGE = 256 << 10  # bytes; a smaller body costs some ten times less than the turn of the loop it would be read in beside others
# Texts, objects and lists. 170 to 440 ns each by the dearest way of reading them, so less than 0.1 s in one step that nothing can
# interrupt; and memory of ten times their size. 40,000 messages fit, which is more than any window.
MOST_VALUES = 400_000
_NUMBERS = 8  # in a list they cost as much as one of the others


def read(skin: Skin, body: bytes, header: Header) -> ChatRequest:
    """A request from a large body, with what a plan asks of its size answered. Raises MalformedRequest."""
    check(body)
    chat = skin.read(body, header)
    return replace(chat, least_tokens=least_tokens(chat))


def check(body: bytes) -> None:
    """MalformedRequest for a body of more values than can be read without holding up others. Braces within texts count too."""
    count = body.count
    found = count(b"{") + count(b"[") + count(b'"') + count(b",") // _NUMBERS
    if found > MOST_VALUES and found - count(b'\\"') > MOST_VALUES:
        raise MalformedRequest(f"the body holds too many values: at most some {MOST_VALUES} texts, objects and lists are read at a time")
