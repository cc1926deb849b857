"""Keys as a router knows them: who may call, until when, and what a refusal gives away (nothing)."""

from __future__ import annotations

import hashlib

import pytest

from n4n.core.access import AccessSnapshot, Key, Tenant, split_key
from n4n.core.errors import Unauthenticated

PUBLIC, SECRET, OTHER = "abcdef012345", "S" * 40, "T" * 40
PRESENTED = f"sk-n4n-{PUBLIC}-{SECRET}"
NOW = 1_000.0


def sha(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def access(key: Key) -> AccessSnapshot:
    return AccessSnapshot(1, "c", {key.public_id: key})


def test_the_right_secret_opens() -> None:
    key = Key(PUBLIC, "acme", sha(SECRET))

    assert access(key).authenticate(PRESENTED, NOW) is key


def test_only_a_key_that_was_let_in_and_never_ends_is_recalled() -> None:
    """Given keys with and without an end, when their callers have been let in, then what comes again is recalled for the latter alone."""
    lasting, ending = access(Key(PUBLIC, "acme", sha(SECRET))), access(Key(PUBLIC, "acme", sha(SECRET), expires_at=NOW + 1))
    assert lasting.recalled(PRESENTED) is None

    key = lasting.authenticate(PRESENTED, NOW)
    ending.authenticate(PRESENTED, NOW)

    assert lasting.recalled(PRESENTED) is key
    assert lasting.recalled(f"{PRESENTED} ") is None
    assert ending.recalled(PRESENTED) is None


@pytest.mark.parametrize(
    "presented",
    [None, "", "sk-n4n-", "Bearer x", f"sk-n4n-{PUBLIC}", f"sk-n4n-{PUBLIC}-{OTHER}", f"sk-n4n-{'z' * 12}-{SECRET}",
     f"{PRESENTED} ", f"{PRESENTED}\n",
     f"sk-n4n-{PUBLIC.upper()}-{SECRET}", f"sk-n4n-{PUBLIC}-{'é' * 40}", f"sk-n4n-{PUBLIC}-{SECRET * 9}"],
)  # fmt: skip
def test_every_other_key_is_refused_in_the_same_words(presented: str | None) -> None:
    with pytest.raises(Unauthenticated) as refused:
        access(Key(PUBLIC, "acme", sha(SECRET))).authenticate(presented, NOW)

    assert refused.value.message == Unauthenticated().message
    assert refused.value.status == 401


def test_a_key_ends_at_its_expiry() -> None:
    snapshot = access(Key(PUBLIC, "acme", sha(SECRET), expires_at=NOW + 1))

    assert snapshot.authenticate(PRESENTED, NOW).tenant == "acme"
    with pytest.raises(Unauthenticated):
        snapshot.authenticate(PRESENTED, NOW + 1)


def test_a_rotated_secret_works_until_its_grace_ends_and_the_new_one_beside_it() -> None:
    snapshot = access(Key(PUBLIC, "acme", sha(OTHER), previous_sha256=sha(SECRET), previous_expires_at=NOW + 1))

    assert snapshot.authenticate(PRESENTED, NOW)
    assert snapshot.authenticate(f"sk-n4n-{PUBLIC}-{OTHER}", NOW + 5)
    with pytest.raises(Unauthenticated):
        snapshot.authenticate(PRESENTED, NOW + 1)


def test_a_previous_secret_without_an_end_opens_nothing() -> None:
    with pytest.raises(Unauthenticated):
        access(Key(PUBLIC, "acme", sha(OTHER), previous_sha256=sha(SECRET))).authenticate(PRESENTED, NOW)


def test_a_key_splits_into_its_public_id_and_its_secret() -> None:
    assert split_key(PRESENTED) == (PUBLIC, SECRET)
    assert split_key(f"sk-n4n-{PUBLIC}-{'-_' * 20}") == (PUBLIC, "-_" * 20)
    assert split_key("sk-other") is None


def test_a_caller_that_is_known_stays_known_until_its_key_is_pushed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n4n.core.access.MOST_KNOWN", 1)
    first, second = Key(PUBLIC, "acme", sha(SECRET)), Key("z" * 12, "umbrella", sha(OTHER))
    held = AccessSnapshot(1, "c", {PUBLIC: first, second.public_id: second})

    for _ in range(2):
        assert held.authenticate(PRESENTED, NOW) is first
        assert held.authenticate(f"sk-n4n-{second.public_id}-{OTHER}", NOW) is second
    with pytest.raises(Unauthenticated):
        AccessSnapshot(2, "d", {}).authenticate(PRESENTED, NOW)
    with pytest.raises(Unauthenticated):
        held.authenticate(f"sk-n4n-{PUBLIC}-{OTHER}", NOW)


def test_a_tenant_lends_its_rules_to_its_keys_but_a_key_s_own_priority_stands() -> None:
    tenant = Tenant("acme", limits={"rpm": 6}, priority="background")
    plain, own = Key("a", "acme", bytes(32)), Key("b", "acme", bytes(32), priority="interactive")
    assert tenant.lent(plain).tenant_limits == {"rpm": 6}
    assert [tenant.lent(key).priority for key in (plain, own)] == ["background", "interactive"]
