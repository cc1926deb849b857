"""Makes every worker of an n4n that is started with this folder in PYTHONPATH one that was never taught to trace.

For the bench alone: beside it stands an n4n whose traces are off, so that what it costs to be able to is seen.
"""

import sys

if "--worker" in sys.orig_argv:
    from data_plane import record
    from n4n.core.catalog import Endpoint

    def _dispatched(self: record.Record, attempt_id: str, endpoint: Endpoint, account: str) -> record.AttemptRecord:
        attempt = record.AttemptRecord(attempt_id, endpoint, account, self.clock())
        self.attempts.append(attempt)
        if self.ledger is not None:
            self.ledger.dispatched(self, attempt)
        return attempt

    record.Record.dispatched = _dispatched  # type: ignore[method-assign]
    record.Record.trace_line = b""  # type: ignore[assignment, method-assign]
