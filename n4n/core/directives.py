"""Directives: what a client, or its key, requires of an endpoint and would like of the order.

`key=value` pairs, comma separated; `a|b` are alternatives; a repeated hard key must hold each time. Whatever is unknown
or malformed is refused, because a misspelt `region` must never route EU data to the US.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar

from n4n.core import schema
from n4n.core.catalog import PICO, Account, Endpoint, Model, Price, Snapshot
from n4n.core.document import FEATURES, SCORES, STRATEGIES
from n4n.core.errors import InvalidDirective

HEADER, SIMPLE_HEADER, BODY = "x-n4n-routing", "x-routing-directive", "provider"
LONGEST_TEXT, MOST = 4096, 64
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_MODEL = re.compile(r"[A-Za-z0-9._/:@-]+\Z")
_USD = re.compile(r"\d{1,9}(\.\d{1,15})?\Z", re.ASCII)
_SHARE = re.compile(r"(0(\.\d{1,6})?|1(\.0{1,6})?)\Z", re.ASCII)
_ATTEMPTS = re.compile(r"[1-9]\d{0,2}\Z", re.ASCII)
_T = TypeVar("_T", bool, int, str)
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
    source: str = field(default=HEADER, compare=False)

    @property
    def text(self) -> str:
        """The canonical spelling, for the log and for counts of what was eliminated."""
        return f"{self.key}={'|'.join(term.text for term in self.terms)}"

    def admits(self, offer: Offer) -> bool:
        """Whether an offer may be used."""
        return any(term.holds(offer) for term in self.terms) != (self.key == "exclude")


@dataclass(frozen=True, slots=True)
class Preference:
    """Providers or endpoints to put first if they are healthy, equal among themselves."""

    names: tuple[str, ...]
    source: str = field(default=HEADER, compare=False)

    @property
    def text(self) -> str:
        """The canonical spelling."""
        return f"prefer={'|'.join(self.names)}"

    def matches(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint, or its provider, is one of those named."""
        return endpoint.id in self.names or endpoint.provider.name in self.names


@dataclass(frozen=True, slots=True)
class Directives:
    """All that binds one request. None: nothing was said. Preferences stand in falling order."""

    constraints: tuple[Constraint, ...] = ()
    prefer: tuple[Preference, ...] = ()
    sort: str | None = None
    fallback: bool | None = None
    max_attempts: int | None = None
    consistency: str | None = None
    require_parameters: bool = False

    @property
    def applied(self) -> tuple[str, ...]:
        """Every directive in its canonical spelling, hard ones first."""
        hard = tuple(constraint.text for constraint in self.constraints)
        return hard + tuple(preference.text for preference in self.prefer) + tuple(self._single())

    def _single(self) -> Iterator[str]:
        if self.sort is not None:
            yield f"sort={self.sort}"
        if self.fallback is not None:
            yield f"fallback={'on' if self.fallback else 'off'}"
        if self.max_attempts is not None:
            yield f"max_attempts={self.max_attempts}"
        if self.consistency is not None:
            yield f"consistency={self.consistency}"
        if self.require_parameters:
            yield "require_parameters=on"

    def names_key(self, key: str) -> bool:
        """Whether a directive of this key was given."""
        return any(text.startswith(f"{key}=") for text in self.applied)


NONE = Directives()


class _Malformed(Exception):
    """A value is not what its key takes; the message says what it takes."""


def parse(text: str, source: str = HEADER) -> Directives:
    """The directives in a header, a query parameter or a key; InvalidDirective names `source`, the directive and the remedy."""
    found = NONE
    for part in _parts(text, source):
        key, equals, value = part.partition("=")
        try:
            if not equals:
                raise _Malformed("is not key=value")
            found = _joined(found, _read(key.strip(), value, source))
        except _Malformed as fault:
            raise _refused(source, part, str(fault)) from None
    return found


def parse_simple(text: str, source: str = SIMPLE_HEADER) -> Directives:
    """`prefer:NAME` and `require:NAME`, comma separated, as `prefer=` and `require=`."""
    found = NONE
    for part in _parts(text, source):
        key, colon, value = part.partition(":")
        if not colon or key.strip() not in ("prefer", "require"):
            raise _refused(source, part, "must be prefer:NAME or require:NAME")
        try:
            found = _joined(found, _read(key.strip(), value, source))
        except _Malformed as fault:
            raise _refused(source, part, str(fault)) from None
    return found


