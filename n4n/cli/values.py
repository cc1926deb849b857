"""Reads the values of flags; a malformed one is wrong usage (exit 2), said in one line with what to write instead."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from n4n.core import schema, tags
from n4n.core.access import KEY_PREFIX, split_key
from n4n.core.budgets import CALENDAR, MOST_TOKENS, MOST_USD, is_window, pico_of
from n4n.core.directives import KEYS, parse
from n4n.core.errors import InvalidDirective
from n4n.core.limits.subjects import Priority

T = TypeVar("T")
NONE = "none"  # as a value of `key update`: take the rule away
_SPAN = re.compile(r"(\d{1,6})([smhdw])\Z", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BUDGET = re.compile(r"([^/]+)/([a-z0-9]+)(/soft)?\Z", re.ASCII)
_WINDOWS = "day, week, month or a rolling window from 1h to 92d such as 30d"
_PUBLIC_ID = re.compile(r"[a-z0-9]{12}\Z")
_BASE_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]+)*/v1/?\Z")
LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount as decimal text, of USD or of tokens (`unit`: usd, tokens), per window. Soft: told of, and nothing is refused."""

    unit: str
    amount: str
    window: str
    soft: bool = False


def port(text: str) -> int:
    """A TCP port; 0 takes a free one."""
    if text.isascii() and text.isdigit() and int(text) <= 65_535:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a port: write a number from 0 (any free one) to 65535")


def count(text: str) -> int:
    """A whole number, 1 or more; 200k and 2m are thousands and millions."""
    found = schema.whole_number(text)
    if found is not None and 1 <= found <= 10**12:
        return found
    raise ArgumentTypeError(f"{text!r} is not a count: write a whole number, 1 or more, such as 600 or 200k")


def priority(text: str) -> str:
    """How requests compete for what is short."""
    if text in tuple(Priority):
        return text
    raise ArgumentTypeError(f"{text[:40]!r} is not a priority: write {', '.join(Priority)}")


def number(text: str) -> int:
    """A small whole number, 1 or more."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000:
        return int(text)
    raise ArgumentTypeError(f"{text[:40]!r} will not do: write a whole number from 1 to 100000")


def base_url(text: str) -> str:
    """Where applications go, ending in /v1; not another path, which would be sent a key."""
    if _BASE_URL.match(text):
        return text.rstrip("/")
    raise ArgumentTypeError(f"{text[:200]!r} is not a base URL: write it as http://router:8080/v1")


def version(text: str) -> int:
    """A catalog version, 1 or more."""
    if text.isascii() and text.isdigit() and 1 <= int(text) < 2**63:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a version: write a number from `n4n catalog history`")


def expected_version(text: str) -> int:
    """A version, or 0: nothing has been applied yet."""
    return 0 if text == "0" else version(text)


def name(text: str) -> str:
    """A name as the catalog knows them."""
    if schema.NAME.match(text) and len(text) <= 200:
        return text
    raise ArgumentTypeError(f"{text[:80]!r} is not a name: use letters, digits, dot, underscore and hyphen")


def words(text: str) -> str:
    """One line of text."""
    if text.strip() and text.isprintable() and len(text) <= 1000:
        return text
    raise ArgumentTypeError("must be one line of text, at most 1000 characters")


def budget_usd(text: str) -> Budget:
    """`50/month`, `10/24h`, `5/day/soft` as an amount and its window."""
    match = _BUDGET.match(text)
    amount = schema.money(match[1], "", []) if match else None
    if match and amount is not None and 0 < pico_of(amount) <= pico_of(str(MOST_USD)) and is_window(match[2]):
        return Budget("usd", amount, match[2], match[3] is not None)
    raise ArgumentTypeError(f"{text[:80]!r} is not a budget: write USD per {_WINDOWS}, such as 50/month; at most {MOST_USD} USD")


def budget_tokens(text: str) -> Budget:
    """`1000000/day`, `200k/24h`, `5m/month/soft` as a number of tokens and its window."""
    match = _BUDGET.match(text)
    amount = schema.whole_number(match[1]) if match else None
    if match and amount is not None and 0 < amount <= MOST_TOKENS and is_window(match[2]):
        return Budget("tokens", str(amount), match[2], match[3] is not None)
    raise ArgumentTypeError(f"{text[:80]!r} is not a budget: write tokens per {_WINDOWS}, such as 1000000/day or 5m/month")


def provider_cap(text: str) -> tuple[str, Budget | None]:
    """`openai=600/month` as a provider and what may be spent there; `openai=none` takes the cap away."""
    provider, _, rest = text.partition("=")
    if schema.NAME.match(provider) and rest == NONE:
        return provider, None
    try:
        cap = budget_usd(rest)
    except ArgumentTypeError:
        cap = None
    if cap is not None and schema.NAME.match(provider) and cap.window in CALENDAR and not cap.soft:
        return provider, cap
    raise ArgumentTypeError(f"{text[:80]!r} is not a cap: write PROVIDER=USD/day, week or month, such as openai=600/month, or openai=none")


def span(text: str) -> int:
    """`30d`, `12h`, `90s` as milliseconds."""
    match = _SPAN.match(text)
    if match and int(match[1]) > 0:
        return int(match[1]) * _SECONDS[match[2]] * 1000
    raise ArgumentTypeError(f"{text!r} is not a time span: write 30d, 12h, 90s or another number of s, m, h, d or w")


def instant(text: str, now: datetime | None = None) -> int:
    """`30d`, `12h`, `90s` from now, or a date (its first moment in UTC) or an ISO 8601 time, as Unix milliseconds; in the future."""
    now = now or datetime.now(UTC)
    if _SPAN.match(text):
        then = now.timestamp() + span(text) / 1000
    else:
        try:
            read = datetime.fromisoformat(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is neither a time span nor a date: write 30d, 12h, 90s or 2027-12-31") from None
        then = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if not now.timestamp() < then < LATEST:
        raise ArgumentTypeError(f"{text!r} is not in the future: write 30d, 12h, 90s or a date to come")
    return round(then * 1000)


def past(text: str, now: datetime | None = None) -> int:
    """`30d`, `12h`, `90s` ago, or a date (its first moment in UTC) or an ISO 8601 time, as Unix milliseconds."""
    if _SPAN.match(text):
        return max(0, round((now or datetime.now(UTC)).timestamp() * 1000) - span(text))
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is neither a time span nor a date: write 7d, 12h, 90s or 2026-11-30") from None
    then = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if not 0 <= then < LATEST:
        raise ArgumentTypeError(f"{text!r} is not a time that anything was used at")
    return round(then * 1000)


def directive(text: str) -> str:
    """`key=value`, as a request's x-n4n-routing header has them."""
    try:
        parse(text, source="")
    except InvalidDirective as error:
        raise ArgumentTypeError(str(error).removeprefix(": ")) from None
    if not text.strip(", "):
        raise ArgumentTypeError("is empty; write key=value, such as region=eu")
    return text


