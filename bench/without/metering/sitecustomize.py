"""Makes every worker of an n4n that is started with this folder in PYTHONPATH one that meters nothing: no ledger, no counts.

For the bench alone: the product has no such switch. Usage and cost of an answer are worked out as ever, for they stand in it.
"""

import sys

if "--worker" in sys.orig_argv:
    from data_plane import meter

    _init = meter.Meter.__init__

    def _without_ledger(self: meter.Meter, *arguments: object, **more: object) -> None:
        _init(self, *arguments, **more)  # type: ignore[arg-type]
        self.ledger = None

    meter.Meter.__init__ = _without_ledger  # type: ignore[method-assign]
