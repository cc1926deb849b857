"""`python -m n4n` is the command too, so that a process list reads `n4n data-plane --worker 1`."""

import sys

from n4n.cli.__main__ import main

sys.exit(main())
