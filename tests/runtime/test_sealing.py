"""Sealing: what is unsealed, what is not, and which secret a router seals with."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from n4n.core.errors import StartFailed
from n4n.runtime.sealing import Seal, Unreadable, secret_of
from n4n.runtime.settings import Settings


def test_what_was_sealed_is_unsealed_by_who_has_the_secret_and_knows_what_it_is_about() -> None:
    seal = Seal(b"secret", "a purpose")
    sealed = seal.seal(b"content", b"about")
    assert seal.unseal(sealed, b"about") == Seal(b"secret", "a purpose").unseal(sealed, b"about") == b"content"
    assert b"content" not in sealed and sealed != seal.seal(b"content", b"about")
    for other, about in [(seal, b"else"), (Seal(b"other", "a purpose"), b"about"), (Seal(b"secret", "another"), b"about")]:
        with pytest.raises(Unreadable):
            other.unseal(sealed, about)


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(12), bytes(28), bytes(100)])
def test_what_was_never_sealed_is_not_unsealed(sealed: bytes) -> None:
    with pytest.raises(Unreadable):
        Seal(b"secret", "a purpose").unseal(sealed, b"")


def test_the_seal_key_comes_first_then_the_node_token(tmp_path: Path) -> None:
    assert secret_of(Settings(data_dir=str(tmp_path), seal_key="key", node_token="token")) == b"key"
    assert secret_of(Settings(data_dir=str(tmp_path), node_token="token")) == b"token"
    assert list(tmp_path.iterdir()) == []


def test_without_either_one_is_made_for_this_data_directory_and_stays(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path / "new"))
    made = secret_of(settings)
    assert len(made) == 64 and secret_of(settings) == made
    assert secret_of(Settings(data_dir=str(tmp_path / "other"))) != made
    (path,) = (tmp_path / "new").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_data_directory_that_cannot_hold_it_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartFailed, match="N4N_SEAL_KEY"):
        secret_of(Settings(data_dir=str(tmp_path / "file")))
