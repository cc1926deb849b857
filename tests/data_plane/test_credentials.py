"""Credentials of accounts: found in the environment or in files, never shown, and an account without one is told by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.credentials import Credentials, Secret, accounts_of
from n4n.core.catalog import Account, compile_snapshot
from n4n.core.document import parse_document
from tests.support.catalogs import FULL

KEY = "sk-canary-1234"


def resolved(credential: str | None, environ: dict[str, str] | None = None) -> Credentials:
    credentials = Credentials(environ or {})
    credentials.use(credentials.resolve([Account("main", "acme", credential)]))
    return credentials


def test_a_variable_is_read_and_stripped() -> None:
    credentials = resolved("env:A_KEY", {"A_KEY": f" {KEY}\n"})

    assert credentials.reveal("main") == KEY
    assert credentials.usable == frozenset({"main"})


def test_a_file_holds_the_bare_key(tmp_path: Path) -> None:
    (tmp_path / "a key").write_text(f"{KEY}\r\n")

    assert resolved(f"file:{tmp_path}/a key").reveal("main") == KEY


def test_an_account_that_names_no_credential_needs_none() -> None:
    credentials = resolved(None)

    assert "main" in credentials.usable
    assert credentials.reveal("main") is None


@pytest.mark.parametrize(("credential", "said"), [
    ("env:A_KEY", "the environment variable A_KEY is not set"),
    ("env:EMPTY", "the environment variable EMPTY is not set"),
    ("env:SPLIT", "its credential (env:SPLIT) holds characters that no header can carry"),
    ("env:NUL", "its credential (env:NUL) holds characters that no header can carry"),
    ("env:FOREIGN", "its credential (env:FOREIGN) holds characters that no header can carry"),
    ("stored", "stored credentials need a newer n4n; use env: or file:"),
    ("file:TMP/none", "the file TMP/none cannot be read: No such file or directory"),
    ("file:TMP", "the file TMP cannot be read: Is a directory"),
    ("file:TMP/empty", "the file TMP/empty must hold the bare key and nothing else"),
    ("file:TMP/huge", "the file TMP/huge must hold the bare key and nothing else"),
    ("file:TMP/two", "its credential (file:TMP/two) holds characters that no header can carry"),
    ("file:TMP/binary", "its credential (file:TMP/binary) holds characters that no header can carry"),
    ("file:a\x00b", "its file has no valid path"),
])  # fmt: skip
def test_what_cannot_be_used_is_one_warning_with_the_accounts_name_and_never_the_value(
    credential: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, content in {
        "empty": b" \n",
        "huge": b"k" * 70_000,
        "two": f"{KEY}\n{KEY}".encode(),
        "binary": b"\xff" + KEY.encode(),
    }.items():
        (tmp_path / name).write_bytes(content)
    environ = {"EMPTY": " ", "SPLIT": f"{KEY}\nx: y", "NUL": f"{KEY}\x00", "FOREIGN": f"{KEY}é"}

    credentials = resolved(credential.replace("TMP", str(tmp_path)), environ)

    assert credentials.usable == frozenset() and credentials.reveal("main") is None
    assert credentials.problems == {"main": said.replace("TMP", str(tmp_path))}
    assert [record.getMessage() for record in caplog.records] == [f"accounts that are not used: main ({credentials.problems['main']})"]
    assert "canary" not in caplog.text


def test_the_same_problem_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    credentials = resolved("env:A_KEY")
    credentials.use(credentials.resolve([Account("main", "acme", "env:A_KEY")]))

    assert len(caplog.records) == 1


def test_a_change_of_a_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "key"
    credentials = resolved(f"file:{file}")
    assert credentials.is_current()

    file.write_text(KEY)
    assert not credentials.is_current()

    credentials.use(credentials.resolve([Account("main", "acme", f"file:{file}")]))
    assert credentials.is_current() and credentials.reveal("main") == KEY


def test_a_secret_hides_itself_everywhere_but_in_reveal() -> None:
    secret = Secret(KEY)

    assert secret.reveal() == KEY
    assert "canary" not in f"{secret} {secret!r} {[secret]} {secret:}" + repr(resolved("env:A", {"A": KEY}))


def test_the_accounts_of_a_catalog_are_those_its_endpoints_use() -> None:
    snapshot = compile_snapshot(parse_document(FULL)[0], version=1, checksum="c")

    assert [account.name for account in accounts_of(snapshot)] == ["acme-main", "acme-second", "house"]
