"""JSON schemas as Bedrock's structured outputs take them: closed objects; limits it does not know are told in words.

https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
"""

from __future__ import annotations

from typing import cast

from n4n.core import json_bytes

Object = dict[str, object]
_DEPTH = 64  # levels; below them a schema stays as it came
_BY_NAME = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_UNKNOWN = frozenset(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems", "uniqueItems",
     "minProperties", "maxProperties", "patternProperties", "propertyNames", "not", "if", "then", "else", "contains")
)  # fmt: skip


def closed(schema: object, depth: int = 0) -> object:
    """The schema with every object closed, and in each `description` what cannot be enforced, where a model may heed it."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return schema
    said = cast(Object, schema)
    untold = {name: value for name, value in said.items() if name in _UNKNOWN}
    if said.get("minItems") not in (None, 0, 1):
        untold["minItems"] = said["minItems"]
    made: Object = {name: value for name, value in said.items() if name not in untold}
    for name in _BY_NAME:
        inner = made.get(name)
        if isinstance(inner, dict):
            made[name] = {key: closed(value, depth + 1) for key, value in inner.items()}
    for name in _LISTS:
        branches = made.get(name)
        if isinstance(branches, list):
            made[name] = [closed(branch, depth + 1) for branch in branches]
    if "oneOf" in made and "anyOf" not in made:
        made["anyOf"] = made.pop("oneOf")
    if "items" in made:
        made["items"] = closed(made["items"], depth + 1)
    if _is_object(said):
        made["additionalProperties"] = False
    if untold:
        made["description"] = _in_words(made.get("description"), untold)
    return made


def _is_object(said: Object) -> bool:
    kind = said.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or isinstance(said.get("properties"), dict)


def _in_words(description: object, untold: Object) -> str:
    words = ", ".join(f"{name}: {json_bytes.dump(value).decode()}" for name, value in untold.items())
    return f"{description} ({words})" if isinstance(description, str) and description else words
