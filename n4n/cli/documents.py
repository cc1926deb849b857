"""Catalog files: reads YAML and JSON strictly (a key twice is an error, with its line), writes what can be applied again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Hashable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import cast

import yaml

from n4n.cli.output import Refused, number
from n4n.core.document import KINDS, parse_document

LARGEST_BYTES = 64 << 20


class _Reader(yaml.SafeLoader):
    """Safe YAML where only true and false are truth values (`no` is a country), dates stay text, and a key stands once."""


_Reader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Reader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF"))


def _mapping(reader: _Reader, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
    """A map whose keys are the text that stands there (a model may be called 4.10)."""
    first_line: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
        if key.value in first_line and key.tag != "tag:yaml.org,2002:merge":
            raise yaml.constructor.ConstructorError(
                None, None, f"{key.value!r} stands twice, first on line {first_line[key.value]}: remove one", key.start_mark
            )
        first_line[key.value] = line
    reader.flatten_mapping(node)
    return {key.value: reader.construct_object(value, deep=True) for key, value in node.value}


_Reader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_document(path: str, flag: str = "-f") -> object:
    """The value in a YAML or JSON file (`-`: standard input); Refused in one line naming the file, the line and the fault."""
    text = _read_text(path, flag)
    shown = "standard input" if path == "-" else path
    if path.endswith(".json") or text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            if path.endswith(".json"):
                raise Refused(f"{shown}, line {error.lineno}, column {error.colno}: {error.msg}") from error
        except ValueError as error:
            raise Refused(f"{shown}: {error}") from error
        except RecursionError as error:
            raise Refused(f"{shown}: nests too deep to be a catalog") from error
    return _read_yaml(text, shown)


def _read_text(path: str, flag: str) -> str:
    try:
        content = sys.stdin.buffer.read(LARGEST_BYTES + 1) if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"{flag} {path}: {(error.strerror or str(error)).lower()}; give the path of a catalog file") from error
    if len(content) > LARGEST_BYTES:
        raise Refused(f"{flag} {path}: is larger than {LARGEST_BYTES >> 20} MiB, which is no catalog")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{flag} {path}: is not UTF-8 text (byte {error.start})") from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object: remove one")
    return found


def _read_yaml(text: str, shown: str) -> object:
    try:
        return yaml.load(text, Loader=_Reader)  # noqa: S506  # derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Refused(f"{shown}{where}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"{shown}: {' '.join(str(error).split())[:200] or 'is nested too deeply'}") from error


def to_json(raw: object) -> str:
    """The document as it travels; Refused with the field paths when it holds what JSON cannot say."""
    try:
        return json.dumps(raw, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problems = [str(problem) for problem in parse_document(raw)[1]] if not isinstance(error, RecursionError) else []
        raise Refused(*(problems or ["the catalog holds what JSON cannot say: write text, numbers, lists and maps"])) from error


def readable(document: Mapping[str, object]) -> dict[str, object]:
    """The normal form with money as numbers and the sections in their usual order; equal to it when applied again."""
    shown: dict[str, object] = {kind: document[kind] for kind in KINDS if document.get(kind)}
    endpoints = cast(Mapping[str, Mapping[str, object]], shown.get("endpoints", {}))
    if endpoints:
        shown["endpoints"] = {name: {**table, **_price_numbers(table)} for name, table in endpoints.items()}
    return shown


def _price_numbers(table: Mapping[str, object]) -> dict[str, object]:
    if "price" not in table:
        return {}
    price = cast(Mapping[str, object], table["price"])
    told = _amounts(price)
    if "tiers" in price:
        told["tiers"] = [_amounts(tier) for tier in cast(list[Mapping[str, object]], price["tiers"])]
    return {"price": told}


def _amounts(table: Mapping[str, object]) -> dict[str, object]:
    return {field: number(value) if isinstance(value, str) else value for field, value in table.items()}


class _Writer(yaml.SafeDumper):
    """One field a line, numbers without an exponent, no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _plain_float(writer: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    shown = f"{Decimal(repr(value)):f}"
    return writer.represent_scalar("tag:yaml.org,2002:float", shown if "." in shown else f"{shown}.0")


_Writer.add_representer(float, _plain_float)


def to_yaml(document: Mapping[str, object]) -> str:
    """The document as YAML, names and fields in the order they have."""
    shown = readable(document)
    if not shown:
        return "{}\n"
    return yaml.dump(shown, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=140, default_flow_style=False)
