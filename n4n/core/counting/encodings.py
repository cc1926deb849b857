"""Which vocabulary counts which model's tokens, by the beginning of its name at the provider.

Only OpenAI publishes vocabularies of its models, so the counts of other models are of the same kind everywhere, but not the provider's own:
what their ratio to the provider's does over time is what tells something. Names with vendors, folders and regions before them are known.
"""

from __future__ import annotations

import re
from functools import lru_cache

O200K, CL100K = "o200k", "cl100k"
DEFAULT = O200K
_BEGINNINGS = (  # the longest that fits; https://github.com/openai/tiktoken/blob/main/tiktoken/model.py
    ("gpt-4o", O200K), ("gpt-4.1", O200K), ("gpt-4.5", O200K), ("gpt-5", O200K), ("gpt-oss", O200K), ("chatgpt", O200K),
    ("o1", O200K), ("o3", O200K), ("o4", O200K), ("gpt-4", CL100K), ("gpt-3.5", CL100K), ("gpt-35", CL100K),
    ("text-embedding", CL100K), ("davinci-002", CL100K), ("babbage-002", CL100K),
)  # fmt: skip
_BEFORE = re.compile(r"^(?:.*/)?(?:(?:us|eu|apac|global)\.)?(?:openai\.)?")


@lru_cache(1024)
def encoding_of(model: str) -> str:
    """The name of its vocabulary."""
    return max(_fitting(model), default=(0, DEFAULT))[1]


@lru_cache(1024)
def is_own(model: str) -> bool:
    """Whether that is the model's own vocabulary, so that its counts are those of its provider."""
    return bool(_fitting(model))


def _fitting(model: str) -> list[tuple[int, str]]:
    bare = _BEFORE.sub("", model.lower())
    return [(len(beginning), encoding) for beginning, encoding in _BEGINNINGS if bare.startswith(beginning)]
