"""So much of PromQL as the rules use, on series with a value every few minutes, so that rules are replayed without a Prometheus too.

As Prometheus 2.42 counts: windows hold both ends, increases are extrapolated to the window, counters may begin anew.
https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = Vector | float | str
Evaluated = Callable[["History", int], Value]  # at a step

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]))|(\d+[smhdw])|([A-Za-z_:][\w:]*)|(\"(?:[^\"\\]|\\.)*\")|(==|!=|<=|>=|=~|[-+*/(){}\[\],<>=]))"
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq,
}  # fmt: skip
_COUNTED: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda a, b: a / b if b else math.nan,
}  # fmt: skip
_STALE_S = 300
_SET = {"and", "or", "unless"}
_SUMMED: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min}


@dataclass
class Track:
    """One series. `grown`: its counter as if it had never begun anew."""

    labels: dict[str, str]
    values: Sequence[float]
    grown: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        lost, before = 0.0, 0.0
        for value in self.values:
            lost += before if value < before else 0.0
            self.grown.append(value + lost)
            before = value


class History:
    """All series; `step_s`: between two values."""

    def __init__(self, series: Mapping[str, Sequence[float]], step_s: int) -> None:
        self.step_s = step_s
        self._tracks: dict[str, list[Track]] = {}
        for name, values in series.items():
            metric, _, told = name.partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', told))
            self._tracks.setdefault(metric, []).append(Track(labels, values))

    def last(self, at_s: float) -> int:
        """The number of the newest value then."""
        return math.floor(at_s / self.step_s)

    def found(self, metric: str, wanted: Sequence[tuple[str, str, str]]) -> list[Track]:
        """Those that a selector means."""
        return [
            one for one in self._tracks.get(metric, ()) if all(_fits(one.labels.get(label, ""), how, value) for label, how, value in wanted)
        ]


def _fits(value: str, how: str, wanted: str) -> bool:
    match how:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case _:
            return re.fullmatch(wanted, value) is not None


def parsed(text: str) -> Evaluated:
    """An expression; AssertionError for what the rules do not use."""
    parser = _Parser(text)
    found = parser.any_of()
    assert parser.next == "", parser.next
    return found


class _Parser:
    """By descent, from what binds least to what binds most."""

    def __init__(self, text: str) -> None:
        self._tokens, at = [], 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            assert match, text[at : at + 20]
            self._tokens.append(match.group().strip())
            at = match.end()
        self._at = 0

    @property
    def next(self) -> str:
        """'' at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, wanted: str = "") -> str:
        """The next one."""
        found = self.next
        assert not wanted or found == wanted, (wanted, found)
        self._at += 1
        return found

    def any_of(self) -> Evaluated:
        left = self._all_of()
        while self.next == "or":
            self.take()
            left = _joined("or", left, self._all_of(), None)
        return left

    def _all_of(self) -> Evaluated:
        left = self._comparison()
        while self.next in ("and", "unless"):
            how, on = self.take(), self._on()
            left = _joined(how, left, self._comparison(), on)
        return left

    def _comparison(self) -> Evaluated:
        left = self._sum()
        while self.next in _COMPARED:
            how, on = self.take(), self._on()
            left = _joined(how, left, self._sum(), on)
        return left

    def _sum(self) -> Evaluated:
        left = self._product()
        while self.next in ("+", "-"):
            how, on = self.take(), self._on()
            left = _joined(how, left, self._product(), on)
        return left

    def _product(self) -> Evaluated:
        left = self._one()
        while self.next in ("*", "/"):
            how, on = self.take(), self._on()
            many = self.next == "group_left" and bool(self.take())
            left = _joined(how, left, self._one(), on, many=many)
        return left

    def _on(self) -> tuple[str, ...] | None:
        if self.next != "on":
            return None
        self.take()
        return self._names()

    def _names(self) -> tuple[str, ...]:
        self.take("(")
        names = []
        while self.next != ")":
            names.append(self.take())
            if self.next == ",":
                self.take()
        self.take(")")
        return tuple(names)

    def _one(self) -> Evaluated:
        word = self.take()
        if word == "(":
            inside = self.any_of()
            self.take(")")
            return inside
        if word[0].isdigit():
            number = float(word)
            return lambda history, step: number
        if word[0] == '"':
            return lambda history, step: word[1:-1]
        if word in _SUMMED:
            by = self._names() if self.next == "by" and self.take() else ()
            self.take("(")
            inside = self.any_of()
            self.take(")")
            return lambda history, step: _added(_SUMMED[word], by, _vector(inside(history, step)))
        return self._call(word) if self.next == "(" else self._selector(word)

    def _call(self, name: str) -> Evaluated:
        self.take("(")
        arguments = []
        while self.next != ")":
            arguments.append(self.any_of())
            if self.next == ",":
                self.take()
        self.take(")")
        if name in _OVER_TIME:
            (window,) = arguments
            return lambda history, step: _OVER_TIME[name](window(history, step))  # type: ignore[arg-type]
        return lambda history, step: _FUNCTIONS[name](*(one(history, step) for one in arguments))

    def _selector(self, metric: str) -> Evaluated:
        wanted = []
        if self.next == "{":
            self.take()
            while self.next != "}":
                wanted.append((self.take(), self.take(), self.take()[1:-1]))
                if self.next == ",":
                    self.take()
            self.take("}")
        window_s = 0
        if self.next == "[":
            self.take()
            window_s = _seconds(self.take())
            self.take("]")
        offset_s = _seconds(self.take()) if self.next == "offset" and self.take() else 0
        if window_s:
            return lambda history, step: _Window(history, history.found(metric, wanted), step * history.step_s - offset_s, window_s)  # type: ignore[return-value]
        return lambda history, step: _now(history, history.found(metric, wanted), step * history.step_s - offset_s)


