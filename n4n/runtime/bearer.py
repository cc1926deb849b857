"""Tokens between the planes. A setting may name several, comma separated, so that one can be replaced without a pause: all are
accepted, the first is sent."""

from __future__ import annotations


def accepted(told: str) -> tuple[bytes, ...]:
    """What a control plane takes; none where nothing is told."""
    return tuple(word.strip().encode() for word in told.split(",") if word.strip())


def sent(told: str) -> str:
    """What a node or a command shows; empty where nothing is told."""
    return accepted(told)[0].decode() if accepted(told) else ""
