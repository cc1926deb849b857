"""JSON schemas as structured outputs of Messages take them: closed objects, and what is not understood told in words.

https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations; what the official SDKs do to
schemas before they send them (`transform_schema` of anthropic-sdk-python).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.core import json_bytes

Object = dict[str, object]
_KEPT = frozenset(("type", "enum", "const", "title", "description", "required", "default", "$ref"))
_BRANCHES = ("anyOf", "oneOf", "allOf")
_DEPTH = 64  # levels; below them a schema stays as it came
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"))


def closed(schema: object, depth: int = 0) -> object:
    """The schema in the supported subset; what that cannot hold is told in `description`, where a model may heed it."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return schema
    deeper = depth + 1
    said = cast(Object, schema)
    kept: Object = {name: value for name, value in said.items() if name in _KEPT}
    rest: Object = {name: value for name, value in said.items() if name not in _KEPT}
    for name in ("$defs", "definitions", "properties"):
        if isinstance(rest.get(name), dict):
            kept[name] = {key: closed(value, deeper) for key, value in cast(Object, rest.pop(name)).items()}
    if "items" in rest:
        kept["items"] = closed(rest.pop("items"), deeper)
    for name in _BRANCHES:
        if isinstance(rest.get(name), list):
            kept["allOf" if name == "allOf" else "anyOf"] = [closed(branch, deeper) for branch in cast(list[object], rest.pop(name))]
    if _is_object(said):
        kept["additionalProperties"] = False
        if isinstance(rest.get("additionalProperties"), bool):
            del rest["additionalProperties"]
    if rest.get("format") in _FORMATS:
        kept["format"] = rest.pop("format")
    if rest.get("minItems") in (0, 1):
        kept["minItems"] = rest.pop("minItems")
    if rest:
        kept["description"] = _in_words(kept.get("description"), rest)
    return kept


def is_strict(schema: object, depth: int = 0) -> bool:
    """Whether OpenAI's strict mode takes it: every object is closed and requires all its properties."""
    if depth > _DEPTH:
        return False
    if isinstance(schema, list):
        return all(is_strict(value, depth + 1) for value in schema)
    if not isinstance(schema, dict):
        return True
    said = cast(Object, schema)
    if _is_object(said):
        properties, required = said.get("properties"), said.get("required")
        named = set(properties) if isinstance(properties, dict) else set()
        if said.get("additionalProperties") is not False or not named <= set(required if isinstance(required, list) else ()):
            return False
    return all(is_strict(value, depth + 1) for value in said.values())


def _is_object(said: Mapping[str, object]) -> bool:
    kind = said.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or isinstance(said.get("properties"), dict)


def _in_words(description: object, rest: Object) -> str:
    wanted = ", ".join(f"{name}: {json_bytes.dump(value).decode()}" for name, value in rest.items())
    return f"{description}\n\n{{{wanted}}}" if isinstance(description, str) and description else f"{{{wanted}}}"
