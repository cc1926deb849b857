"""Exact counts: the vocabularies are the published ones, they count as tiktoken does, and no text is too odd."""

from __future__ import annotations

import hashlib
import lzma
from base64 import b64decode
from importlib import resources

import pytest
import tiktoken
import tiktoken_ext.openai_public as published
from hypothesis import given, settings
from hypothesis import strategies as st

from n4n import vocabulary
from n4n.runtime.tokenizer import _PATTERNS, LONGEST, _pieces
from tests.support.counting import tokenizer


@pytest.mark.parametrize("name", vocabulary.SHA256)
def test_a_vocabulary_is_what_tiktoken_itself_expects(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, str] = {}
    monkeypatch.setattr(published, "load_tiktoken_bpe", lambda url, expected_hash: asked.update(url=url, expected=expected_hash))

    made = getattr(published, f"{name}_base")()

    assert asked["expected"] == vocabulary.SHA256[name] == hashlib.sha256(vocabulary.published(name)).hexdigest()
    assert made["pat_str"] == _PATTERNS[name]


def test_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lzma, "decompress", lambda _: b"IQ== 0\n")

    with pytest.raises(vocabulary.WrongVocabulary, match="install n4n again"):
        vocabulary.published("o200k")


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [  # of OpenAI's own examples and cookbook
        ("cl100k", "tiktoken is great!", 6),
        ("cl100k", "antidisestablishmentarianism", 6),
        ("cl100k", "2 + 2 = 4", 7),
        ("cl100k", "お誕生日おめでとう", 9),
        ("o200k", "antidisestablishmentarianism", 6),
        ("o200k", "2 + 2 = 4", 7),
        ("o200k", "お誕生日おめでとう", 8),
        ("o200k", "hello world", 2),
        ("o200k", "", 0),
    ],
)
def test_known_texts_have_their_known_counts(name: str, text: str, ids: int) -> None:
    assert tokenizer().count(name, text) == ids


def test_what_looks_like_a_control_token_is_text() -> None:
    assert tokenizer().count("o200k", "<|endoftext|>") > 1


@given(st.text(max_size=60_000))
@settings(max_examples=20)
def test_a_long_text_is_cut_into_pieces_that_make_it_again(text: str) -> None:
    pieces = list(_pieces(text))

    assert "".join(pieces) == text
    assert all(len(piece) <= LONGEST for piece in pieces)


def test_words_are_never_cut() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 3000
    ranks = {b64decode(a): int(b) for a, b in (line.split() for line in vocabulary.published("o200k").splitlines())}
    whole = tiktoken.Encoding("o200k_base", pat_str=_PATTERNS["o200k"], mergeable_ranks=ranks, special_tokens={})

    assert tokenizer().count("o200k", text) == len(whole.encode_ordinary(text))


@pytest.mark.parametrize(
    "text", ["a" * 200_000, " " * 200_000, "\n" * 200_000, "-" * 200_000, "語" * 50_000, "😀" * 50_000, "\u0301" * 50_000, "\ud800" * 100]
)
def test_no_text_is_too_odd_to_count(text: str) -> None:
    assert tokenizer().count("o200k", text) > 0
    assert tokenizer().count("cl100k", text) > 0


def test_both_files_come_with_the_package() -> None:
    assert {f"{name}_base.tiktoken.xz" for name in vocabulary.SHA256} <= {one.name for one in resources.files(vocabulary).iterdir()}
