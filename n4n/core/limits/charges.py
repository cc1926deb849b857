"""What a provider takes from its limit of tokens for a request, where that is more than the request will use.

Some count all the output that was asked for, or guess the prompt larger than it is, and give nothing back (OpenAI: the larger of
`max_tokens` and an estimate from the characters, https://platform.openai.com/docs/guides/rate-limits). It shows where one refuses a request
though it has more left than we reserved: from then on more is reserved, and what the answer did not use is given back
only as far as the provider says that it has it.
"""

from __future__ import annotations

MOST = 50.0  # times the estimate
_MARGIN = 1.25  # whoever waits for tokens is sent as soon as there seem to be enough, so a refusal tells little of how many are missing
_GIVEN_BACK = 0.25  # of what we are too far ahead, with each answer
_FORGETS = 0.0001  # of what is above the estimate, with each answer


class Charges:
    """Of one provider and model. `factor`: what is reserved there, by the estimate."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1.0

    def __repr__(self) -> str:
        return f"<Charges {self.factor:.2f}>"

    def refused(self, reserved: float, remaining: float) -> None:
        """For want of tokens, of which it had `remaining`; `reserved` had been believed to be enough."""
        if reserved > 0 and remaining >= reserved:
            self.factor = min(MOST, self.factor * _MARGIN * (remaining + 1) / reserved)

    def admitted(self) -> None:
        """It was answered."""
        self.factor -= _FORGETS * (self.factor - 1.0)


def taken(reserved: float, ahead: float) -> float:
    """What stays taken of a reservation where unused tokens are not given back. `ahead`: so much more counts as used here than there.

    One reservation ahead is as near as calls under way allow; they all see the same, so each gives back a part.
    """
    return reserved - min(reserved, max(0.0, ahead - reserved) * _GIVEN_BACK)
