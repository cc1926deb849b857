"""The rows of probes: kept on this prober's disk before a probe is sent, shipped as routers ship theirs."""

from __future__ import annotations

from n4n.core.probes.rows import Came, Sent, dispatched_line, settled_line
from n4n.runtime.segments import Segments


class Ledger:
    """Of one prober. `segments` keeps the lines."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        self.segments: Segments | None = None

    def __repr__(self) -> str:
        return f"<Ledger: {len(self._open)} open>"

    def unsettled(self) -> list[bytes]:
        """The lines of what is under way."""
        return list(self._open.values())

    def begin(self, sent: Sent) -> None:
        """It is about to be sent."""
        line = self._open[sent.attempt_id] = dispatched_line(sent)
        self._keep(line)

    def settle(self, sent: Sent, came: Came) -> int | None:
        """It ended; what it cost, in pico-USD, None: it has no price."""
        self._open.pop(sent.attempt_id, None)
        line, cost = settled_line(sent, came)
        self._keep(line)
        return cost

    def _keep(self, line: bytes) -> None:
        if self.segments is not None:
            self.segments.append(line)
