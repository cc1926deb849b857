"""A function's parameters in the subset of OpenAPI's schema that every Gemini model takes (https://ai.google.dev/api/caching#Schema).

References are put in place of themselves; `null` becomes `nullable`; additionalProperties and what else the API refuses are dropped.
"""

from __future__ import annotations

from typing import cast

from n4n.core.dialects.gemini.schemas import Allowance, Reading, Schema, described, hints, joined, short, values_of, variants_of

_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object"))
_KEPT = (
    "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "minimum", "maximum", "pattern",
    "propertyOrdering",
)  # fmt: skip
_FORMATS = frozenset(("date-time", "float", "double", "int32", "int64"))  # all others: "only 'enum' and 'date-time' are supported"
_TOLD = ("default", "examples", "example", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems")
_UNDERSTOOD = frozenset((
    *_KEPT, *_TOLD, "type", "format", "anyOf", "oneOf", "enum", "const", "properties", "required", "items", "prefixItems", "description",
    "additionalProperties", "nullable",
    "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "readOnly", "writeOnly", "deprecated",  # say nothing
))  # fmt: skip


def parameters(schema: object, allowance: Allowance) -> tuple[Schema | None, frozenset[str]]:
    """The schema, None where the function takes nothing, and the keywords that were left out."""
    reader = _Parameters(schema, allowance)
    made = reader.node(schema, 0, frozenset())
    if "anyOf" in made:
        made = _one_object(made)
        reader.left_out.add("anyOf of all parameters")
    return (made if made.get("properties") else None), frozenset(reader.left_out)


class _Parameters(Reading):
    __slots__ = ()

    def node(self, raw: object, depth: int, above: frozenset[str]) -> Schema:
        """One schema; `true`, `false` and what is none at all mean: anything."""
        if not isinstance(raw, dict):
            return {}
        node, above = self.whole(raw, depth, above)
        self.left_out |= {name for name in node if name not in _UNDERSTOOD and not name.startswith("x-")}
        variants = variants_of(node)
        if variants is None and isinstance(kinds := node.get("type"), list):
            variants = [{"type": kind} for kind in kinds]
        if variants is not None:
            return self._any_of(node, variants, depth + 1, above)
        kind, values, form = _kind(node), values_of(node), node.get("format")
        words = all(isinstance(value, str) for value in values if value is not None)
        known = isinstance(form, str) and form in _FORMATS
        told = hints(node, _TOLD) + ([] if known else hints(node, ("format",)))
        made: Schema = {"type": kind.upper()} if kind else {}
        made |= described(node, told if words else [*told, f"one of: {short(values)}"])
        made |= {name: node[name] for name in _KEPT if name in node}
        if known:
            made["format"] = form
        if values and words and values != [None]:  # `enum` holds texts only
            made["enum"] = [value for value in values if value is not None]
        if None in values or node.get("nullable") is True or node.get("type") == "null":
            made["nullable"] = True
        if kind == "object":
            return made | self._object(node, depth + 1, above)
        return made | (self._array(node, depth + 1, above) if kind == "array" else {})

    def _any_of(self, node: Schema, variants: list[object], depth: int, above: frozenset[str]) -> Schema:
        """Beside `anyOf` Vertex allows nothing: what stands there goes into each of the variants."""
        base = {name: value for name, value in node.items() if name not in ("anyOf", "oneOf", "description")}
        if isinstance(base.get("type"), list):
            del base["type"]
        kept = [variant for variant in variants if isinstance(variant, dict) and variant.get("type") != "null"]
        made = [self.node(joined(variant, base), depth, above) for variant in kept if not self.full]
        for one in made:
            if len(kept) < len(variants):
                one["nullable"] = True
            own = [one["description"]] if "description" in one else []
            one |= described({"description": " ".join(map(str, [*described(node, []).values(), *own]))}, [])
        return made[0] if len(made) == 1 else {"anyOf": made} if made else {"nullable": True}

    def _object(self, node: Schema, depth: int, above: frozenset[str]) -> Schema:
        properties, required = node.get("properties"), node.get("required")
        if isinstance(node.get("additionalProperties"), dict):
            self.left_out.add("additionalProperties")
        if not isinstance(properties, dict) or not properties:  # an empty object of them is refused
            return {}
        made: Schema = {"properties": {name: self.node(inner, depth, above) for name, inner in properties.items()}}
        known = [name for name in required if isinstance(name, str) and name in properties] if isinstance(required, list) else []
        return made | ({"required": known} if known else {})

    def _array(self, node: Schema, depth: int, above: frozenset[str]) -> Schema:
        """Every array must say what it holds; a tuple becomes a list of any of its members."""
        items = node.get("items")
        members = node.get("prefixItems", items)
        if isinstance(members, list) and members:
            self.left_out.add("the order of a tuple")
            items = {"anyOf": members}
        return {"items": self.node(items, depth, above) or {"type": "STRING"}}


def _kind(node: Schema) -> str | None:
    """The type, said or seen."""
    said = node.get("type")
    if isinstance(said, str) and said.lower() in _TYPES:
        return said.lower()
    if "properties" in node:
        return "object"
    if "items" in node or "prefixItems" in node:
        return "array"
    return "string" if any(isinstance(value, str) for value in values_of(node)) else None


def _one_object(made: Schema) -> Schema:
    """Parameters are one object: of several possible ones all members, of which only those are required that all of them require."""
    variants = [variant for variant in cast(list[Schema], made["anyOf"]) if variant.get("properties")]
    demands = [set(cast(list[str], variant.pop("required", []))) for variant in variants]
    whole: Schema = {"type": "OBJECT"}
    for variant in variants:
        whole = joined(whole, variant)
    required = sorted(set.intersection(*demands)) if demands else []
    return whole | ({"required": required} if required else {})
