"""What the models on Bedrock take beyond the common API: Converse passes much on unread, and each model refuses what it does not know.

Ids look like us.anthropic.claude-sonnet-4-6 or amazon.nova-2-lite-v1:0, with or without the place in front; the ARN of an
inference profile says nothing, then the catalog's own name of the model is looked at. Sources: Supported models and features
(https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html) and what other
gateways found in live calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from n4n.core.catalog import Endpoint

Version = tuple[int, int]
NEWEST: Version = (99, 0)
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d{1,2})(?:\.(\d{1,2}))?")
_VENDORS = (
    ("claude", "anthropic"), ("nova", "amazon"), ("gpt-", "openai"), ("grok", "xai"), ("deepseek", "deepseek"), ("kimi", "moonshot"),
    ("llama", "meta"), ("mistral", "mistral"), ("magistral", "mistral"), ("ministral", "mistral"), ("qwen", "qwen"), ("glm", "zai"),
    ("minimax", "minimax"), ("nemotron", "nvidia"), ("gemma", "google"), ("palmyra", "writer"), ("command", "cohere"), ("jamba", "ai21"),
)  # fmt: skip


class Reasoning(Enum):
    """How a model is told how much to reason."""

    NONE = "none"  # it does not, or cannot be told
    ADAPTIVE = "adaptive"  # Claude 4.6 and later: thinking {type: adaptive} with an effort
    BUDGET = "budget"  # Claude 3.7 to 4.5: thinking {type: enabled} with a number of tokens
    NOVA = "nova"  # Nova 2: reasoningConfig
    NESTED = "nested"  # OpenAI's own: reasoning {effort}
    FLAT = "flat"  # open weights: reasoning_effort


@dataclass(frozen=True, slots=True)
class Traits:
    """One model's. A vendor nobody knows is taken to be able to do what Converse has words for."""

    vendor: str = ""
    reasoning: Reasoning = Reasoning.FLAT
    always_reasons: bool = False
    takes_signed: bool = True  # reasoning of earlier turns, signed by Claude
    caches: bool = True  # takes cachePoint
    caches_tools: bool = True
    caches_an_hour: bool = True
    samples: bool = True  # takes temperature and top_p
    samples_one: bool = False  # but not both
    stops: bool = True
    strict_tools: bool = False
    one_call_at_a_time: bool = False  # can be told so
    images_in_results: bool = True
    least_max_tokens: int = 1
    most_effort_unbounded: bool = False  # its highest effort refuses a limit and sampling beside it
    top_k: tuple[str, ...] = ()  # the path of top_k among the model's own fields; (): it has none


def traits_of(endpoint: Endpoint) -> Traits:
    """The traits of an endpoint's model."""
    return _traits(endpoint.upstream_model.lower(), endpoint.model.lower())


def traits_by_name(model: str) -> Traits:
    """Those that a model's own name tells."""
    return _traits(model.lower(), "")


@lru_cache(1024)
def _traits(upstream: str, model: str) -> Traits:
    for name in (upstream, model):
        for word, vendor in _VENDORS:
            if word in name:
                return _of_vendor(vendor, name)
    return Traits()


def _of_vendor(vendor: str, name: str) -> Traits:
    match vendor:
        case "anthropic":
            return _claude(name, _version(_CLAUDE, name))
        case "amazon":
            second = "nova-2" in name
            reasoning = Reasoning.NOVA if second else Reasoning.NONE
            return Traits(
                vendor, reasoning, takes_signed=False, caches_tools=False, caches_an_hour=False,
                most_effort_unbounded=second, top_k=("inferenceConfig", "topK"),
            )  # fmt: skip
        case "openai" if "gpt-oss" not in name:
            stops = _version(_GPT, name) < (5, 6)
            return _other(vendor, Reasoning.NESTED, samples=False, stops=stops, least_max_tokens=16)
        case "xai":
            return _other(vendor, Reasoning.NONE, stops=False, least_max_tokens=16)
        case "openai":
            return _other(vendor, Reasoning.FLAT)
        case "moonshot":
            return _other(vendor, Reasoning.FLAT, least_max_tokens=16 if "k3" in name else 1)
        case "deepseek" if "r1" not in name:
            return _other(vendor, Reasoning.FLAT)
    return _other(vendor, Reasoning.NONE)


def _claude(name: str, version: Version) -> Traits:
    adaptive = version >= (4, 6)
    reasoning = Reasoning.ADAPTIVE if adaptive else Reasoning.BUDGET if version >= (3, 7) else Reasoning.NONE
    samples = version < (4, 7)
    return Traits(
        "anthropic",
        reasoning,
        always_reasons="fable" in name or "mythos" in name,
        caches=version >= (3, 5),
        caches_an_hour=version >= (4, 5),
        samples=samples,
        samples_one=version >= (4, 0),
        strict_tools=(4, 5) <= version < (4, 7),
        one_call_at_a_time=version >= (4, 5),
        top_k=("top_k",) if samples else (),
    )


def _other(vendor: str, reasoning: Reasoning, *, samples: bool = True, stops: bool = True, least_max_tokens: int = 1) -> Traits:
    """Any other: none takes a cachePoint, none knows Claude's signatures."""
    return Traits(
        vendor, reasoning, takes_signed=False, caches=False, samples=samples, stops=stops, images_in_results=False,
        least_max_tokens=least_max_tokens,
    )  # fmt: skip


def _version(pattern: re.Pattern[str], name: str) -> Version:
    found = pattern.search(name)
    return (int(found[1]), int(found[2] or 0)) if found else NEWEST
