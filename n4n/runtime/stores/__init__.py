"""Redis or Valkey over one shared, pipelined connection per server and worker.

    place       where it is: `N4N_REDIS_URL`; how long it may take
    commands    commands and scripts as bytes
    replies     answers, and what errors mean
    slots       a cluster's slots
    calls       who waits, and until when
    tally       whether a server that misses deadlines is still asked
    connection  one connection: one write per tick, replies in order
    dial        how a connection comes about
    link        a server, connected again and again in the background: the breaker
    cluster     masters and who serves what
    discovery   asking a cluster for its map, Sentinels for their master
    store       `Store`, which puts these together

Foreign exceptions end here: all that goes wrong is StoreUnavailable, or its kind StoreRefused where Redis answered with an error.
"""

from n4n.runtime.stores.calls import Outcome
from n4n.runtime.stores.commands import Command, Script, Word, command
from n4n.runtime.stores.place import Place, StoreSettings, Tcp, Unix, settings_of
from n4n.runtime.stores.replies import Reply
from n4n.runtime.stores.store import Store, Told

__all__ = [
    "Command",
    "Outcome",
    "Place",
    "Reply",
    "Script",
    "Store",
    "StoreSettings",
    "Tcp",
    "Told",
    "Unix",
    "Word",
    "command",
    "settings_of",
]
