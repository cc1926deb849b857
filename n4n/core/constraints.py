"""Constraints: what each hard directive takes as a value, and when an endpoint satisfies it.

Whatever an endpoint does not tell about itself (price, window, score, data policy) satisfies no constraint on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from n4n.core import schema
from n4n.core.catalog import PICO, Account, Endpoint, Model, Price
from n4n.core.document import FEATURES, SCORES

_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_MODEL = re.compile(r"[A-Za-z0-9._/:@-]+\Z")
_USD = re.compile(r"\d{1,9}(\.\d{1,15})?\Z", re.ASCII)
_SHARE = re.compile(r"(0(\.\d{1,6})?|1(\.0{1,6})?)\Z", re.ASCII)
_SELECTORS = ("provider", "endpoint", "account", "region", "model")


@dataclass(frozen=True, slots=True)
class Offer:
    """One endpoint through one account, as a constraint sees it. `input_bytes` bounds the request's input tokens from above."""

    endpoint: Endpoint
    account: Account
    model: Model
    input_bytes: int = 0


Predicate = Callable[[Offer], bool]


@dataclass(frozen=True, slots=True)
class Term:
    """One alternative of a constraint, in its canonical spelling."""

    text: str
    holds: Predicate = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A hard directive: one of its terms must hold; of `exclude`, none may."""

    key: str
    terms: tuple[Term, ...]
    source: str = field(compare=False)

    @property
    def text(self) -> str:
        """The canonical spelling, for the log and for counts of what was eliminated."""
        values = "|".join(term.text for term in self.terms)
        return f"{self.key}={values}" if values else self.key

    def admits(self, offer: Offer) -> bool:
        """Whether an offer may be used."""
        return any(term.holds(offer) for term in self.terms) != (self.key == "exclude")


class Malformed(Exception):
    """A value is not what its key takes; the message says what it takes."""


# What each hard key takes, and when it holds.


def name_in(word: str) -> str:
    """The name of a provider or endpoint; Malformed when it cannot be one."""
    if not schema.NAME.match(word):
        raise Malformed("must name a provider or an endpoint (letters, digits, dot, underscore, hyphen)")
    return word


def routed(word: str) -> Term:
    """Holds for the provider or the endpoint of this name."""
    name = name_in(word)
    return Term(name, lambda offer: name in (offer.endpoint.id, offer.endpoint.provider.name))


def _region(word: str) -> Term:
    region = word.lower()
    if not _REGION.match(region):
        raise Malformed("must be a region such as eu or us-east-1 (letters, digits, single hyphens)")
    return Term(region, lambda offer: f"{offer.endpoint.region.lower()}-".startswith(f"{region}-"))


def selector(word: str) -> Term:
    """`provider:NAME`, `region:eu`, …: holds for what it selects."""
    kind, _, name = (part.strip() for part in word.partition(":"))
    if kind not in _SELECTORS or not name:
        raise Malformed(f"must be one of {', '.join(f'{kind}:NAME' for kind in _SELECTORS)}{schema.nearest(kind, _SELECTORS)}")
    if kind == "region":
        inner = _region(name)
        return Term(f"region:{inner.text}", inner.holds)
    if not (_MODEL if kind == "model" else schema.NAME).match(name):
        raise Malformed(f"holds a {kind} name that no catalog can have")
    return Term(f"{kind}:{name}", lambda offer: name in _SELECTED[kind](offer))


_SELECTED: Mapping[str, Callable[[Offer], tuple[str, ...]]] = {
    "provider": lambda offer: (offer.endpoint.provider.name,),
    "endpoint": lambda offer: (offer.endpoint.id,),
    "account": lambda offer: (offer.account.name,),
    "model": lambda offer: (offer.model.id, *offer.model.aliases),
}


def _cost(*kinds: Callable[[Price], int | None]) -> Callable[[str], Term]:
    def read(word: str) -> Term:
        if not _USD.match(word):
            raise Malformed("must be USD per 1,000 tokens as a plain decimal such as 0.015")
        limit = Decimal(word) * PICO  # at most 24 digits: exact

        def holds(offer: Offer) -> bool:
            prices = [_dearest(offer, kind) for kind in kinds]
            return all(price is not None and price * 1000 <= limit for price in prices)

        return Term(schema.plain(Decimal(word)), holds)

    return read


def _dearest(offer: Offer, kind: Callable[[Price], int | None]) -> int | None:
    """Pico-USD per token, at the dearest price tier that this request's input can reach; None: unpriced."""
    prices = offer.endpoint.price
    base = None if prices is None else kind(prices.base)
    if prices is None or base is None:
        return None
    reached = (kind(tier.price) for tier in prices.tiers if offer.input_bytes > tier.above_input_tokens)
    return max((base, *(price for price in reached if price is not None)))


def _input_price(price: Price) -> int | None:
    return price.input


def _output_price(price: Price) -> int | None:
    return price.output


def _window(word: str) -> Term:
    least = schema.whole_number(word)
    if least is None or least < 1:
        raise Malformed("must be a whole number of tokens such as 128k or 128000")
    return Term(str(least), lambda offer: offer.endpoint.context_window is not None and offer.endpoint.context_window >= least)


def _capability(word: str) -> Term:
    if word not in FEATURES:
        raise Malformed(f"must be one of {', '.join(FEATURES)}{schema.nearest(word, FEATURES)}")

    def holds(offer: Offer) -> bool:
        supports = offer.endpoint.supports
        return word in offer.model.capabilities and (supports is None or word in supports)

    return Term(word, holds)


def _score(name: str) -> Callable[[str], Term]:
    def read(word: str) -> Term:
        if not _SHARE.match(word):
            raise Malformed("must be a plain decimal from 0 to 1 such as 0.7")
        least = float(word)
        return Term(schema.plain(Decimal(word)), lambda offer: name in offer.model.scores and offer.model.scores[name] >= least)

    return read


_POLICIES: Mapping[str, Predicate] = {
    "no_training": lambda offer: offer.endpoint.trains_on_data is False,
    "zero_retention": lambda offer: offer.endpoint.retention_days == 0,
}


def _data_policy(word: str) -> Term:
    if word not in _POLICIES:
        raise Malformed(f"must be {' or '.join(_POLICIES)}{schema.nearest(word, _POLICIES)}")
    return Term(word, _POLICIES[word])


def quantization(word: str) -> Term:
    """Holds for endpoints of this quantization; `unknown` for those that tell none."""
    wanted = name_in(word).lower()
    return Term(wanted, lambda offer: (offer.endpoint.quantization or "unknown").lower() == wanted)


HARD: Mapping[str, Callable[[str], Term]] = {
    "region": _region, "only": selector, "exclude": selector, "require": routed, "capability": _capability, "data": _data_policy,
}  # fmt: skip
NUMERIC: Mapping[str, Callable[[str], Term]] = {
    "max_cost_per_1k": _cost(_input_price, _output_price),
    "max_input_cost_per_1k": _cost(_input_price),
    "max_output_cost_per_1k": _cost(_output_price),
    "min_context": _window,
} | {f"min_{name}": _score(name) for name in SCORES}
