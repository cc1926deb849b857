"""Vocabularies of OpenAI's tokenizers, as published: nothing is fetched when n4n runs.

Both were read on 2026-11-30 out of the wheel of litellm 1.110.2, which ships what https://github.com/openai/tiktoken (MIT) downloads: a
line for each token, its bytes in base64 and its rank. They are packed with xz and otherwise unchanged; `SHA256` is what tiktoken itself
expects of the unpacked files (`tiktoken_ext/openai_public.py`), and what is checked whenever one is loaded.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Mapping
from importlib import resources

SHA256: Mapping[str, str] = {
    "o200k": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}


class WrongVocabulary(Exception):
    """A vocabulary is not the one that was published"""


def published(name: str) -> bytes:
    """The file as its publisher has it; WrongVocabulary where it is another one."""
    content = lzma.decompress((resources.files(__name__) / f"{name}_base.tiktoken.xz").read_bytes())
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise WrongVocabulary(f"{name}: the vocabulary is not the published one; install n4n again")
    return content
