"""Access tokens of Google Cloud: made by the files Google gives out, made anew ahead of their end, and never waited for."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from n4n.runtime import google_tokens
from n4n.runtime.google_credentials import SCOPE, Calls, Maker
from n4n.runtime.google_tokens import (
    GoogleCredential,
    GoogleTokens,
    Token,
    Untokened,
    ambient_file,
    credential_in,
    machines_own,
)
from n4n.runtime.upstream.dial import Proxy, proxy_of
from tests.support.google import TokenService, claims_of, token_service

ONE, OTHER = GoogleCredential("one"), GoogleCredential("other")


@pytest.fixture(name="service")
def _service() -> Iterator[TokenService]:
    with token_service() as service:
        yield service


# ── when tokens are made


class Scripted:
    """A maker whose tokens last so many seconds; a text in their place is a failure."""

    def __init__(self, *tries: float | str | None) -> None:
        self.tries = list(tries)
        self.made = 0

    def make(self) -> Token:
        said = self.tries.pop(0)
        if isinstance(said, str):
            raise Untokened(said)
        self.made += 1
        return Token(f"t{self.made}", None if said is None else 1000.0 + said)


class House:
    """Tokens on a clock that a test sets, without a thread of their own."""

    def __init__(self, *tries: float | str | None) -> None:
        self.now = 50.0
        self.changes = 0
        self.maker = Scripted(*tries)
        self.tokens = GoogleTokens(
            self._changed, clock=lambda: self.now, wall=lambda: 950.0 + self.now, make=lambda credential, proxy: self.maker
        )
        self.tokens._thread = threading.current_thread()  # none is started
        self.tokens.keep([ONE])

    def _changed(self) -> None:
        self.changes += 1

    def after(self, seconds: float) -> tuple[str | None, float | None]:
        """The token once so much time has passed, and when to look again."""
        self.now += seconds
        pause = self.tokens.round()
        return self.tokens.token(ONE), pause


def test_a_token_is_made_anew_well_before_its_end() -> None:
    house = House(3600, 7200)

    assert house.tokens.token(ONE) is None
    assert house.after(0) == ("t1", 3600 - 225)
    assert house.after(3374) == ("t1", 1.0)
    assert house.after(1) == ("t2", 7200 - 3375 - 225)
    assert house.changes == 2


def test_a_token_stays_in_use_while_its_successor_cannot_be_made() -> None:
    house = House(3600, "no", "no", "no", 7200)
    house.after(0)

    assert house.after(3375) == ("t1", 1.0)
    assert house.after(1) == ("t1", 2.0)
    assert house.after(2) == ("t1", 4.0)
    assert house.tokens.problem(ONE) == "no"
    assert house.after(4) == ("t2", 7200 - 3382 - 225)
    assert house.tokens.problem(ONE) is None


def test_an_ended_token_is_not_used_and_its_end_is_told() -> None:
    house = House(100, *["no"] * 60)
    house.after(0)
    token: str | None = "t1"
    while token is not None:
        changes = house.changes
        token, pause = house.after(1)
        assert house.now < 100 or (pause is not None and pause <= 30)

    assert house.now == 50 + 90 and house.changes == changes + 1


def test_tries_that_fail_grow_rarer_up_to_half_a_minute() -> None:
    house = House(*["no"] * 20)
    pauses = [house.after(0)[1]]
    while len(pauses) < 8:
        pauses.append(house.after(pauses[-1] or 0)[1])

    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(("lasts", "pause"), [(None, 1800 - 225), (60, 30), (1, 1), (-5, 1)])
def test_every_span_of_life_has_its_time_for_the_next_try(lasts: float | None, pause: float) -> None:
    assert House(lasts).after(0)[1] == pause


def test_only_credentials_in_use_are_seen_to() -> None:
    house = House(3600)
    house.after(0)

    house.tokens.keep([OTHER])
    assert house.tokens.token(ONE) is None and house.tokens.problem(ONE) is None
    house.tokens.keep([])
    assert house.tokens.round() is None
    assert repr(house.tokens) == "<GoogleTokens of 0 credentials>"


def test_a_credential_that_stays_keeps_its_token() -> None:
    house = House(3600)
    house.after(0)

    house.tokens.keep([OTHER, ONE])
    assert house.tokens.token(ONE) == "t1"


def test_the_first_token_may_be_waited_for_and_then_comes_by_itself() -> None:
    changed = threading.Event()
    maker = Scripted(None, None)
    tokens = GoogleTokens(changed.set, make=lambda credential, proxy: maker)
    try:
        tokens.wait([], 30)
        tokens.wait([ONE], 30)
        assert tokens.token(ONE) == "t1"
        tokens.keep([ONE, OTHER])
        tokens.wait([OTHER], 30)
        assert tokens.token(OTHER) == "t2" and changed.wait(30)
    finally:
        tokens.close()
    assert repr(tokens) == "<GoogleTokens of 2 credentials, closed>"
    tokens.keep([ONE])
    assert tokens._thread is not None and not tokens._thread.is_alive()


def test_waiting_ends_with_a_failure_and_with_patience() -> None:
    stuck = threading.Event()

    class Stuck:
        def make(self) -> Token:
            assert stuck.wait(30)
            raise Untokened("no")

    tokens = GoogleTokens(lambda: None, make=lambda credential, proxy: Stuck())
    try:
        tokens.wait([ONE], 0.01)
        assert tokens.token(ONE) is None and tokens.problem(ONE) is None
        stuck.set()
        tokens.wait([ONE], 30)
        assert tokens.problem(ONE) == "no"
    finally:
        tokens.close()


# ── what tokens are made from


def made(credential: GoogleCredential | None, proxy: Proxy | None = None) -> Token:
    assert credential is not None
    return Maker(credential, proxy).make()


def refused(credential: GoogleCredential | None) -> str:
    with pytest.raises(Untokened) as caught:
        made(credential)
    return str(caught.value)


def test_a_service_accounts_key_signs_for_its_token(service: TokenService) -> None:
    token = made(credential_in(service.service_account()))

    assert token.value == "ya29.token-1" and "ya29" not in repr(token)
    claims = claims_of(service.asked[0]["assertion"])
    assert (claims["iss"], claims["scope"], claims["aud"]) == (
        "robot-canary@p.iam.gserviceaccount.com",
        SCOPE,
        "https://oauth2.googleapis.com/token",
    )
    assert token.ends == pytest.approx(claims["iat"] + 3600, abs=60)


def test_one_maker_makes_one_token_after_the_other(service: TokenService) -> None:
    credential = credential_in(f"\n{service.service_account()}\n")
    assert credential is not None
    maker = Maker(credential, None)

    assert [maker.make().value, maker.make().value] == ["ya29.token-1", "ya29.token-2"]


def test_a_workload_elsewhere_exchanges_its_own_token(service: TokenService, tmp_path: Path) -> None:
    (tmp_path / "subject").write_text("their-own-token")
    service.answers.append((200, {"access_token": "ya29.x", "expires_in": 60, "issued_token_type": "x", "token_type": "Bearer"}))

    assert made(credential_in(service.federation(str(tmp_path / "subject")))).value == "ya29.x"
    assert (service.asked[0]["subject_token"], service.asked[0]["scope"]) == ("their-own-token", SCOPE)


def test_a_persons_login_is_exchanged_at_google(service: TokenService) -> None:
    with a_proxy_that_refuses() as (proxy, heard):
        with pytest.raises(Untokened):
            made(credential_in(service.login()), proxy)

    assert b"".join(heard).startswith(b"CONNECT oauth2.googleapis.com:443 ")


def test_a_machine_has_an_account_of_its_own(service: TokenService) -> None:
    credential = machines_own({"GCE_METADATA_HOST": service.host})

    assert made(credential).value == "ya29.token-1"
    assert service.asked == [{"path": "/computeMetadata/v1/instance/service-accounts/default/token", "flavor": "Google"}]
    assert machines_own({}) == GoogleCredential(metadata_host="metadata.google.internal")


def test_the_user_of_a_machine_may_have_a_file(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "gcloud"
    assert ambient_file({"HOME": str(tmp_path)}) is None

    folder.mkdir(parents=True)
    file = folder / "application_default_credentials.json"
    file.touch()
    assert ambient_file({"HOME": str(tmp_path)}) == ambient_file({"CLOUDSDK_CONFIG": str(folder)}) == str(file)
    assert ambient_file({"HOME": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": " /a/key.json "}) == "/a/key.json"


@pytest.mark.parametrize("text", ["", "ya29.token", "[]", "AIza"])
def test_a_bare_key_is_no_credential_file(text: str) -> None:
    assert credential_in(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "begins like a file of Google's, but is not valid JSON"),
        ("{}", "none of Google's kinds (service_account, authorized_user, external_account, impersonated_service_account)"),
        ('{"type": "secret-canary"}', "none of Google's kinds"),
        ('{"type": ["x"]}', "none of Google's kinds"),
    ],
)
def test_a_file_of_another_kind_is_said_to_be(text: str, said: str) -> None:
    with pytest.raises(Untokened) as caught:
        credential_in(text)

    assert said in str(caught.value) and "canary" not in str(caught.value)


@pytest.mark.parametrize("kind", google_tokens.KINDS)
def test_a_file_that_is_not_complete_is_said_to_be(kind: str) -> None:
    text = f'{{"type": "{kind}", "private_key": "canary", "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request"}}'

    assert refused(credential_in(text)) == "its Google credential is not complete: use the file as Google gave it out"


INVALID = {"error": "invalid_grant", "error_description": "Invalid JWT for robot-canary@p.iam.gserviceaccount.com"}
REFUSES = "Google refuses its credential"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, INVALID, f"{REFUSES} (invalid_grant)"),
        (403, b"<html>canary</html>", REFUSES),
        (200, {"expires_in": 5}, REFUSES),
        (200, {"access_token": "two\nlines", "expires_in": 5}, "Google's token service gave no token"),
        (200, b"x" * (1 << 20) + b"x", "Google's token service cannot be reached"),
    ],
)
def test_why_there_is_no_token_is_said_without_names(service: TokenService, status: int, body: object, said: str) -> None:
    service.answers.append((status, body))

    assert refused(credential_in(service.service_account())) == said


def test_a_machine_without_an_account_is_told_what_to_do(service: TokenService) -> None:
    service.answers += [(404, b""), (200, b"canary")]
    machine = machines_own({"GCE_METADATA_HOST": service.host})
    nowhere = machines_own({"GCE_METADATA_HOST": f"127.0.0.1:{_closed_port()}"})

    assert refused(machine) == "Google refuses its credential (no_service_account)"
    assert refused(machine) == "its Google credential is not complete: use the file as Google gave it out"
    assert refused(nowhere).startswith("it names no credential, and this machine has none")


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


# ── the calls


@pytest.mark.parametrize("url", ["http://example.test/token", "http://10.0.0.1/token", "ftp://localhost/", "file:///etc/passwd"])
def test_nothing_goes_out_in_the_clear_but_to_the_nearest(url: str) -> None:
    with pytest.raises(Exception, match="only https"):
        Calls(None)(url)


@contextmanager
def a_proxy_that_refuses() -> Iterator[tuple[Proxy | None, list[bytes]]]:
    """An egress proxy, and what it hears of its one caller."""
    heard: list[bytes] = []

    def listen(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            while b"\r\n\r\n" not in b"".join(heard):
                heard.append(peer.recv(1024))
            peer.sendall(b"HTTP/1.1 403 no\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen, args=(listener,))
        thread.start()
        yield proxy_of(f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}"), heard
        thread.join()


def test_calls_outside_go_through_the_proxy_and_near_ones_do_not(service: TokenService) -> None:
    outside = credential_in(service.service_account(token_uri="https://oauth2.example.test/token"))
    with a_proxy_that_refuses() as (proxy, heard):
        with pytest.raises(Untokened, match="cannot be reached"):
            made(outside, proxy)

    head = b"".join(heard)
    assert head.startswith(b"CONNECT oauth2.example.test:443 ") and b"proxy-authorization: Basic dXNlcjpzZWNyZXQ=" in head
    assert made(credential_in(service.service_account()), proxy).value == "ya29.token-1"


def test_google_auth_is_loaded_only_where_a_token_is_needed() -> None:
    program = (
        "import sys\nimport n4n.runtime.google_tokens\nprint([name for name in ('google.auth', 'cryptography') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout.strip() == "[]"