def combine(outer: Directives, inner: Directives) -> Directives:
    """Both bind: hard ones add up, the inner one's likings win, and the shorter of two limits holds."""
    if outer is NONE or inner is NONE:
        return inner if outer is NONE else outer
    return Directives(
        constraints=tuple(dict.fromkeys(outer.constraints + inner.constraints)),
        prefer=inner.prefer or outer.prefer,
        sort=inner.sort or outer.sort,
        fallback=_narrower(outer.fallback, inner.fallback, min),
        max_attempts=_narrower(outer.max_attempts, inner.max_attempts, min),
        consistency=_narrower(outer.consistency, inner.consistency, max),  # 'strict' > 'available'
        require_parameters=outer.require_parameters or inner.require_parameters,
    )


def check_names(directives: Directives, snapshot: Snapshot) -> None:
    """InvalidDirective when a directive names what the snapshot does not hold, with the nearest name that it does."""
    for constraint in directives.constraints:
        for term in constraint.terms:
            if constraint.key == "require":
                _check(term.text, "provider or endpoint", _routable(snapshot), constraint.source, constraint.text)
            elif constraint.key in ("only", "exclude"):
                kind, _, name = term.text.partition(":")
                if kind != "region":
                    _check(name, kind, _KNOWN[kind](snapshot), constraint.source, constraint.text)
    for preference in directives.prefer:
        for name in preference.names:
            _check(name, "provider or endpoint", _routable(snapshot), preference.source, preference.text)


def from_provider_object(raw: object, source: str = BODY) -> Directives:
    """The body's OpenRouter-style `provider` object (None: nothing) in the same terms.

    Source: https://openrouter.ai/docs/features/provider-routing. Names are those of this catalog's providers; prices are
    USD per 1,000,000 tokens. With `order`, `allow_fallbacks: false` allows the ordered ones only, as it does there.
    """
    if raw is None:
        return NONE
    if not isinstance(raw, Mapping):
        raise _refused(source, "provider", f"must be an object, not {schema.kind_of(raw)}")
    found = NONE
    for name, value in raw.items():
        if name not in _MEMBERS:
            raise _refused(source, str(name), f"is not known{schema.nearest(str(name), _MEMBERS)}; known: {', '.join(_MEMBERS)}")
        try:
            found = found if value is None else _joined(found, _MEMBERS[name](value, source))
        except _Malformed as fault:
            raise _refused(source, name, str(fault)) from None
    if found.fallback is False and found.prefer:
        names = [name for preference in found.prefer for name in preference.names]
        pinned = Constraint("require", tuple(map(_routed, names)), source)
        found = replace(found, constraints=(*found.constraints, pinned), fallback=None)
    return found


def _refused(source: str, directive: str, why: str) -> InvalidDirective:
    return InvalidDirective(f"{source}: {directive[:120]!a} {why}", param=source)


def _parts(text: str, source: str) -> list[str]:
    if len(text) > LONGEST_TEXT:
        raise _refused(source, text, f"is longer than {LONGEST_TEXT} characters; send fewer directives")
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise _refused(source, text, "holds control characters; remove them")
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if len(parts) > MOST:
        raise _refused(source, text, f"holds more than {MOST} directives; send fewer")
    return parts


def _read(key: str, value: str, source: str) -> Directives:
    words = [word.strip() for word in value.split("|")]
    if not all(words):
        raise _Malformed("has an empty value; write key=value, or leave the directive out")
    if len(words) > MOST:
        raise _Malformed(f"has more than {MOST} alternatives")
    if key in _HARD:
        return Directives(constraints=(Constraint(key, tuple(dict.fromkeys(map(_HARD[key], words))), source),))
    if key == "prefer":
        return Directives(prefer=(Preference(tuple(dict.fromkeys(map(_name, words))), source),))
    if key in _UNMEASURED:
        raise _Malformed("needs latencies and speeds that this version does not measure yet; leave it out, or use sort=latency")
    if key not in _SINGLE and key not in _NUMERIC:
        raise _Malformed(f"is not a known directive{schema.nearest(key, KEYS)}; known: {', '.join(KEYS)}")
    if len(words) > 1:
        raise _Malformed("takes one value, without alternatives")
    if key in _NUMERIC:
        return Directives(constraints=(Constraint(key, (_NUMERIC[key](words[0]),), source),))
    return _SINGLE[key](words[0])


