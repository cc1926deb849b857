"""Health that routers and probers share through Redis.

scripts   the steps as commands, and their answers as values
shared    `SharedHealth`: tells what was seen here, and keeps a copy of what all have seen
"""

from n4n.runtime.health.shared import SharedHealth

__all__ = ["SharedHealth"]
