"""Reads untrusted YAML or JSON values into normal form, collecting every problem with its field path.

A reader is a function (value, path, problems) -> normal value or None; None means that a problem was recorded.
Tables of fields and maps of names are built from readers, so that a document's schema is data.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from n4n.core.errors import Problem

_TYPES = {bool: "true/false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a map", type(None): "nothing"}
Problems = list[Problem]
Reader = Callable[[object, str, Problems], object]
NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_SUFFIXED = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM])\Z")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\Z")
_SHOWN = 60  # characters of a refused value that an error repeats


@dataclass(frozen=True, slots=True)
class Field:
    """One known field of a table."""

    read: Reader
    required: bool = False


def kind_of(value: object) -> str:
    """What a value is, in a document's words: 'text', 'a list', …"""
    return _TYPES.get(type(value), type(value).__name__)


def shown(value: object) -> str:
    """A refused value as an error repeats it: on one line and short."""
    try:
        whole = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a huge number"
    return whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "…"


def step(key: object) -> str:
    """A key as a step of a field path: itself where it can be read, else quoted and short."""
    if not isinstance(key, str):
        return shown(key)
    return key if key.isprintable() and len(key) <= 200 else shown(key)


def is_plain(value: str) -> bool:
    """Whether text holds neither control characters nor halves of surrogate pairs, which no wire can carry."""
    return not any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in value)


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean X?)' when a known name is close, else ''."""
    close = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def read_table(value: object, path: str, problems: Problems, fields: Mapping[str, Field]) -> dict[str, object]:
    """A map with known fields only; unknown ones, missing required ones and bad values become problems."""
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be a map of fields, not {kind_of(value)}"))
        return {}
    table: dict[str, object] = {}
    for key, inner in value.items():
        name, inner_path = str(key) if isinstance(key, str | int) else "", f"{path}.{step(key)}" if path else step(key)
        field = fields.get(name)
        if field is None:
            problems.append(Problem(inner_path, f"unknown field{nearest(name, fields)}; known: {', '.join(fields)}"))
        elif inner is not None:
            normal = field.read(inner, inner_path, problems)
            if normal is not None:
                table[name] = normal
    for name, field in fields.items():
        if field.required and value.get(name) is None:
            problems.append(Problem(f"{path}.{name}" if path else name, "is missing; it is required"))
    return table


def table(fields: Mapping[str, Field]) -> Reader:
    """Reader of a nested table."""

    def read(value: object, path: str, problems: Problems) -> object:
        before = len(problems)
        normal = read_table(value, path, problems, fields)
        return normal if len(problems) == before else None

    return read


def named(value: object, path: str, problems: Problems) -> dict[str, object]:
    """A map from names to anything; bad names become problems."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be a map from names, not {kind_of(value)}"))
        return {}
    for name in value:
        if not isinstance(name, str) or not NAME.match(name):
            problems.append(Problem(f"{path}.{step(name)}", "is not a name; use letters, digits, dot, underscore and hyphen"))
    return {name: inner for name, inner in value.items() if isinstance(name, str) and NAME.match(name)}


def text(value: object, path: str, problems: Problems) -> str | None:
    """Non-empty text that is plain."""
    if isinstance(value, str) and value and is_plain(value):
        return value
    if isinstance(value, str):
        problems.append(Problem(path, "must not hold control characters" if value else "must not be empty"))
    else:
        problems.append(Problem(path, f"must be text, not {kind_of(value)}"))
    return None


def flag(value: object, path: str, problems: Problems) -> bool | None:
    """true or false."""
    if isinstance(value, bool):
        return value
    problems.append(Problem(path, f"must be true or false, not {shown(value)}"))
    return None


def choice(*known: str) -> Reader:
    """One of some words."""

    def read(value: object, path: str, problems: Problems) -> str | None:
        word = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(word, str) and word in known:
            return word
        near = nearest(value, known) if isinstance(value, str) else ""
        problems.append(Problem(path, f"must be one of {', '.join(known)}, not {shown(value)}{near}"))
        return None

    return read


def number(low: float, high: float, unit: str = "") -> Reader:
    """A finite number in [low, high], as float."""

    def read(value: object, path: str, problems: Problems) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:  # NaN is in no range
            return float(value)
        problems.append(Problem(path, f"must be a number{unit} from {low:g} to {high:g}, not {shown(value)}"))
        return None

    return read


def whole(low: int, high: int, unit: str = "") -> Reader:
    """A whole number in [low, high]; text such as 128k or 1m is read as thousands or millions."""

    def read(value: object, path: str, problems: Problems) -> int | None:
        found = whole_number(value)
        if found is not None and low <= found <= high:
            return found
        problems.append(Problem(path, f"must be a whole number{unit} from {low} to {high}, not {shown(value)}"))
        return None

    return read


def whole_number(value: object) -> int | None:
    """128000, 128000.0, '128000' and '128k' as 128000; None when it is not a whole number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else None
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    match = _SUFFIXED.match(value)
    if not match or len(value) > 18:
        return None
    scaled = Decimal(match[1]) * (1000 if match[2].lower() == "k" else 1_000_000)
    return int(scaled) if scaled == int(scaled) else None


def money(value: object, path: str, problems: Problems) -> str | None:
    """USD, not negative, at most 6 decimals, as plain decimal text without trailing zeros ('2.5')."""
    amount = decimal_of(value)
    if amount is None or amount < 0 or amount >= Decimal(10) ** 9:
        problems.append(Problem(path, f"must be an amount of USD, 0 or more, not {shown(value)}"))
        return None
    if amount != amount.quantize(Decimal("0.000001")):
        problems.append(Problem(path, f"must have at most 6 decimals, not {shown(value)}"))
        return None
    return plain(amount)


def decimal_of(value: object) -> Decimal | None:
    """A finite decimal from a number or text; None otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return Decimal(value)
    if isinstance(value, float | Decimal):
        value = str(value)
    if not isinstance(value, str) or len(value) > 64 or not _DECIMAL.match(value):
        return None
    amount = Decimal(value)
    return amount if abs(amount.adjusted()) < 30 else None


def plain(amount: Decimal) -> str:
    """Decimal text without exponent and without trailing zeros."""
    shown = f"{amount:f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown


def listed(read_item: Reader, *, least: int = 0) -> Reader:
    """A list whose items all read well, without repetition."""

    def read(value: object, path: str, problems: Problems) -> list[object] | None:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            problems.append(Problem(path, f"must be a list, not {kind_of(value)}"))
            return None
        before = len(problems)
        items: list[object] = []
        for index, inner in enumerate(value):
            item = read_item(inner, f"{path}[{index}]", problems)
            if item is not None and item in items:
                problems.append(Problem(f"{path}[{index}]", f"{shown(inner)} stands twice in the list"))
            items.append(item)
        if len(items) < least:
            problems.append(Problem(path, f"must name at least {least}"))
        return items if len(problems) == before else None

    return read


def map_of(read_item: Reader) -> Reader:
    """A map from non-empty text to values that all read well."""

    def read(value: object, path: str, problems: Problems) -> dict[str, object] | None:
        if not isinstance(value, Mapping):
            problems.append(Problem(path, f"must be a map, not {kind_of(value)}"))
            return None
        before = len(problems)
        items: dict[str, object] = {}
        for key, inner in value.items():
            inner_path = f"{path}.{step(key)}"
            if text(key, inner_path, problems) is not None:
                items[str(key)] = read_item(inner, inner_path, problems)
        return items if len(problems) == before else None

    return read
