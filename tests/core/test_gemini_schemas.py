"""Schemas for Gemini: parameters in OpenAPI's subset, answers in JSON Schema's, and bounds for what a client may send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.dialects.gemini.answer_schema import answer_schema
from n4n.core.dialects.gemini.parameters import parameters
from n4n.core.dialects.gemini.schemas import MAX_ENTRIES, TOO_LARGE, Allowance


def taken(schema: object) -> tuple[object, frozenset[str]]:
    return parameters(schema, Allowance())


def member(inner: object, **root: object) -> tuple[Any, frozenset[str]]:
    """One member of a function's parameters."""
    made, left_out = taken({"type": "object", "properties": {"a": inner}, **root})
    assert isinstance(made, dict)
    return made["properties"]["a"], left_out


NODE = {"type": "object", "properties": {"v": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ({"type": "string", "minLength": 1, "pattern": "^a", "title": "A", "x-y": 1}, {"type": "STRING", "minLength": 1, "pattern": "^a"}),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "STRING", "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
        ({"const": "k"}, {"type": "STRING", "enum": ["k"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "INTEGER", "description": "(one of: [1,2])"}),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
        ({"type": "string", "format": "uri", "description": "where"}, {"type": "STRING", "description": 'where (format: "uri")'}),
        ({"type": "string", "format": ["x"]}, {"type": "STRING", "description": '(format: ["x"])'}),
        ({"type": "integer", "default": 3, "exclusiveMinimum": 0}, {"type": "INTEGER", "description": "(default: 3, exclusiveMinimum: 0)"}),
        ({"type": ["string", "null"], "description": "d"}, {"type": "STRING", "nullable": True, "description": "d"}),
        (
            {"type": ["string", "integer"], "description": "d", "default": 1},
            {"anyOf": [{"type": "STRING", "description": "d (default: 1)"}, {"type": "INTEGER", "description": "d (default: 1)"}]},
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "A"}, {"type": "INTEGER", "nullable": True}),
        (
            {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "INTEGER", "nullable": True}, {"type": "STRING", "nullable": True}]},
        ),
        ({"anyOf": [{"type": "null"}, False]}, {"nullable": True}),
        ({"type": "null"}, {"nullable": True}),
        ({"type": "string", "nullable": True}, {"type": "STRING", "nullable": True}),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}),
        ({"items": {"type": "number"}}, {"type": "ARRAY", "items": {"type": "NUMBER"}}),
        ({"type": "object", "properties": {}}, {"type": "OBJECT"}),
        ({"type": "object", "additionalProperties": True}, {"type": "OBJECT"}),
        (
            {"properties": {"b": {"type": "boolean"}}, "required": ["b", "gone", ["x"]], "additionalProperties": False},
            {"type": "OBJECT", "properties": {"b": {"type": "BOOLEAN"}}, "required": ["b"]},
        ),
        ({"properties": {"b": {}}, "required": "b"}, {"type": "OBJECT", "properties": {"b": {}}}),
        (
            {"type": "object", "properties": {"b": {}, "c": {}}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {
                "anyOf": [
                    {"type": "OBJECT", "properties": {"b": {}, "c": {}}, "required": ["b"]},
                    {"type": "OBJECT", "properties": {"b": {}, "c": {}}, "required": ["c"]},
                ]
            },
        ),
        (
            {"allOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"c": {}}, "required": ["c"]}, 5]},
            {"type": "OBJECT", "properties": {"c": {}, "b": {}}, "required": ["c", "b"]},
        ),
        (True, {}),
        ({"type": "any"}, {}),
        ({"enum": "x"}, {}),
    ],
)
def test_a_parameter_is_said_in_the_subset(inner: object, expected: object) -> None:
    assert member(inner) == (expected, frozenset())


@pytest.mark.parametrize(
    ("inner", "expected", "left_out"),
    [
        ({"not": {"type": "string"}, "if": {}}, {}, {"not", "if"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "OBJECT"}, {"additionalProperties"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}},
            {"the order of a tuple"},
        ),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "ARRAY", "items": {"type": "STRING"}}, {"the order of a tuple"}),
        ({"$ref": "https://elsewhere.test/x"}, {"type": "OBJECT"}, {"$ref"}),
        ({"$ref": "#/$defs/Nobody"}, {"type": "OBJECT"}, {"$ref"}),
        ({"$ref": "#/$defs/Node/type/x"}, {"type": "OBJECT"}, {"$ref"}),
    ],
)
def test_what_cannot_be_said_is_named(inner: object, expected: object, left_out: set[str]) -> None:
    assert member(inner, **{"$defs": {"Node": NODE}}) == (expected, frozenset(left_out))


def test_references_are_put_in_place_and_end_where_they_return() -> None:
    made, left_out = member({"$ref": "#/$defs/Node", "description": "the first"}, **{"$defs": {"Node": NODE}})

    assert made == {
        "type": "OBJECT",
        "description": "the first",
        "properties": {"v": {"type": "STRING"}, "next": {"type": "OBJECT"}},
    }
    assert left_out == {"recursive $ref"}


def test_the_same_reference_may_stand_beside_itself() -> None:
    defs = {"a/b~": {"type": "string"}, "Two": {"$ref": "#/$defs/a~1b~0"}}
    made, left_out = member({"allOf": [{"$ref": "#/$defs/Two"}, {"$ref": "#/$defs/Two"}]}, **{"$defs": defs})

    assert (made, left_out) == ({"type": "STRING"}, frozenset())


