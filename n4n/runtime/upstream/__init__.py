"""One HTTP call to one provider: sends exactly one request, follows nothing, and speaks in failures.

    answer      bytes in, one HTTP answer out; no I/O
    decode      bodies that come compressed though nobody asked for it
    connection  one connection: what came is kept within bounds, waiting for it costs one future
    dial        how a connection comes about: names, addresses, TLS, the egress proxy
    pool        connections of one origin that are lent again
    heads       requests as bytes
    reply       an answer as the request path reads it
    client      `Upstream`, which puts these together

Foreign exceptions end here: whatever goes wrong on the way is an `UpstreamFault` that carries a `Failure`.
"""

from n4n.runtime.upstream.client import Upstream
from n4n.runtime.upstream.faults import Phases, UpstreamFault
from n4n.runtime.upstream.reply import ANSWER_LIMIT, ERROR_LIMIT, Reply

__all__ = ["ANSWER_LIMIT", "ERROR_LIMIT", "Phases", "Reply", "Upstream", "UpstreamFault"]
