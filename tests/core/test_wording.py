"""What is left of a provider's words before anybody reads them."""

from __future__ import annotations

import pytest

from n4n.core.dialects.wording import cleaned, without_secret
from n4n.core.errors import Failure, FailureClass

KEY = "Zq7!kan@rie"


def failure(message: str, code: str | None = None, param: str | None = None) -> Failure:
    return Failure(FailureClass.BAD_REQUEST, message, 400, code, param=param)


def test_a_credential_that_no_pattern_knows_is_struck_out_wherever_it_stands() -> None:
    assert KEY in cleaned(f"the key {KEY} is wrong"), "which is why"
    told = without_secret(failure(f"the key {KEY} is wrong", f"bad-{KEY}", KEY), KEY)
    assert (told.message, told.code, told.param) == ("the key […] is wrong", "bad-[…]", "[…]")
    assert without_secret(failure(KEY, None), KEY).message == "[…]"


@pytest.mark.parametrize(
    ("secret", "part"),
    [
        ("AKIDKIDKID:sEcReTsEcReT", "sEcReTsEcReT"),
        ('{"client_email": "me@x.iam", "private_key_id": "0123abcd"}', "0123abcd"),
        ("a\nlonger", "longer"),
    ],
)
def test_a_part_of_a_credential_is_one_too(secret: str, part: str) -> None:
    assert without_secret(failure(f"who is {part}?"), secret).message == "who is […]?"


@pytest.mark.parametrize("secret", [None, "", "a b", "not there"])
def test_what_quotes_no_credential_is_the_very_same(secret: str | None) -> None:
    told = failure("a b c")
    assert without_secret(told, secret) is told
