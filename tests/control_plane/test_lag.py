"""How far behind a node is said to be."""

from __future__ import annotations

import pytest

from control_plane.lines import NONE, Published
from control_plane.service.fleet import lag_ms

NOW_MS = 1_800_000_000_000
HEAD = Published((3, "sum"), {}, NOW_MS - 250)


@pytest.mark.parametrize(
    ("head", "applied", "lag"),
    [
        (HEAD, 3, 0),
        (HEAD, 2, 250),
        (HEAD, 7, 250),  # of another history: this control plane's head is what it should have
        (HEAD, 0, None),
        (Published(NONE, {}, 0), 5, None),
        (Published(NONE, {}, 0), 0, 0),
        (Published((3, "sum"), {}, NOW_MS + 40), 2, 0),  # the database's clock is ahead of ours
    ],
)
def test_a_lag_is_the_age_of_a_head_that_the_node_does_not_have(head: Published, applied: int, lag: int | None) -> None:
    assert lag_ms(head, applied, NOW_MS) == lag
