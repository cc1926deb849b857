"""What of a request could not be said to an endpoint, in lines for `n4n.warnings`."""

from __future__ import annotations


class Notes:
    """Collected while a request is translated; `endpoint` is named in each."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.warnings: list[str] = []

    def left_out(self, what: str, why: str = "has no word for it") -> None:
        """Once for the same thing."""
        self.say(f"{what} was left out: endpoint {self._endpoint} {why}")

    def say(self, warning: str) -> None:
        """Anything that a client should know, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)
