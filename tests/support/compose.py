"""Reads docker-compose.yml, the Dockerfile and the balancer's configuration, so that tests run what they say without a Docker engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)(?::([-?])([^}]*))?\}")
IMAGE = "${N4N_IMAGE:-n4n:local}"


class Missing(Exception):
    """A variable that must be set is not; the message is the compose file's."""


def text() -> str:
    """The compose file."""
    return (ROOT / "docker-compose.yml").read_text()


def read(variables: Mapping[str, str]) -> dict[str, object]:
    """The compose file with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` put in, anchors resolved."""
    parsed = _filled(yaml.safe_load(text()), variables)
    assert isinstance(parsed, dict)
    return parsed


def _filled(value: object, variables: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {name: _filled(one, variables) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, variables) for one in value]
    return VARIABLE.sub(lambda match: _value(match, variables), value) if isinstance(value, str) else value


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name, kind, rest = match[1], match[2], match[3]
    if variables.get(name):
        return variables[name]
    if kind == "-":
        return str(rest)
    raise Missing(f"{name}: {rest or ''}")


def image_environ() -> dict[str, str]:
    """What the Dockerfile's last stage sets."""
    told: dict[str, str] = {}
    for words in instructions("ENV"):
        told |= dict(word.split("=", 1) for word in shlex.split(words))
    return told


def instructions(name: str) -> list[str]:
    """The arguments of every such instruction of the Dockerfile's last stage."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").split("\nFROM ")[-1].splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the balancer's configuration says: words of its lines by their first word, and its servers as (host, port)."""

    lines: tuple[tuple[str, ...], ...]

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Where it sends requests."""
        places = [line[2].rsplit(":", 1) for line in self.lines if line[0] == "server"]
        return [(host, int(port)) for host, port in places]

    def said(self, *words: str) -> bool:
        """Whether a line begins so."""
        return any(line[: len(words)] == words for line in self.lines)


def balancer_rules() -> Rules:
    """deploy/haproxy/haproxy.cfg"""
    lines = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text().splitlines()
    return Rules(tuple(tuple(line.split()) for line in lines if line.strip() and not line.strip().startswith("#")))
