"""How a node is, as it tells a control plane every few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a node is. Counters are since the start of the process. `quotas`: provider, account, limit type, share used.

    `accounts_out`: provider, account, why. `candidates`: usable endpoints of models that have fewer than the catalog gives them.
    """

    store_up: bool = True
    usage_waiting_bytes: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    ended: int = 0
    failed: int = 0
    fell_back: int = 0
    changes: int = 0
    inversions: int = 0
    quotas: Sequence[tuple[str, str, str, float]] = ()
    accounts_out: Sequence[tuple[str, str, str]] = ()
    candidates: Mapping[str, int] = field(default_factory=dict)
