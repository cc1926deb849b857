"""Directives: what a client, or its key, requires of an endpoint and would like of the order.

`key=value` pairs, comma separated; `a|b` are alternatives; a repeated hard key must hold each time. Whatever is unknown
or malformed is refused, because a misspelt `region` must never route EU data to the US.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import TypeVar

from n4n.core import schema
from n4n.core.catalog import Endpoint, Snapshot
from n4n.core.constraints import HARD, NUMERIC, Constraint, Malformed, name_in, quantization, routed, selector
from n4n.core.document import STRATEGIES
from n4n.core.errors import InvalidDirective

HEADER, SIMPLE_HEADER, BODY = "x-n4n-routing", "x-routing-directive", "provider"
LONGEST_TEXT, MOST = 4096, 64
_ATTEMPTS = re.compile(r"[1-9]\d{0,2}\Z", re.ASCII)
_MILLISECONDS = re.compile(r"[1-9]\d{0,6}\Z", re.ASCII)
_SPEED = re.compile(r"\d{1,6}(\.\d{1,3})?\Z", re.ASCII)
_T = TypeVar("_T", bool, int, str, Decimal)


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
    max_ttft_ms: int | None = None
    min_tokens_per_s: Decimal | None = None

    @property
    def applied(self) -> tuple[str, ...]:
        """Every directive in its canonical spelling, hard ones first."""
        hard = tuple(constraint.text for constraint in self.constraints)
        return hard + tuple(preference.text for preference in self.prefer) + tuple(self._single())

    def _single(self) -> Iterator[str]:
        if self.sort is not None:
            yield f"sort={self.sort}"
        yield from self.measured
        if self.fallback is not None:
            yield f"fallback={'on' if self.fallback else 'off'}"
        if self.max_attempts is not None:
            yield f"max_attempts={self.max_attempts}"
        if self.consistency is not None:
            yield f"consistency={self.consistency}"
        if self.require_parameters:
            yield "require_parameters=on"

    @property
    def measured(self) -> tuple[str, ...]:
        """The soft ones that what was measured is held against, in their canonical spelling."""
        ttft = () if self.max_ttft_ms is None else (f"max_ttft_ms={self.max_ttft_ms}",)
        return ttft if self.min_tokens_per_s is None else (*ttft, f"min_tokens_per_s={schema.plain(self.min_tokens_per_s)}")

    def names_key(self, key: str) -> bool:
        """Whether a directive of this key was given."""
        return any(text.startswith(f"{key}=") for text in self.applied)


NONE = Directives()


@lru_cache(maxsize=1024)  # a caller says the same in every request, and so does a key
def parse(text: str, source: str = HEADER) -> Directives:
    """The directives in a header, a query parameter or a key; InvalidDirective names `source`, the directive and the remedy."""
    found = NONE
    for part in _parts(text, source):
        key, equals, value = part.partition("=")
        try:
            if not equals:
                raise Malformed("is not key=value")
            found = _joined(found, _read(key.strip(), value, source))
        except Malformed as fault:
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
        except Malformed as fault:
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
        max_ttft_ms=_narrower(outer.max_ttft_ms, inner.max_ttft_ms, min),
        min_tokens_per_s=_narrower(outer.min_tokens_per_s, inner.min_tokens_per_s, max),
    )


def check_names(directives: Directives, snapshot: Snapshot) -> None:
    """InvalidDirective when a directive names what the snapshot does not hold, with the nearest name that it does."""
    for constraint in directives.constraints:
        for term in constraint.terms:
            if constraint.key == "require":
                _check_routable(term.text, snapshot, constraint.source, constraint.text)
            elif constraint.key in ("only", "exclude"):
                kind, _, name = term.text.partition(":")
                if kind != "region":
                    _check(name, kind, _KNOWN[kind](snapshot), constraint.source, constraint.text)
    for preference in directives.prefer:
        for name in preference.names:
            _check_routable(name, snapshot, preference.source, preference.text)


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
        except Malformed as fault:
            raise _refused(source, name, str(fault)) from None
    if found.fallback is False and found.prefer:
        names = [name for preference in found.prefer for name in preference.names]
        pinned = Constraint("require", tuple(map(routed, names)), source)
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
        raise Malformed("has an empty value; write key=value, or leave the directive out")
    if len(words) > MOST:
        raise Malformed(f"has more than {MOST} alternatives")
    if key in HARD:
        return Directives(constraints=(Constraint(key, tuple(dict.fromkeys(map(HARD[key], words))), source),))
    if key == "prefer":
        return Directives(prefer=(Preference(tuple(dict.fromkeys(map(name_in, words))), source),))
    if key not in _SINGLE and key not in NUMERIC:
        raise Malformed(f"is not a known directive{schema.nearest(key, KEYS)}; known: {', '.join(KEYS)}")
    if len(words) > 1:
        raise Malformed("takes one value, without alternatives")
    if key in NUMERIC:
        return Directives(constraints=(Constraint(key, (NUMERIC[key](words[0]),), source),))
    return _SINGLE[key](words[0])


def _joined(first: Directives, then: Directives) -> Directives:
    """Directives of one text, in order: preferences rank, and what can only be one thing may not be two."""
    for key, one, other in (("sort", first.sort, then.sort), ("consistency", first.consistency, then.consistency)):
        if one is not None and other is not None and one != other:
            raise Malformed(f"contradicts {key}={one}; give it once")
    return replace(combine(first, then), prefer=tuple(dict.fromkeys(first.prefer + then.prefer)))


def _narrower(one: _T | None, other: _T | None, choose: Callable[[_T, _T], _T]) -> _T | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


# Soft keys, and how far to go.


def _one_of(*known: str) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word not in known:
            raise Malformed(f"must be one of {', '.join(known)}{schema.nearest(word, known)}")
        return word

    return read


_strategy, _switch, _consistency = _one_of(*STRATEGIES), _one_of("on", "off"), _one_of("strict", "available")


def _max_attempts(word: str) -> Directives:
    if not _ATTEMPTS.match(word):
        raise Malformed("must be a whole number from 1 to 999")
    return Directives(max_attempts=int(word))


def _max_ttft_ms(word: str) -> Directives:
    if not _MILLISECONDS.match(word):
        raise Malformed("must be a whole number of milliseconds above 0, such as 800")
    return Directives(max_ttft_ms=int(word))


def _min_tokens_per_s(word: str) -> Directives:
    if not _SPEED.match(word) or not Decimal(word):
        raise Malformed("must be a plain decimal of tokens per second above 0, such as 40")
    return Directives(min_tokens_per_s=Decimal(word))


_SINGLE: Mapping[str, Callable[[str], Directives]] = {
    "sort": lambda word: Directives(sort=_strategy(word)),
    "fallback": lambda word: Directives(fallback=_switch(word) == "on"),
    "max_attempts": _max_attempts,
    "consistency": lambda word: Directives(consistency=_consistency(word)),
    "max_ttft_ms": _max_ttft_ms,
    "min_tokens_per_s": _min_tokens_per_s,
}
KEYS = (*HARD, *NUMERIC, "prefer", *_SINGLE)


# Names that a snapshot holds.


_KNOWN: Mapping[str, Callable[[Snapshot], tuple[Collection[str], ...]]] = {
    "provider": lambda snapshot: (snapshot.providers,),
    "endpoint": lambda snapshot: (snapshot.endpoints,),
    "account": lambda snapshot: ({account.name for endpoint in snapshot.endpoints.values() for account in endpoint.accounts},),
    "model": lambda snapshot: (snapshot.models, snapshot.aliases),
}


def _check_routable(name: str, snapshot: Snapshot, source: str, directive: str) -> None:
    _check(name, "provider or endpoint", (snapshot.providers, snapshot.endpoints), source, directive)


def _check(name: str, kind: str, known: tuple[Collection[str], ...], source: str, directive: str) -> None:
    if not any(name in names for names in known):
        nearest = schema.nearest(name, [known_name for names in known for known_name in names])
        raise _refused(source, directive, f"names no {kind} of this catalog: {name}{nearest}")


# Members of the body's `provider` object.


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value or len(value) > MOST or not all(isinstance(item, str) for item in value):
        raise Malformed(f"must be a list of 1 to {MOST} names")
    if sum(map(len, value)) > LONGEST_TEXT:
        raise Malformed(f"is longer than {LONGEST_TEXT} characters; name fewer")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Malformed("must be true or false")
    return value


def _order(value: object, source: str) -> Directives:
    return Directives(prefer=tuple(dict.fromkeys(Preference((name_in(word),), source) for word in _texts(value))))


def _providers(key: str) -> Callable[[object, str], Directives]:
    def read(value: object, source: str) -> Directives:
        terms = tuple(dict.fromkeys(selector(f"provider:{word}") for word in _texts(value)))
        return Directives(constraints=(Constraint(key, terms, source),))

    return read


def _collection(value: object, source: str) -> Directives:
    if value not in ("allow", "deny"):
        raise Malformed("must be allow or deny")
    return _read("data", "no_training", source) if value == "deny" else NONE


def _body_sort(value: object, source: str) -> Directives:
    if not isinstance(value, str):
        raise Malformed("must be one word, such as price, latency or throughput")
    return Directives(sort="cost" if value == "price" else _strategy(value))


def _max_price(value: object, source: str) -> Directives:
    if not isinstance(value, Mapping) or not value:
        raise Malformed("must be an object with prompt and completion, in USD per 1,000,000 tokens")
    found = NONE
    for name, amount in value.items():
        if name not in _PRICE_KEYS:
            raise Malformed(f"may hold only {' and '.join(_PRICE_KEYS)}, not {name}")
        price = schema.decimal_of(amount)
        if price is None or price < 0:
            raise Malformed(f"{name} must be USD per 1,000,000 tokens, 0 or more")
        found = combine(found, _read(_PRICE_KEYS[name], schema.plain(price.scaleb(-3)), source))
    return found


_PRICE_KEYS = {"prompt": "max_input_cost_per_1k", "completion": "max_output_cost_per_1k"}


def _quantizations(value: object, source: str) -> Directives:
    return Directives(constraints=(Constraint("quantization", tuple(dict.fromkeys(map(quantization, _texts(value)))), source),))


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
