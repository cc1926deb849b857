"""Tiers of service: how a provider put an answer in line, which decides its price; one word for each, '' for the usual one.

Answers name them: OpenAI, Groq and Responses in `service_tier`, Anthropic in `usage.service_tier` and `usage.speed`, Bedrock in
`serviceTier.type`, Vertex in `usageMetadata.trafficType`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_USUAL = frozenset(("auto", "default", "standard", "standard_only", "on_demand", "unspecified", "traffic_type_unspecified"))
_ALSO_CALLED = {
    "on_demand_priority": "priority", "on_demand_flex": "flex", "on_demand_offpeak": "offpeak", "provisioned_throughput": "provisioned",
}  # fmt: skip
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")  # of a tier in the catalog
UNNAMEABLE = "other"


def tier_of(said: object) -> str:
    """A tier as an answer says it; what is no word is none."""
    return _named(said) if isinstance(said, str) and said else ""


@lru_cache(256)
def _named(word: str) -> str:
    low = word.strip().lower()
    if not low or low in _USUAL:
        return ""
    low = _ALSO_CALLED.get(low, low)
    return low if NAME.match(low) else UNNAMEABLE
