"""JSON Schema as far as Gemini reads it in two places, beside what the two have in common: references, `allOf`, words for a model.

What a subset cannot say but a model can read (a default, a format, a length) is told in the description; what is left out
altogether is named. A schema is a client's: it may refer to itself, and a short one may be endless once references are followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from n4n.core import json_bytes

Schema = dict[str, object]
MAX_DEPTH = 64
MAX_ENTRIES = 30_000  # members and list entries of one request's schemas, about 0.1 s
TOO_LARGE = "schemas nested too deeply"


class Allowance:
    """How much of one request's schemas may be read: a bound for all of them together."""

    __slots__ = ("left",)

    def __init__(self, left: int = MAX_ENTRIES) -> None:
        self.left = left


class Reading:
    """One schema while it is read: what it refers to is looked up in `root`; what could not be carried is in `left_out`."""

    __slots__ = ("_allowance", "_root", "left_out")

    def __init__(self, root: object, allowance: Allowance) -> None:
        self._root = root
        self._allowance = allowance
        self.left_out: set[str] = set()

    @property
    def full(self) -> bool:
        """So much has been read that the rest is left out."""
        return self._allowance.left < 0

    def whole(self, node: Schema, depth: int, above: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """A schema with what it refers to, and with all of `allOf`, in one; and the references that it and what it stands in follow."""
        self._count(node)
        if self.full or depth > MAX_DEPTH:
            self.left_out.add(TOO_LARGE)
            return {}, above
        node = dict(node)
        while isinstance(reference := node.pop("$ref", None), str):
            target = at(self._root, reference)
            if target is None or reference in above:
                self.left_out.add("$ref" if target is None else "recursive $ref")
                return joined(node, {"type": "object"}), above
            above |= {reference}
            self._count(target)
            node = joined(node, target)
        parts, beside = node.pop("allOf", None), above
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and not self.full:
                inner, followed = self.whole(part, depth + 1, above)
                node, beside = joined(node, inner), beside | followed
        return node, beside

    def _count(self, node: Schema) -> None:
        self._allowance.left -= 1 + sum(len(value) for value in node.values() if isinstance(value, dict | list))
        if self.full:
            self.left_out.add(TOO_LARGE)


def at(root: object, reference: str) -> Schema | None:
    """What a local reference (#/$defs/Name) points to; None: nothing here."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def joined(one: Schema, other: Schema) -> Schema:
    """Two schemas that both hold: members and demands side by side, of anything else the first one's word."""
    both = {**other, **one}
    for name in ("properties", "required"):
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            both[name] = {**theirs, **mine}
        elif isinstance(mine, list) and isinstance(theirs, list):
            both[name] = list(dict.fromkeys(entry for entry in (*theirs, *mine) if isinstance(entry, str)))
    return both


def variants_of(node: Schema) -> list[object] | None:
    """The alternatives of `anyOf` or `oneOf`; None: there are none."""
    for name in ("anyOf", "oneOf"):
        found = node.get(name)
        if isinstance(found, list) and found:
            return found
    return None


def values_of(node: Schema) -> list[object]:
    """What `const` or `enum` allow, null included."""
    values = [node["const"]] if "const" in node else node.get("enum")
    return values if isinstance(values, list) else []


def hints(node: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Keywords in words."""
    return [f"{name}: {short(node[name])}" for name in names if name in node]


def short(value: object) -> str:
    """A value as JSON of a bounded length."""
    try:
        return json_bytes.dump(value).decode()[:500]
    except RecursionError:
        return "…"


def described(node: Schema, told: list[str]) -> Schema:
    """`description` with what is told beside it; empty: there is nothing to say."""
    said = node.get("description")
    words = [said] if isinstance(said, str) and said else []
    words += [f"({', '.join(told)})"] if told else []
    return {"description": " ".join(words)} if words else {}
