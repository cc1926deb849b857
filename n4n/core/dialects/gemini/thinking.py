"""How much a Gemini model shall think: a client's wish for effort as `thinkingConfig`.

2.5 counts a budget of tokens, 3 and later know levels (https://ai.google.dev/gemini-api/docs/thinking). The budgets are those
of Google's own front for OpenAI's format (https://ai.google.dev/gemini-api/docs/openai).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from n4n.core import json_bytes

Version = tuple[int, int]
_VERSION = re.compile(r"gemini-(\d{1,3})(?:\.(\d{1,3}))?(?!\d)")
_LEVELS = (3, 0)  # the first version with levels, and with signatures that have to come back
_OLDEST, _NEWEST = (2, 5), (99, 0)
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
_LEAST_PRO = 128  # 2.5 Pro cannot be told not to think
_FIELDS = ("reasoning_effort", "reasoning", "thinking", "include_reasoning")


def version_of(model: str) -> Version:
    """The version in a model's name, gemini-3.1-pro: (3, 1). gemini-flash-latest is a new one; a tuned model's name tells nothing."""
    found = _VERSION.search(model)
    if found:
        return int(found[1]), int(found[2] or 0)
    return _NEWEST if "gemini-" in model else _OLDEST


def thinking_config(fields: Mapping[str, bytes], model: str, warnings: list[str]) -> dict[str, object] | None:
    """`thinkingConfig`, whether the client spoke as OpenAI, OpenRouter or Anthropic want it. None: it asked for nothing."""
    wish = _Wish()
    for name in _FIELDS:
        if name in fields:
            wish.read(name, json_bytes.parse(fields[name]))
    if wish.effort is None and wish.budget is None and wish.shown is None:
        return None
    config: dict[str, object] = {"includeThoughts": wish.effort != "none" if wish.shown is None else wish.shown}
    if wish.budget is not None:
        config["thinkingBudget"] = wish.budget
    elif wish.effort is not None and wish.effort not in _BUDGETS:
        warnings.append(f"reasoning effort {wish.effort[:40]!r} was left out: Gemini knows {', '.join(_BUDGETS)}")
    elif wish.effort is not None:
        config |= _amount(wish.effort, model, warnings)
    return config


class _Wish:
    """What a client said of reasoning; of several spellings the first one counts."""

    __slots__ = ("budget", "effort", "shown")

    def __init__(self) -> None:
        self.effort: str | None = None
        self.budget: int | None = None
        self.shown: bool | None = None

    def read(self, name: str, said: object) -> None:
        if name == "include_reasoning":
            self._show(said)
        elif name == "reasoning_effort":
            self._ask(said)
        elif isinstance(said, dict) and name == "reasoning":
            self._ask(said.get("effort"))
            self._spend(said.get("max_tokens"))
            self._ask("none" if said.get("enabled") is False else None)
            self._show(said.get("enabled"))
            if said.get("exclude") is True:
                self.shown = False
        elif isinstance(said, dict):
            self._ask("none" if said.get("type") == "disabled" else None)
            self._spend(said.get("budget_tokens"))

    def _ask(self, effort: object) -> None:
        if isinstance(effort, str) and self.effort is None and self.budget is None:
            self.effort = effort

    def _spend(self, budget: object) -> None:
        if type(budget) is int and self.effort is None and self.budget is None:
            self.budget = max(0, budget)

    def _show(self, shown: object) -> None:
        if isinstance(shown, bool) and self.shown is None:
            self.shown = shown


def _amount(effort: str, model: str, warnings: list[str]) -> dict[str, object]:
    version, pro = version_of(model), "-pro" in model
    if version < _LEVELS:
        budget = _BUDGETS[effort]
        if pro and budget == 0:
            warnings.append(f"reasoning was lowered, not turned off: {model} always thinks")
            budget = _LEAST_PRO
        return {"thinkingBudget": budget}
    level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
    if level == "minimal" and (pro or version >= (3, 7)):  # only the early flash models have it
        level = "low"
    if level != effort:
        warnings.append(f"reasoning effort {effort} became {level}, the nearest that {model} has")
    return {"thinkingLevel": level.upper()}