def _joined(first: Directives, then: Directives) -> Directives:
    """Directives of one text, in order: preferences rank, and what can only be one thing may not be two."""
    for key, one, other in (("sort", first.sort, then.sort), ("consistency", first.consistency, then.consistency)):
        if one is not None and other is not None and one != other:
            raise _Malformed(f"contradicts {key}={one}; give it once")
    return replace(combine(first, then), prefer=tuple(dict.fromkeys(first.prefer + then.prefer)))


def _narrower(one: _T | None, other: _T | None, choose: Callable[[_T, _T], _T]) -> _T | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


# What each hard key takes, and when it holds.


def _name(word: str) -> str:
    if not schema.NAME.match(word):
        raise _Malformed("must name a provider or an endpoint (letters, digits, dot, underscore, hyphen)")
    return word


def _routed(word: str) -> Term:
    name = _name(word)
    return Term(name, lambda offer: name in (offer.endpoint.id, offer.endpoint.provider.name))


def _region(word: str) -> Term:
    region = word.lower()
    if not _REGION.match(region):
        raise _Malformed("must be a region such as eu or us-east-1 (letters, digits, single hyphens)")
    return Term(region, lambda offer: f"{offer.endpoint.region.lower()}-".startswith(f"{region}-"))


def _selector(word: str) -> Term:
    kind, _, name = (part.strip() for part in word.partition(":"))
    if kind not in _SELECTORS or not name:
        raise _Malformed(f"must be one of {', '.join(f'{kind}:NAME' for kind in _SELECTORS)}{schema.nearest(kind, _SELECTORS)}")
    if kind == "region":
        inner = _region(name)
        return Term(f"region:{inner.text}", inner.holds)
    if not (_MODEL if kind == "model" else schema.NAME).match(name):
        raise _Malformed(f"holds a {kind} name that no catalog can have")
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
            raise _Malformed("must be USD per 1,000 tokens as a plain decimal such as 0.015")
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
        raise _Malformed("must be a whole number of tokens such as 128k or 128000")
    return Term(str(least), lambda offer: offer.endpoint.context_window is not None and offer.endpoint.context_window >= least)


def _capability(word: str) -> Term:
    if word not in FEATURES:
        raise _Malformed(f"must be one of {', '.join(FEATURES)}{schema.nearest(word, FEATURES)}")

    def holds(offer: Offer) -> bool:
        supports = offer.endpoint.supports
        return word in offer.model.capabilities and (supports is None or word in supports)

    return Term(word, holds)


def _score(name: str) -> Callable[[str], Term]:
    def read(word: str) -> Term:
        if not _SHARE.match(word):
            raise _Malformed("must be a plain decimal from 0 to 1 such as 0.7")
        least = float(word)
        return Term(schema.plain(Decimal(word)), lambda offer: name in offer.model.scores and offer.model.scores[name] >= least)

    return read


_POLICIES: Mapping[str, Predicate] = {
    "no_training": lambda offer: offer.endpoint.trains_on_data is False,
    "zero_retention": lambda offer: offer.endpoint.retention_days == 0,
}


def _data_policy(word: str) -> Term:
    if word not in _POLICIES:
        raise _Malformed(f"must be {' or '.join(_POLICIES)}{schema.nearest(word, _POLICIES)}")
    return Term(word, _POLICIES[word])


def _quantization(word: str) -> Term:
    quantization = _name(word).lower()
    return Term(quantization, lambda offer: (offer.endpoint.quantization or "unknown").lower() == quantization)


_HARD: Mapping[str, Callable[[str], Term]] = {
    "region": _region, "only": _selector, "exclude": _selector, "require": _routed, "capability": _capability, "data": _data_policy,
}  # fmt: skip
_NUMERIC: Mapping[str, Callable[[str], Term]] = {
    "max_cost_per_1k": _cost(_input_price, _output_price),
    "max_input_cost_per_1k": _cost(_input_price),
    "max_output_cost_per_1k": _cost(_output_price),
    "min_context": _window,
} | {f"min_{name}": _score(name) for name in SCORES}


# Soft keys, and how far to go.


