"""Secrets are replaced while everything runs: tokens of operators and nodes, the sealing key, a key's secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from n4n.core.errors import StartFailed
from n4n.core.idempotency import Done, Kept, Mine
from n4n.runtime.bearer import accepted, sent
from n4n.runtime.idempotency import Owned, Records
from n4n.runtime.settings import Settings
from tests.support.answers import completion
from tests.support.fleet import ADMIN_TOKEN, NODE_TOKEN, Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.store import open_store
from tests.support.upstream import running_upstream

FRESH_ADMIN, FRESH_NODE = "fresh-admin-token", "fresh-node-token"


def restarted(role: Role, **settings: str) -> None:
    """As an operator replaces one program: with other settings, and none that it does not know."""
    assert role.stop() == 0
    role.environ = {**role.environ, **settings}
    role.start()


def linked(fleet: Fleet, nodes: int) -> bool:
    done = fleet.n4n("nodes", "-o", "json", check=False)
    return done.returncode == 0 and done.stdout.count('"connected": true') == nodes


def test_both_tokens_are_replaced_without_a_failed_request_or_a_lost_link(tmp_path: Path, postgres_url: str) -> None:
    with running_upstream() as upstream, running_fleet(tmp_path, postgres_url) as fleet:
        upstream.script(then=completion("pong"))
        control = fleet.control_plane()
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog(upstream.base_url))
        key, router = fleet.create_key(), fleet.data_plane("r1", CANARY="sk-provider-canary")
        eventually(lambda: ready(router), "the router")

        both = {"N4N_ADMIN_TOKEN": f"{FRESH_ADMIN},{ADMIN_TOKEN}", "N4N_NODE_TOKEN": f"{FRESH_NODE}, {NODE_TOKEN}"}
        restarted(control, **both)
        assert ask(router, key)[0] == 200
        eventually(lambda: linked(fleet, 1), "the router, with the old token, and an operator with the old one")

        restarted(router, N4N_NODE_TOKEN=FRESH_NODE)
        eventually(lambda: ready(router) and linked(fleet, 1), "the router with the new token")

        restarted(control, N4N_ADMIN_TOKEN=FRESH_ADMIN, N4N_NODE_TOKEN=FRESH_NODE)
        refused = eventually(lambda: done if "token" in (done := fleet.n4n("nodes", check=False)).stderr else None, "a refusal")
        assert refused.returncode == 1, "the old admin token opens nothing"
        assert ask(router, key)[0] == 200


@pytest.mark.parametrize(
    ("told", "all_of_them", "first"),
    [
        ("", (), ""),
        ("one", (b"one",), "one"),
        ("one,two", (b"one", b"two"), "one"),
        (" one , two ,", (b"one", b"two"), "one"),
        (",", (), ""),
    ],
)
def test_all_tokens_are_accepted_and_the_first_is_sent(told: str, all_of_them: tuple[bytes, ...], first: str) -> None:
    assert (accepted(told), sent(told)) == (all_of_them, first)


def test_tokens_of_operators_and_nodes_must_all_differ() -> None:
    from control_plane.app import _check

    settings = Settings(database_url="postgresql://n4n@db/n4n", admin_token="a,b", node_token="c,b")
    with pytest.raises(StartFailed, match="N4N_NODE_TOKEN equals N4N_ADMIN_TOKEN, or one of them does"):
        _check(settings)


async def test_under_a_new_sealing_key_kept_answers_are_not_found_and_harm_nobody(redis_url: str) -> None:
    async with open_store(redis_url) as store:
        before, after = Records(store, b"the old key"), Records(store, b"the new key")
        asked = ("acme", "k", "/v1/chat/completions", b"{}")
        old, new = (Owned(one.known(*asked), "router") for one in (before, after))
        assert await before.claim(old) == Mine()
        assert await before.complete(old, Kept(False, b"", b"first"))
        assert await after.claim(new) == Mine(), "it is executed once more"
        assert await after.complete(new, Kept(False, b"", b"second"))
        for records, owned, body in ((before, old, b"first"), (after, new, b"second")):
            claim = await records.claim(owned)
            assert isinstance(claim, Done) and records.answer(owned.known, claim).body == body