@pytest.mark.parametrize("schema", [None, {}, True, {"type": "object"}, {"type": "object", "properties": {}}, {"type": "string"}])
def test_a_function_without_parameters_declares_none(schema: object) -> None:
    assert taken(schema) == (None, frozenset())


def test_one_of_several_sets_of_parameters_becomes_all_of_them() -> None:
    one = {"type": "object", "properties": {"kind": {"const": "a"}, "x": {}}, "required": ["kind", "x"]}
    other = {"type": "object", "properties": {"y": {}, "kind": {"const": "a"}}, "required": ["kind", "y"]}

    assert taken({"anyOf": [one, other]}) == (
        {
            "type": "OBJECT",
            "properties": {"y": {}, "kind": {"type": "STRING", "enum": ["a"]}, "x": {}},
            "required": ["kind"],
        },
        frozenset(("anyOf of all parameters",)),
    )
    assert taken({"anyOf": [{"type": "string"}, {"type": "integer"}]}) == (None, frozenset(("anyOf of all parameters",)))
    assert taken({"anyOf": [{"properties": {"x": {}}}, {"properties": {"y": {}}}]})[0] == {
        "type": "OBJECT",
        "properties": {"y": {}, "x": {}},
    }


# ── answers


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False, "required": ["a"]},
        ),
        ({"const": 5, "$schema": "x", "x-y": 1}, {"enum": [5]}),
        ({"type": "string", "maxLength": 3, "description": "d"}, {"type": "string", "description": "d (maxLength: 3)"}),
        (
            {"anyOf": [{"const": "a"}, True], "prefixItems": [{"enum": [1]}]},
            {"anyOf": [{"enum": ["a"]}, True], "prefixItems": [{"enum": [1]}]},
        ),
        (
            {"items": {"$ref": "#/$defs/N", "title": "t"}, "$defs": {"N": {"const": 1}}},
            {"items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"enum": [1]}}},
        ),
        (
            {"$ref": "#/definitions/N", "definitions": {"N": {"items": {"$ref": "#/definitions/N"}}}},
            {"$ref": "#/$defs/N", "$defs": {"N": {"items": {"$ref": "#/$defs/N"}}}},
        ),
        ({"definitions": {"N": {}}, "$defs": {"M": {}}}, {"$defs": {"N": {}, "M": {}}}),
        ({"properties": {"a": {"allOf": [{"$ref": "#/$defs/N"}], "description": "d"}}}, {"properties": {"a": {"$ref": "#/$defs/N"}}}),
        ({"allOf": [{"properties": {"a": {}}}, {"required": ["a"]}]}, {"properties": {"a": {}}, "required": ["a"]}),
        ({"properties": 5, "anyOf": 5, "items": [1]}, {"properties": 5, "anyOf": 5, "items": [1]}),
    ],
)
def test_an_answers_schema_keeps_what_gemini_reads(schema: object, expected: object) -> None:
    assert answer_schema(schema, Allowance()) == (expected, frozenset())


def test_what_an_answers_schema_loses_is_named() -> None:
    assert answer_schema({"not": {}, "patternProperties": {}}, Allowance()) == ({}, frozenset(("not", "patternProperties")))


# ── bounds


def deep(levels: int) -> dict[str, object]:
    made: dict[str, object] = {"type": "object"}
    for _ in range(levels):
        made = {"type": "object", "properties": {"a": made}}
    return made


DOUBLING = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {
        f"d{place}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{place + 1}"} for side in "xy"}} for place in range(40)
    },
}
WIDE = {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(5000)}}
AGAIN = {"$defs": {"w": WIDE}, "allOf": [{"$ref": "#/$defs/w"}] * 5000}
EITHER = {**WIDE, "anyOf": [{"required": ["p1"]}] * 20_000}


@pytest.mark.parametrize("schema", [deep(300), DOUBLING, AGAIN, EITHER])
def test_a_schema_without_end_is_cut_and_that_is_said(schema: dict[str, object]) -> None:
    allowance = Allowance()
    made, left_out = parameters(schema, allowance)

    assert TOO_LARGE in left_out
    assert len(json.dumps(made)) < 60 * MAX_ENTRIES


@pytest.mark.parametrize("schema", [deep(300), {"allOf": [WIDE, *[{"allOf": [WIDE, {}]}] * 5000]}])
def test_an_answers_schema_without_end_is_cut_and_that_is_said(schema: dict[str, object]) -> None:
    _, left_out = answer_schema(schema, Allowance())

    assert TOO_LARGE in left_out


def test_all_schemas_of_a_request_share_one_allowance() -> None:
    allowance = Allowance(100)
    first = parameters(deep(5), allowance)
    rest = [parameters(WIDE, allowance) for _ in range(2)]

    assert first[1] == frozenset()
    assert [left_out for _, left_out in rest] == [frozenset((TOO_LARGE,))] * 2


def test_a_value_nested_without_end_is_told_as_dots() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]

    assert member({"type": "array", "items": {}, "default": value})[0]["description"] == "(default: …)"


KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "required", "format", "default", "nullable",
     "prefixItems", "additionalProperties", "description", "$defs", "definitions", "minimum", "not"]
)  # fmt: skip
SCHEMAS = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "string", "object", "null", "#", "#/$defs/a", "#/properties/a", "date-time"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.sampled_from("ab"), inner, max_size=4),
    max_leaves=25,
)


@given(SCHEMAS)
def test_no_schema_breaks_the_reading(schema: object) -> None:
    made, _ = taken(schema)
    answer, _ = answer_schema(schema, Allowance())

    json.dumps([made, answer])
    assert made is None or made.get("properties")  # type: ignore[attr-defined]
