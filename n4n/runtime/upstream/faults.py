"""How a call to a provider fails, in words, and how long each of its phases may take."""

from __future__ import annotations

import msgspec

from n4n.core.errors import Failure, FailureClass

LATE = {
    "connect": "no connection to the provider was made in time",
    "first_token": "the provider did not begin to answer in time",
    "idle": "the provider fell silent in the middle of its answer",
    "total": "the request's deadline passed",
}
INSIDE = "the provider's address is inside this network; set allow_private: true on the provider to allow it"
NO_NAME = "the provider's name could not be resolved"
REFUSED = "the provider refused the connection"
NOT_SECURE = "no secure connection to the provider could be made"
NO_ADDRESS = "the provider's address is not valid"
NO_ANSWER = "the provider closed the connection without an answer"
BROKE_OFF = "the provider's answer broke off"
BAD_HEADER = "the account's key or a header of the provider holds characters that HTTP does not allow"
PROXY_REFUSED = "the egress proxy could not be used; see N4N_EGRESS_PROXY"


class UpstreamFault(Exception):
    """The call failed on the way; `failure` says how, without URL or key."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Phases(msgspec.Struct, frozen=True):
    """How long each phase of one call may take, in seconds; `deadline` is on the loop's clock and bounds all of them."""

    connect_s: float
    first_byte_s: float
    idle_s: float
    deadline: float


def broken(message: str) -> UpstreamFault:
    """The provider failed after it may have begun to work."""
    return UpstreamFault(Failure(FailureClass.SERVER_ERROR, message))


def unsent(message: str) -> UpstreamFault:
    """The request surely did not reach the provider."""
    return UpstreamFault(Failure(FailureClass.SERVER_ERROR, message, may_have_run=False))


def late(phase: str, *, may_have_run: bool = True) -> UpstreamFault:
    """A phase took too long."""
    return UpstreamFault(Failure(FailureClass.TIMEOUT, LATE[phase], may_have_run=may_have_run))
