"""Credentials of accounts: found in the environment or in files, never shown, and an account without one is told by its name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.core.catalog import Account, Provider, compile_snapshot
from n4n.core.document import parse_document
from n4n.runtime.credentials import Credentials, Secret, accounts_of
from tests.support.catalogs import FULL
from tests.support.google import TokenService, token_service

KEY = "sk-canary-1234"
ACME = Provider("acme", "openai", "https://api.acme.example/v1")
VERTEX = Provider("vertex", "vertex", "https://aiplatform.googleapis.com/v1/projects/p/locations/global")


def main(credential: str | None, provider: Provider = ACME) -> list[tuple[Account, Provider]]:
    return [(Account("main", provider.name, credential), provider)]


def resolved(credential: str | None, environ: dict[str, str] | None = None) -> Credentials:
    credentials = Credentials(environ or {})
    credentials.use(credentials.resolve(main(credential)))
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
    credentials.use(credentials.resolve(main("env:A_KEY")))

    assert len(caplog.records) == 1


def test_a_change_of_a_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "key"
    credentials = resolved(f"file:{file}")
    assert credentials.is_current()

    file.write_text(KEY)
    assert not credentials.is_current()

    credentials.use(credentials.resolve(main(f"file:{file}")))
    assert credentials.is_current() and credentials.reveal("main") == KEY


def test_a_secret_hides_itself_everywhere_but_in_reveal() -> None:
    secret = Secret(KEY)

    assert secret.reveal() == KEY
    assert "canary" not in f"{secret} {secret!r} {[secret]} {secret:}" + repr(resolved("env:A", {"A": KEY}))


def test_the_accounts_of_a_catalog_are_those_its_endpoints_use() -> None:
    snapshot = compile_snapshot(parse_document(FULL)[0], version=1, checksum="c")

    assert [account.name for account, _ in accounts_of(snapshot)] == ["acme-main", "acme-second", "house"]
    assert all(account.provider == provider.name for account, provider in accounts_of(snapshot))


# ── access tokens of Google Cloud


@pytest.fixture(name="google")
def _google() -> Iterator[TokenService]:
    with token_service() as service:
        yield service


@pytest.fixture(name="credentials")
def _credentials(google: TokenService, tmp_path: Path) -> Iterator[Credentials]:
    """Those of a machine with a credential file in its environment, and one in a folder."""
    (tmp_path / "key.json").write_text(google.service_account())
    environ = {
        "VERTEX_KEY": google.service_account(project_id="of the variable"),
        "VERTEX_ACCESS_TOKEN": KEY,
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json"),
        "BROKEN": '{"type": "service_account"}',
        "FOREIGN": '{"type": "canary"}',
    }
    credentials = Credentials(environ)
    yield credentials
    credentials.close()


def now_usable(credentials: Credentials) -> bool:
    """Whether the account becomes usable, within a time that is far beyond what it takes."""
    until = time.monotonic() + 30
    while not credentials.usable and not credentials.problems and time.monotonic() < until:
        time.sleep(0.01)
    return credentials.usable == {"main"}


@pytest.mark.parametrize(
    ("credential", "provider"),
    [
        ("env:VERTEX_KEY", VERTEX),
        ("env:VERTEX_KEY", ACME),
        ("file:TMP/key.json", VERTEX),
        ("env:GOOGLE_APPLICATION_CREDENTIALS", VERTEX),
        (None, VERTEX),
        (None, Provider("v", "openai", "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5/endpoints/openapi")),
        (None, Provider("v", "vertex", "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu")),
    ],
)
def test_a_credential_file_of_googles_becomes_a_token(
    credential: str | None, provider: Provider, credentials: Credentials, tmp_path: Path
) -> None:
    found = credential and credential.replace("TMP", str(tmp_path))
    credentials.use(credentials.resolve(main(found, provider)))

    assert now_usable(credentials)
    assert credentials.reveal("main") == "ya29.token-1"
    assert credentials.problems == {} and "canary" not in repr(credentials)


def test_a_bare_token_is_used_as_it_is(credentials: Credentials, google: TokenService) -> None:
    credentials.use(credentials.resolve(main("env:VERTEX_ACCESS_TOKEN", VERTEX)))

    assert credentials.reveal("main") == KEY and google.asked == []


def test_two_accounts_with_one_credential_share_a_token(credentials: Credentials, google: TokenService) -> None:
    both = [(Account(name, "vertex", "env:VERTEX_KEY"), VERTEX) for name in ("one", "two")]
    credentials.use(credentials.resolve(both))

    assert credentials.usable == {"one", "two"} and len(google.asked) == 1


def test_a_token_stays_with_the_next_catalog_and_ends_with_its_account(credentials: Credentials, google: TokenService) -> None:
    for _ in range(2):
        credentials.use(credentials.resolve(main("env:VERTEX_KEY", VERTEX)))
    assert credentials.reveal("main") == "ya29.token-1" and len(google.asked) == 1

    credentials.use(credentials.resolve([]))
    assert credentials.usable == frozenset() and credentials.reveal("main") is None


def test_an_account_without_a_token_is_not_used_and_told_by_name(
    credentials: Credentials, google: TokenService, caplog: pytest.LogCaptureFixture
) -> None:
    google.answers.append((400, {"error": "invalid_grant", "error_description": "canary"}))
    credentials.use(credentials.resolve(main("env:VERTEX_KEY", VERTEX)))

    assert not now_usable(credentials)
    assert credentials.problems == {"main": "Google refuses its credential (invalid_grant)"}
    assert [record.getMessage() for record in caplog.records] == [
        "accounts that are not used: main (Google refuses its credential (invalid_grant))"
    ]
    while not credentials.usable:  # the next try
        time.sleep(0.01)
    assert credentials.reveal("main") == "ya29.token-2" and credentials.problems == {}


@pytest.mark.parametrize(
    ("credential", "said"),
    [
        ("env:BROKEN", "its Google credential is not complete: use the file as Google gave it out"),
        ("env:FOREIGN", "its credential is JSON, but none of Google's kinds"),
        ("env:GOOGLE_APPLICATION_CREDENTIALS", "the file TMP/key.json is no credential file of Google's"),
        (None, "the file TMP/key.json is no credential file of Google's"),
    ],
)
def test_what_is_no_credential_of_googles_is_one_warning(
    credential: str | None, said: str, credentials: Credentials, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key.json").write_text("canary")
    credentials.use(credentials.resolve(main(credential, VERTEX)))

    assert not now_usable(credentials)
    assert credentials.problems["main"].startswith(said.replace("TMP", str(tmp_path)))
    assert len(caplog.records) == 1 and "canary" not in caplog.text


def test_a_change_of_the_machines_file_is_seen(credentials: Credentials, tmp_path: Path, google: TokenService) -> None:
    credentials.use(credentials.resolve(main(None, VERTEX)))
    assert credentials.is_current()

    (tmp_path / "key.json").write_text(google.service_account(project_id="another"))
    assert not credentials.is_current()


def test_a_machine_without_a_file_speaks_for_itself(google: TokenService, tmp_path: Path) -> None:
    credentials = Credentials({"GCE_METADATA_HOST": google.host, "HOME": str(tmp_path)})
    credentials.use(credentials.resolve(main(None, VERTEX)))

    assert now_usable(credentials) and credentials.reveal("main") == "ya29.token-1"
    credentials.close()


# ── access keys of AWS

BEDROCK = Provider("aws", "bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com")
PAIR = "AKIAIOSFODNN7EXAMPLE:canary/K7MDENG/bPxRfiCY"


def at_bedrock(credential: str | None, environ: dict[str, str] | None = None) -> Credentials:
    credentials = Credentials(environ or {})
    credentials.use(credentials.resolve(main(credential, BEDROCK)))
    credentials.close()
    return credentials


@pytest.mark.parametrize(
    "value", ["ABSKcanary==", PAIR, f"{PAIR}:tok", '{"AccessKeyId": "AKIAIOSFODNN7EXAMPLE", "SecretAccessKey": "canary"}']
)
def test_a_key_at_bedrock_is_used_as_it_is(value: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(value.replace(", ", ",\n  "))

    assert at_bedrock("env:A_KEY", {"A_KEY": value}).reveal("main") == value
    got = at_bedrock(f"file:{tmp_path}/key").reveal("main")
    assert got is not None and got.replace(",   ", ", ") == value.replace(",\n  ", ", ")


def test_a_key_at_bedrock_that_is_none_is_told(caplog: pytest.LogCaptureFixture) -> None:
    credentials = at_bedrock("env:A_KEY", {"A_KEY": '{"type": "service_account", "canary": 1}'})

    assert credentials.usable == frozenset()
    assert "its credential is JSON, but not an AWS access key" in credentials.problems["main"]
    assert "canary" not in caplog.text
    assert at_bedrock("env:A_KEY", {"A_KEY": "canary\nx: y"}).problems == {
        "main": "its credential (env:A_KEY) holds characters that no header can carry"
    }


@pytest.fixture
def aws_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "credentials"


@pytest.mark.parametrize(("credential", "profile"), [(None, "default"), ("env:A_KEY", "team")])
def test_an_account_at_bedrock_is_whoever_aws_finds(credential: str | None, profile: str, aws_files: Path) -> None:
    key_id, _, secret = PAIR.partition(":")
    aws_files.write_text(f"[{profile}]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n")
    credentials = Credentials({"A_KEY": f"profile:{profile}"})
    try:
        credentials.use(credentials.resolve(main(credential, BEDROCK)))
        assert now_usable(credentials)
        assert credentials.reveal("main") == PAIR
        assert "canary" not in repr(credentials)
    finally:
        credentials.close()


def test_an_account_at_bedrock_that_aws_finds_nobody_for_is_not_used(aws_files: Path) -> None:
    credentials = Credentials({})
    try:
        credentials.use(credentials.resolve(main(None, BEDROCK)))
        assert not now_usable(credentials)
        assert credentials.usable == frozenset() and credentials.reveal("main") is None
        assert "it names no credential, and AWS finds none here" in credentials.problems["main"]
    finally:
        credentials.close()
