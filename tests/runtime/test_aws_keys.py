"""AWS keys that change by themselves: looked for in a thread, renewed before they end, and never waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from n4n.core.dialects.bedrock.identity import Ambient, Profile
from n4n.runtime import aws_keys
from n4n.runtime.aws_keys import PAUSE_S, PERIOD_S, AwsKeys, Keyless, KeySource, Renewing, credential_of
from n4n.runtime.aws_session import Source
from n4n.runtime.signing import NOT_INSTALLED
from tests.support.container import Container, container

KEY = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG"
TEAM = Profile("team")


class Scripted:
    """A source whose answers a test gives."""

    def __init__(self) -> None:
        self.now: str | Keyless = KEY
        self.looked = 0

    def key(self) -> str:
        """The answer."""
        self.looked += 1
        if isinstance(self.now, Keyless):
            raise self.now
        return self.now


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def keys(scripted: Scripted) -> Iterator[AwsKeys]:
    made = AwsKeys(lambda: None, find=lambda identity: scripted)
    yield made
    made.close()


def seen(find: Callable[[Renewing], KeySource]) -> tuple[AwsKeys, list[int], threading.Event]:
    news: list[int] = []
    event = threading.Event()
    keys = AwsKeys(lambda: (news.append(1), event.set())[0], find=find)
    return keys, news, event


# ── kept fresh


def test_a_key_is_there_once_it_was_looked_for(keys: AwsKeys, scripted: Scripted) -> None:
    assert (keys.key(TEAM), keys.problem(TEAM)) == (None, None)

    keys.wait([TEAM], 5)

    assert (keys.key(TEAM), keys.problem(TEAM)) == (KEY, None)
    assert repr(keys) == "<AwsKeys of 1 identities>"
    keys.keep([TEAM])
    keys.wait([], 5)
    assert keys.key(TEAM) == KEY


def test_a_key_that_is_not_found_is_a_problem_until_it_is(scripted: Scripted) -> None:
    keys, news, _ = seen(lambda identity: scripted)
    scripted.now = Keyless("none here")
    keys._wanted = (TEAM,)

    assert [keys.round() for _ in range(6)] == [PAUSE_S, PAUSE_S * 2, PAUSE_S * 4, PAUSE_S * 8, PERIOD_S, PERIOD_S]
    assert (keys.key(TEAM), keys.problem(TEAM)) == (None, "none here")
    scripted.now = KEY
    assert keys.round() == PERIOD_S
    assert (keys.key(TEAM), keys.problem(TEAM)) == (KEY, None)
    scripted.now = KEY + ":new"
    assert (keys.round(), keys.round()) == (PERIOD_S, PERIOD_S)
    assert keys.key(TEAM) == KEY + ":new"
    assert len(news) == 3  # the problem, the key, the other key; nothing else is news


def test_what_is_no_longer_used_is_forgotten(keys: AwsKeys, scripted: Scripted) -> None:
    keys.wait([TEAM, Ambient()], 5)
    keys.keep([Ambient()])

    assert (keys.key(TEAM), keys.key(Ambient())) == (None, KEY)
    keys.keep([])
    assert keys.round() is None


def test_an_identity_that_left_while_it_was_looked_for_is_no_news() -> None:
    class Slow(Scripted):
        def key(self) -> str:
            keys.keep([])
            return KEY

    keys, news, _ = seen(lambda identity: Slow())
    keys._closed = True  # no thread
    keys._wanted = (TEAM,)
    keys._look(TEAM)

    assert keys.key(TEAM) is None and not news


def test_after_the_end_nobody_looks(scripted: Scripted) -> None:
    keys, _, _ = seen(lambda identity: scripted)
    keys.close()
    keys.keep([TEAM])

    keys.wait([TEAM], 0.01)
    keys.round()
    assert scripted.looked == 0
    assert repr(keys) == "<AwsKeys of 1 identities, closed>"


def test_a_change_is_told_from_the_thread(scripted: Scripted) -> None:
    keys, _, event = seen(lambda identity: scripted)
    keys.keep([TEAM])

    assert event.wait(5)
    keys.close()
    assert keys.key(TEAM) == KEY


# ── what a credential is


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ABSKkey", "ABSKkey"),
        (KEY, KEY),
        ('{\n "AccessKeyId": "A",\n "SecretAccessKey": "S"\n}', '{ "AccessKeyId": "A", "SecretAccessKey": "S" }'),
        ("profile:team", TEAM),
        (None, Ambient()),
    ],
)
def test_a_credential_is_a_key_or_an_identity(value: str | None, expected: object) -> None:
    assert credential_of(value) == expected


def test_a_credential_that_cannot_be_used_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Keyless, match="AccessKeyId and SecretAccessKey"):
        credential_of('{"x": 1}')
    monkeypatch.setattr(aws_keys, "can_sign", lambda: False)
    with pytest.raises(Keyless, match=r"pip install 'n4n\[aws\]'"):
        credential_of(KEY)
    assert credential_of("ABSKkey") == "ABSKkey"  # a Bedrock key needs no signature
    assert "botocore" in NOT_INSTALLED


# ── botocore's own search


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that AWS knows nothing of; the folder of its shared files."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def test_a_profile_is_read_of_its_file_whenever_that_changes(nobody: Path) -> None:
    file = nobody / "credentials"
    source = Source(TEAM)
    with pytest.raises(Keyless, match="ProfileNotFound"):
        source.key()

    for key_id in ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7ANOTHER"):
        file.write_text(f"[team]\naws_access_key_id = {key_id}\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG\n")
        assert source.key() == f"{key_id}:wJalrXUtnFEMI/K7MDENG"
    (nobody / "config").write_text("[profile bare]\nregion = eu-west-1\n")
    with pytest.raises(Keyless, match="the AWS profile bare has no credentials"):
        Source(Profile("bare")).key()


def test_the_environment_is_who_we_are(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Keyless, match="it names no credential, and AWS finds none here"):
        Source(Ambient()).key()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "tok")
    assert Source(Ambient()).key() == "ASIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG:tok"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "odd")
    with pytest.raises(Keyless, match="no known form"):
        Source(Ambient()).key()


@pytest.fixture
def role(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)  # between its three tries
    with container() as told:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", told.url)
        yield told


def test_a_roles_key_is_kept_while_it_lasts(role: Container) -> None:
    source = Source(Ambient())

    assert source.key() == source.key() == "ASIAEXAMPLE000000001:secretsecretsecret:tok"
    assert role.asked == 1


def test_a_roles_key_is_renewed_before_it_ends_and_used_to_its_end(role: Container, caplog: pytest.LogCaptureFixture) -> None:
    role.lasts_s = 300  # less than a quarter of an hour: due at once
    source = Source(Ambient())
    first, renewed = source.key(), source.key()
    assert renewed != first

    role.broken = True
    assert source.key() == renewed  # it is still good for some minutes
    role.broken, role.lasts_s = False, 20
    last = source.key()
    role.broken = True
    with pytest.raises(Keyless, match="AWS gives no key"):
        source.key()
    role.broken, role.lasts_s = False, 3600
    assert source.key() != last
    assert "secretsecret" not in caplog.text


def test_a_role_that_cannot_be_asked_at_all_is_a_problem(role: Container) -> None:
    role.broken = True

    with pytest.raises(Keyless, match="AWS gives no key"):
        Source(Ambient()).key()


def test_keys_are_found_in_the_thread(nobody: Path) -> None:
    (nobody / "credentials").write_text("[team]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG\n")
    keys = AwsKeys(lambda: None)
    try:
        keys.wait([TEAM, Profile("none")], 20)
        assert keys.key(TEAM) == "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG"
        assert keys.problem(Profile("none")) == "AWS gives no key (ProfileNotFound)"
    finally:
        keys.close()
