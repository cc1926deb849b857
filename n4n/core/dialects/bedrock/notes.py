"""What could not be said to an endpoint, for `n4n.warnings`."""

from __future__ import annotations

from n4n.core.errors import Untellable


class Notes:
    """Warnings, each once; `endpoint` is named in each."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """In the order they came."""
        return tuple(self._warnings)

    def left_out(self, what: str, why: str = "has no word for it") -> None:
        """Something does not go out."""
        self._warnings[f"{what} was left out: endpoint {self._endpoint} {why}"] = None

    def untellable(self, path: str, why: str) -> Untellable:
        """What to raise for something that is part of the question, and so cannot be left out."""
        return Untellable(f"{path}: endpoint {self._endpoint} {why}", param="messages")

    def changed(self, what: str, why: str) -> None:
        """Something goes out as another thing than was asked."""
        self._warnings[f"{what}: endpoint {self._endpoint} {why}"] = None