def _one_of(*known: str) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word not in known:
            raise _Malformed(f"must be one of {', '.join(known)}{schema.nearest(word, known)}")
        return word

    return read


_strategy, _switch, _consistency = _one_of(*STRATEGIES), _one_of("on", "off"), _one_of("strict", "available")


def _max_attempts(word: str) -> Directives:
    if not _ATTEMPTS.match(word):
        raise _Malformed("must be a whole number from 1 to 999")
    return Directives(max_attempts=int(word))


_SINGLE: Mapping[str, Callable[[str], Directives]] = {
    "sort": lambda word: Directives(sort=_strategy(word)),
    "fallback": lambda word: Directives(fallback=_switch(word) == "on"),
    "max_attempts": _max_attempts,
    "consistency": lambda word: Directives(consistency=_consistency(word)),
}
_UNMEASURED = ("max_ttft_ms", "min_tokens_per_s")
KEYS = (*_HARD, *_NUMERIC, "prefer", *_SINGLE)


# Names that a snapshot holds.


def _routable(snapshot: Snapshot) -> Iterable[str]:
    return {**snapshot.providers, **snapshot.endpoints}


_KNOWN: Mapping[str, Callable[[Snapshot], Iterable[str]]] = {
    "provider": lambda snapshot: snapshot.providers,
    "endpoint": lambda snapshot: snapshot.endpoints,
    "account": lambda snapshot: {account.name for endpoint in snapshot.endpoints.values() for account in endpoint.accounts},
    "model": lambda snapshot: {**snapshot.models, **snapshot.aliases},
}


def _check(name: str, kind: str, known: Iterable[str], source: str, directive: str) -> None:
    if name not in known:
        raise _refused(source, directive, f"names no {kind} of this catalog: {name}{schema.nearest(name, known)}")


# Members of the body's `provider` object.


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value or len(value) > MOST or not all(isinstance(item, str) for item in value):
        raise _Malformed(f"must be a list of 1 to {MOST} names")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Malformed("must be true or false")
    return value


def _order(value: object, source: str) -> Directives:
    return Directives(prefer=tuple(dict.fromkeys(Preference((_name(word),), source) for word in _texts(value))))


def _providers(key: str) -> Callable[[object, str], Directives]:
    def read(value: object, source: str) -> Directives:
        terms = tuple(dict.fromkeys(_selector(f"provider:{word}") for word in _texts(value)))
        return Directives(constraints=(Constraint(key, terms, source),))

    return read


def _collection(value: object, source: str) -> Directives:
    if value not in ("allow", "deny"):
        raise _Malformed("must be allow or deny")
    return _read("data", "no_training", source) if value == "deny" else NONE


def _body_sort(value: object, source: str) -> Directives:
    if not isinstance(value, str):
        raise _Malformed("must be one word, such as price, latency or throughput")
    return Directives(sort="cost" if value == "price" else _strategy(value))


def _max_price(value: object, source: str) -> Directives:
    if not isinstance(value, Mapping) or not value:
        raise _Malformed("must be an object with prompt and completion, in USD per 1,000,000 tokens")
    found = NONE
    for name, amount in value.items():
        if name not in _PRICE_KEYS:
            raise _Malformed(f"may hold only {' and '.join(_PRICE_KEYS)}, not {name}")
        price = schema.decimal_of(amount)
        if price is None or price < 0:
            raise _Malformed(f"{name} must be USD per 1,000,000 tokens, 0 or more")
        found = combine(found, _read(_PRICE_KEYS[name], schema.plain(price.scaleb(-3)), source))
    return found


_PRICE_KEYS = {"prompt": "max_input_cost_per_1k", "completion": "max_output_cost_per_1k"}


def _quantizations(value: object, source: str) -> Directives:
    return Directives(constraints=(Constraint("quantization", tuple(dict.fromkeys(map(_quantization, _texts(value)))), source),))


_MEMBERS: Mapping[str, Callable[[object, str], Directives]] = {
    "order": _order,
    "only": _providers("only"),
    "ignore": _providers("exclude"),
    "allow_fallbacks": lambda value, source: Directives(fallback=_flag(value)),
    "require_parameters": lambda value, source: Directives(require_parameters=_flag(value)),
    "data_collection": _collection,
    "sort": _body_sort,
    "max_price": _max_price,
    "quantizations": _quantizations,
}
