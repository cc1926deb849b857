"""Async tests on the loop that production has, uvloop, and on asyncio's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine

import pytest
import uvloop

Test = Callable[..., Coroutine[None, None, None]]


def on_uvloop(test: Test) -> Callable[..., None]:
    """The test runs under uvloop."""

    def wrapper(**fixtures: object) -> None:
        uvloop.run(test(**fixtures))

    return _named(wrapper, test)


def on_both_loops(test: Test) -> Callable[..., None]:
    """The test runs under asyncio, and again under uvloop."""

    def wrapper(loop_run: Callable[[Coroutine[None, None, None]], None], **fixtures: object) -> None:
        loop_run(test(**fixtures))

    named = _named(wrapper, test, inspect.Parameter("loop_run", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    return pytest.mark.parametrize("loop_run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])(named)


def _named(wrapper: Callable[..., None], test: Test, *more: inspect.Parameter) -> Callable[..., None]:
    """With the test's name and fixtures."""
    signature = inspect.signature(test)
    wrapper.__name__, wrapper.__qualname__, wrapper.__module__, wrapper.__doc__ = (
        test.__name__,
        test.__qualname__,
        test.__module__,
        test.__doc__,
    )
    wrapper.__signature__ = signature.replace(parameters=[*more, *signature.parameters.values()])  # type: ignore[attr-defined]
    return wrapper
