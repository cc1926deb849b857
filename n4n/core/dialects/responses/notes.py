"""What of a request could not be said to an endpoint, in lines for `n4n.warnings`."""

from __future__ import annotations

from n4n.core.errors import Untellable


class Notes:
    """Collected while a request is translated; `endpoint` is named in each."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.warnings: list[str] = []

    def left_out(self, what: str, why: str = "has no word for it") -> None:
        """Once for the same thing."""
        self.say(f"{what} was left out: endpoint {self._endpoint} {why}")

    def untellable(self, path: str, why: str) -> Untellable:
        """What to raise for something that is part of the question, and so cannot be left out."""
        return Untellable(f"{path}: endpoint {self._endpoint} {why}", param="messages")

    def say(self, warning: str) -> None:
        """Anything that a client should know, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)
