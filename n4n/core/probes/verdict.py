"""What came of a probe, and what it speaks of.

an answer, also one that the limit of output cut off     the endpoint is well
5xx, timeout, HTML, nothing inside, overloaded           the endpoint is ill
429                                                      the account's quota, not health
401, 403, 402, no credit                                 the account is out: an alert
404 of the model                                         the endpoint is out: an alert
400, a refused prompt                                    the probe is misconfigured: told with the remedy, nobody is ill
a timeout while we stood still ourselves                 nothing
"""

from __future__ import annotations

import re

import msgspec

from n4n.core.errors import Failure, FailureClass
from n4n.core.verdicts import class_of

STALLED_S = 0.5  # so much later than its deadline: we were stopped, or had no CPU

_OUTPUT_LIMIT = re.compile(
    r"(?:max_tokens|output|length).{0,40}limit (?:was|has been|is) reached|reached .{0,40}(?:max_tokens|output) ?limit", re.I
)
_LEAST = re.compile(
    r"""(?:>=|≥|at\ least|greater\ than\ or\ equal\ to|minimum(?:\ value)?(?:\ (?:of|is|allowed(?:\ value)?\ is))?|not\ be\ less\ than)
        \s*:?\s*(\d{1,6})\b""",
    re.I | re.X,
)
_ABOVE = re.compile(r"(?:greater than|more than|exceed|>)\s*(\d{1,6})\b", re.I)
_OTHER_PARAM = re.compile(r"use ['\"`]?(max_[a-z_]+)['\"`]? instead", re.I)
_OF_THE_LIMIT = re.compile(r"max[_ ]?(?:completion|output|new)?[_ ]?tokens|maxoutputtokens|thinking[_ ]budget|budget_tokens", re.I)
_OF_EFFORT = re.compile(r"reasoning[_ .]effort|reasoning", re.I)


class Well(msgspec.Struct, frozen=True):
    """It answers."""


class Ill(msgspec.Struct, frozen=True):
    """It does not."""

    failure: Failure


class Limited(msgspec.Struct, frozen=True):
    """The account's quota for it is used up for the moment."""

    failure: Failure


class AccountOut(msgspec.Struct, frozen=True):
    """The account is refused, or has no money."""

    failure: Failure


class Gone(msgspec.Struct, frozen=True):
    """The provider does not offer the model any more."""

    failure: Failure


class Misconfigured(msgspec.Struct, frozen=True):
    """The probe itself was refused. `remedy`: what to write into the catalog."""

    failure: Failure
    remedy: str


class Unclear(msgspec.Struct, frozen=True):
    """It tells nothing."""

    why: str


Verdict = Well | Ill | Limited | AccountOut | Gone | Misconfigured | Unclear
WELL = Well()


def judge(failure: Failure | None, param: str, elapsed_s: float, timeout_s: float, stood_still_s: float = 0.0) -> Verdict:
    """`failure` None: it answered. `param`: the member that bounds the output; `stood_still_s`: for how long our loop did meanwhile."""
    if failure is None:
        return WELL
    match class_of(failure):
        case FailureClass.TIMEOUT if elapsed_s > timeout_s + STALLED_S or stood_still_s > STALLED_S:
            return Unclear("this prober stood still meanwhile")
        case FailureClass.TIMEOUT | FailureClass.SERVER_ERROR | FailureClass.OVERLOADED:
            return Ill(failure)
        case FailureClass.RATE_LIMITED:
            return Limited(failure)
        case FailureClass.AUTH | FailureClass.QUOTA_EXHAUSTED:
            return AccountOut(failure)
        case FailureClass.MODEL_NOT_FOUND:
            return Gone(failure)
        case _ if _OUTPUT_LIMIT.search(failure.message):
            return WELL
        case _:
            return Misconfigured(failure, remedy(failure, param))


def remedy(failure: Failure, param: str) -> str:
    """What to write into the model's `probe`, by what the refusal names."""
    text = f"{failure.param or ''} {failure.message}"
    if failure.failure_class is FailureClass.CONTENT_POLICY:
        return "give the model's probe another prompt"
    if failure.failure_class is FailureClass.CONTEXT_LENGTH:
        return "give the model's probe a shorter prompt or a smaller max_tokens"
    if (other := _OTHER_PARAM.search(text)) is not None:
        return f"set probe: {{param: {other[1]}}} on the model"
    about_limit = param in text or _OF_THE_LIMIT.search(text) is not None
    if about_limit and (least := least_named(text)) is not None:
        return f"set probe: {{max_tokens: {least}}} on the model"
    if about_limit:
        return "give the model's probe another max_tokens or param"
    if _OF_EFFORT.search(text):
        return "give the model's probe another effort, or none"
    return "change the model's probe, or switch it off with probe: {enabled: false}"


def least_named(text: str) -> int | None:
    """The smallest value that a refusal says would do."""
    if (found := _LEAST.search(text)) is not None:
        return int(found[1])
    above = _ABOVE.search(text)
    return None if above is None else int(above[1]) + 1


def is_spared(answered_s: float | None, interval_s: float) -> bool:
    """Whether live traffic has just answered the question. `answered_s`: how long ago it last succeeded, None: it is not known."""
    return answered_s is not None and 0 <= answered_s < interval_s
