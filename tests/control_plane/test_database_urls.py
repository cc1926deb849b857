"""A database's URL that cannot be used is refused in one line, and what is secret in it is not told."""

from __future__ import annotations

import pytest

from control_plane.schema import engine_url
from n4n.core.errors import StartFailed


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is empty"),
        ("canary", "must be postgresql://USER"),
        ("postgresql://u:canary@h:port/d", "must be postgresql://USER"),
        ("postgresql://u:canary:5432/d", "must be postgresql://USER"),
        ("postgresql://u:secret@canary@h:5432/d", "write it as %40"),
        ("mysql://u:canary@h/d", "must begin with postgresql://, not mysql://"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_what_is_in_it(url: str, says: str) -> None:
    with pytest.raises(StartFailed) as refused:
        engine_url(url)
    assert says in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_password_with_odd_signs_in_it_is_the_password() -> None:
    url = engine_url("postgresql://u:p%40%2Fq%3F@h:5432/d")
    assert (url.password, url.host, url.port, url.database) == ("p@/q?", "h", 5432, "d")
    assert "p@/q?" not in repr(url) and "p%40" not in repr(url)