def _seconds(told: str) -> int:
    return int(told[:-1]) * _UNITS_S[told[-1]]


@dataclass
class _Window:
    history: History
    tracks: list[Track]
    until_s: float
    window_s: int

    def spans(self) -> list[tuple[Track, int, int]]:
        """Of each series the first and the last value within."""
        first = max(0, math.ceil((self.until_s - self.window_s) / self.history.step_s))
        last = self.history.last(self.until_s)
        return [(one, first, min(last, len(one.values) - 1)) for one in self.tracks if last >= first]


def _now(history: History, tracks: list[Track], at_s: float) -> Vector:
    last = history.last(at_s)
    if last < 0 or at_s - last * history.step_s > _STALE_S:
        return {}
    return {frozenset(one.labels.items()): one.values[last] for one in tracks if last < len(one.values)}


def _increase(window: _Window) -> Vector:
    """Extrapolated to the window, by half a step at most where the series begins within it."""
    found = {}
    for one, first, last in window.spans():
        if last <= first:
            continue
        step_s = window.history.step_s
        grown, sampled_s = one.grown[last] - one.grown[first], (last - first) * step_s
        before_s = window.window_s - sampled_s - (window.until_s - last * step_s)
        if grown > 0 and one.values[first] >= 0:
            before_s = min(before_s, sampled_s * one.values[first] / grown)
        extrapolated_s = sampled_s + (before_s if before_s < step_s * 1.1 else step_s / 2)
        found[frozenset(one.labels.items())] = grown * extrapolated_s / sampled_s
    return found


def _rate(window: _Window) -> Vector:
    return {labels: value / window.window_s for labels, value in _increase(window).items()}


def _average(window: _Window) -> Vector:
    return {
        frozenset(one.labels.items()): sum(one.values[first : last + 1]) / (last + 1 - first)
        for one, first, last in window.spans()
        if last >= first
    }


