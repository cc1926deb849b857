"""Faults of ours, put into a process that has this folder in its PYTHONPATH: what is raised quotes what was being worked on."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn


def _embeddings(module: ModuleType) -> None:
    def read(_: object, body: bytes, __: object) -> NoReturn:
        try:
            {}[body.decode()]
        except KeyError as error:
            raise RuntimeError(f"cannot cope with {body.decode()}") from error

    module.Embeddings.read = read  # type: ignore[attr-defined]


def _access(module: ModuleType) -> None:
    async def RotateKey(_: object, request: object, context: object) -> NoReturn:
        async with module.answering(context):  # type: ignore[attr-defined]
            raise LookupError(f"cannot cope with {request} for {context}")

    module.Access.RotateKey = RotateKey  # type: ignore[attr-defined]


FAULTS = {"n4n.core.skins.embeddings": _embeddings, "control_plane.service.access": _access}


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        FAULTS[module.__name__](module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in FAULTS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
