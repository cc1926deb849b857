"""One request on its way through the engine."""

from __future__ import annotations

import msgspec

from data_plane.answers import Answer
from data_plane.record import Record
from n4n.core.access import Key
from n4n.core.chat import ChatRequest
from n4n.core.directives import Directives
from n4n.core.skins.skin import Skin


class Exchange(msgspec.Struct, frozen=True):
    """One request on its way: what was asked, by whom, how the answer leaves, and the record of it all."""

    chat: ChatRequest
    skin: Skin
    directives: Directives
    key: Key
    priority: str
    deadline: float | None  # the caller's own, on the router's clock
    answer: Answer
    record: Record
    warnings: tuple[str, ...] = ()  # that its answer bears, whoever gives it
