"""The schema of an answer (`responseJsonSchema`): JSON Schema with the keywords that Gemini reads, its references kept.

https://ai.google.dev/api/generate-content#generationconfig lists them; `oneOf` is read as `anyOf`, and beside `$ref` nothing may stand.
"""

from __future__ import annotations

from n4n.core.dialects.gemini.schemas import MAX_DEPTH, TOO_LARGE, Allowance, Reading, Schema, described, hints, values_of

_KEPT = (
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum",
    "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
)  # fmt: skip
_TOLD = (
    "default", "examples", "pattern", "minLength", "maxLength", "minProperties", "maxProperties", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "uniqueItems",
)  # fmt: skip
_UNDERSTOOD = frozenset((
    *_KEPT, *_TOLD, "description", "enum", "const", "allOf", "definitions",
    "$schema", "$comment", "readOnly", "writeOnly", "deprecated",  # say nothing of a value
))  # fmt: skip
_LISTS = frozenset(("anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("properties", "$defs"))
_ONE = frozenset(("items", "additionalProperties"))


def answer_schema(schema: object, allowance: Allowance) -> tuple[object, frozenset[str]]:
    """The schema, and the keywords that were left out."""
    reader = _Answer(schema, allowance)
    return reader.node(schema, 0), frozenset(reader.left_out)


class _Answer(Reading):
    __slots__ = ()

    def node(self, raw: object, depth: int) -> object:
        if not isinstance(raw, dict):
            return raw
        if depth > MAX_DEPTH or self.full:
            self.left_out.add(TOO_LARGE)
            return {}
        node = self._joined(raw, depth)
        if isinstance(reference := node.get("$ref"), str):
            node = {name: value for name, value in node.items() if name in ("$defs", "definitions")}
            node["$ref"] = reference.replace("#/definitions/", "#/$defs/", 1)
        if isinstance(older := node.pop("definitions", None), dict):
            node["$defs"] = {**older, **found} if isinstance(found := node.get("$defs"), dict) else older
        self.left_out |= {name for name in node if name not in _UNDERSTOOD and not name.startswith("x-")}
        made = {name: self._inner(name, node[name], depth + 1) for name in _KEPT if name in node}
        values = values_of(node)
        return made | described(node, hints(node, _TOLD)) | ({"enum": values} if values else {})

    def _joined(self, raw: Schema, depth: int) -> Schema:
        """`allOf` of one reference, which is how some write a description beside it, stays a reference."""
        parts = raw.get("allOf")
        if not isinstance(parts, list):
            return dict(raw)
        if len(parts) == 1 and isinstance(parts[0], dict) and "$ref" in parts[0]:
            return {**raw, **parts[0]}
        return self.whole(raw, depth, frozenset())[0]

    def _inner(self, name: str, value: object, depth: int) -> object:
        if name in _MAPS and isinstance(value, dict):
            return {key: self.node(inner, depth) for key, inner in value.items()}
        if name in _LISTS and isinstance(value, list):
            return [self.node(inner, depth) for inner in value]
        return self.node(value, depth) if name in _ONE else value