def directive_name(text: str) -> str:
    """The key of a directive, such as region."""
    if text in KEYS:
        return text
    raise ArgumentTypeError(f"{text[:80]!r} is not a directive's name{schema.nearest(text[:80], KEYS)}; known: {', '.join(KEYS)}")


def api_key(text: str) -> str:
    """A whole key; it is not repeated when it is none."""
    if split_key(text):
        return text
    raise ArgumentTypeError("is not an API key: write the whole of it, sk-n4n-…")


def public_id(text: str) -> str:
    """The public id of a key, also where all of the key was given; it is not repeated when it is none."""
    parts = split_key(text)
    found = parts[0] if parts else text.removeprefix(KEY_PREFIX)
    if _PUBLIC_ID.match(found):
        return found
    raise ArgumentTypeError("must be the 12 letters and digits after sk-n4n-; n4n key list shows them")


def or_none(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """As `read`, and the word `none` takes the rule away."""
    return lambda text: None if text == NONE else read(text)


def names_of(known: Collection[str], most: int) -> Callable[[str], tuple[str, ...]]:
    """One or several of these, at most `most`, comma separated, each once."""

    def read(text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(","))
        for name in found:
            if name not in known:
                raise ArgumentTypeError(f"{name[:40]!r} is none of {', '.join(known)}{schema.nearest(name[:40], known)}")
        if len(set(found)) < len(found):
            raise ArgumentTypeError(f"{text[:80]!r} names one twice")
        if len(found) > most:
            raise ArgumentTypeError(f"{text[:80]!r} names {len(found)}: write at most {most}")
        return found

    return read


def pair_of(known: Collection[str]) -> Callable[[str], tuple[str, str]]:
    """`name=value`, the name one of these."""

    def read(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ArgumentTypeError(f"{text[:80]!r} is not name=value")
        if name not in known:
            raise ArgumentTypeError(f"{name[:40]!r} is none of {', '.join(known)}{schema.nearest(name[:40], known)}")
        return name, value

    return read


def tag(text: str) -> tuple[str, str]:
    """One tag, `name=value`."""
    try:
        (found,) = tags.parse(text) or ((),)
    except tags.BadTag as error:
        raise ArgumentTypeError(str(error)) from None
    except ValueError:
        raise ArgumentTypeError("is more than one tag: write --tag for each") from None
    if not found:
        raise ArgumentTypeError("is empty; write name=value, such as team=search")
    return found


def share(text: str) -> Decimal:
    """`1%` or `0.01`: from nothing to all."""
    try:
        found = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except InvalidOperation:
        found = Decimal(-1)
    if 0 <= found <= 1:
        return found
    raise ArgumentTypeError(f"{text[:40]!r} is not a share: write 1% or 0.01")
