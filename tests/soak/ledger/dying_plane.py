"""A control plane that dies after Postgres has committed a batch and before it says so: `python -m tests.soak.ledger.dying_plane FILE`.

As soon as FILE exists, the next batch is its last; the file goes with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from control_plane.__main__ import main
from control_plane.ledger import Ledger
from n4n.core.ledger import Row
from n4n.runtime.settings import read_settings


def serve(order: Path) -> int:
    """Until told to stop, or until it dies."""
    take = Ledger.take

    async def take_and_die(self: Ledger, rows: Sequence[Row]) -> int:
        too_old = await take(self, rows)
        if rows:
            _die_if_told(order)
        return too_old

    Ledger.take = take_and_die  # type: ignore[method-assign]
    return main(read_settings())


def _die_if_told(order: Path) -> None:
    if order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))