def _quantile(share: Value, buckets: Value) -> Vector:
    of_each: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in _vector(buckets).items():
        bound = float(dict(labels)["le"].replace("+Inf", "inf"))
        of_each.setdefault(frozenset(one for one in labels if one[0] != "le"), []).append((bound, count))
    return {labels: _within(float(share), sorted(bounds)) for labels, bounds in of_each.items()}  # type: ignore[arg-type]


def _within(share: float, bounds: list[tuple[float, float]]) -> float:
    total = bounds[-1][1]
    if not total:
        return math.nan
    rank, below, lower = share * total, 0.0, 0.0
    for bound, count in bounds:
        if count >= rank:
            return lower if bound == math.inf else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    return lower


def _replaced(vector: Value, label: Value, to: Value, source: Value, pattern: Value) -> Vector:
    found = {}
    for labels, value in _vector(vector).items():
        told = dict(labels)
        match = re.fullmatch(str(pattern), told.get(str(source), ""))
        if match:
            told[str(label)] = match.expand(str(to).replace("$", "\\"))
        found[frozenset(told.items())] = value
    return found


_OVER_TIME: Mapping[str, Callable[[_Window], Vector]] = {"rate": _rate, "increase": _increase, "avg_over_time": _average}
_FUNCTIONS: Mapping[str, Callable[..., Vector]] = {
    "histogram_quantile": _quantile,
    "label_replace": _replaced,
    "abs": lambda vector: {labels: abs(value) for labels, value in vector.items()},
    "vector": lambda value: {frozenset(): value},
    "clamp_min": lambda vector, least: {labels: max(value, least) for labels, value in vector.items()},
}


def _vector(value: Value) -> Vector:
    assert isinstance(value, dict), value
    return value


def _added(how: Callable[[Sequence[float]], float], by: Sequence[str], vector: Vector) -> Vector:
    groups: dict[Labels, list[float]] = {}
    for labels, value in vector.items():
        groups.setdefault(_only(labels, by), []).append(value)
    return {labels: how(values) for labels, values in groups.items()}


def _only(labels: Labels, names: Sequence[str] | None) -> Labels:
    return labels if names is None else frozenset(one for one in labels if one[0] in names)


def _joined(how: str, left: Evaluated, right: Evaluated, on: tuple[str, ...] | None, *, many: bool = False) -> Evaluated:
    def evaluated(history: History, step: int) -> Value:
        one, other = left(history, step), right(history, step)
        if how in _SET:
            return _of_sets(how, _vector(one), _vector(other), on)
        if isinstance(one, float) and isinstance(other, float):
            return _COUNTED[how](one, other)
        return _of_values(how, one, other, on, many=many)

    return evaluated


def _of_sets(how: str, one: Vector, other: Vector, on: tuple[str, ...] | None) -> Vector:
    there = {_only(labels, on) for labels in other}
    if how == "or":
        here = {_only(labels, on) for labels in one}
        return {**one, **{labels: value for labels, value in other.items() if _only(labels, on) not in here}}
    return {labels: value for labels, value in one.items() if (_only(labels, on) in there) is (how == "and")}


def _of_values(how: str, one: Value, other: Value, on: tuple[str, ...] | None, *, many: bool) -> Vector:
    found: Vector = {}
    by_key = {_only(labels, on): value for labels, value in other.items()} if isinstance(other, dict) else {}
    for labels, value in one.items() if isinstance(one, dict) else [(labels, one) for labels in by_key]:
        key = _only(labels, on)
        beside = by_key.get(key) if isinstance(other, dict) else other
        if beside is None:
            continue
        told = labels if many or not isinstance(other, dict) or not isinstance(one, dict) else key
        if how in _COMPARED:
            if _COMPARED[how](value, beside):  # type: ignore[arg-type]
                found[told] = value  # type: ignore[assignment]
        else:
            found[told] = _COUNTED[how](value, beside)  # type: ignore[arg-type]
    return found
