"""Counts tokens exactly as OpenAI's models do: byte pair encoding by tiktoken, over vocabularies that come with n4n.

Loading one takes half a second and 60 MB or so, so that only the counting process of a node does it, and only when it is first asked.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping

from tiktoken import Encoding

from n4n import vocabulary

LONGEST = 20_000  # characters that are encoded at once: tiktoken breaks down on some texts of hundreds of thousands
# How a text is cut into words before it is encoded; tiktoken_ext/openai_public.py.
_PATTERNS: Mapping[str, str] = {
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k": "|".join((
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )),
}  # fmt: skip


class Tokenizer:
    """Keeps the vocabularies that were asked for. WrongVocabulary where one is not the published one."""

    def __init__(self) -> None:
        self._loaded: dict[str, Encoding] = {}

    def __repr__(self) -> str:
        return f"<Tokenizer: {', '.join(self._loaded) or 'nothing'} loaded>"

    def count(self, name: str, text: str) -> int:
        """Tokens of a text; what looks like a control token is text. `name`: of the vocabulary."""
        encoding = self._loaded.get(name)
        if encoding is None:
            encoding = self._loaded[name] = _encoding(name)
        return sum(len(encoding.encode_ordinary(piece)) for piece in _pieces(text))


def _encoding(name: str) -> Encoding:
    lines = (line.split() for line in vocabulary.published(name).splitlines() if line)
    ranks = {b64decode(token): int(rank) for token, rank in lines}
    return Encoding(f"{name}_base", pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})


def _pieces(text: str) -> Iterator[str]:
    """The text whole, or, where it is very long, cut before blanks: words keep the one in front of them, so that no token is cut."""
    begin = 0
    while len(text) - begin > LONGEST:
        end = text.rfind(" ", begin + 1, begin + LONGEST)
        if end <= begin or text[end - 1].isspace():
            end = begin + LONGEST
        yield text[begin:end]
        begin = end
    yield text[begin:] if begin else text
