"""The child program of `n4n up` that puts the first catalog and the first key in place and waits until the routers hold them.

Not for people: `main` knows it, the parser does not. Reads a wish (see furnishing.py) on standard input, answers on standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from n4n.cli.calls import refusal_lines
from n4n.cli.catalog_rule import AUTHOR, FILE_AUTHOR, Apply, Head, decide, stranded
from n4n.cli.furnishing import Furnished, Wish
from n4n.cli.output import Refused
from n4n.cli.ports import LOOPBACK, accepts
from n4n.cli.router_probe import Router
from n4n.cli.welcome import World, trial
from n4n.core.access import split_key
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import Document, parse_document
from n4n.runtime.logs import log_as_json

if TYPE_CHECKING:
    from n4n.runtime.control_client import ControlClient

TENANT = "default"  # of the first key
LOOK_S = 0.05


def run() -> int:
    """Does what standard input wishes."""
    from n4n.runtime.control_client import ControlRefused

    log_as_json("up", "info")
    wish = Wish(**json.load(sys.stdin))
    try:
        furnished = asyncio.run(_furnish(wish))
    except (ControlRefused, Refused) as refused:
        lines = list(refused.lines) if isinstance(refused, Refused) else refusal_lines(refused)
        json.dump({"refused": lines}, sys.stdout)
        return 1
    json.dump(asdict(furnished), sys.stdout)
    return 0


async def _furnish(wish: Wish) -> Furnished:
    from n4n.runtime.control_client import ControlClient
    from n4n.runtime.settings import read_settings
    from n4n.runtime.tls import tls_of

    async with ControlClient([wish.admin_url], wish.admin_token, tls=tls_of(read_settings())) as client:
        await _until_it_answers(client)
        notes = await _settle_catalog(client, wish)
        key = await _working_key(client, wish.api_key)
        await _until_routers_follow(client, wish.workers)
        if key == wish.api_key and not await _opens(wish.base_url, key):
            notes.append("the first key has another secret by now, which n4n up does not know: here is a new key")
            key = await _working_key(client, "")
            await _until_routers_follow(client, wish.workers)
        head = await client.get()
        world = World(head.endpoint_states, DIALECTS, os.environ, lambda port: port in wish.sim_ports or accepts(LOOPBACK, port))
        model, obstacle = trial(json.loads(head.document_json), world)
        return Furnished(head.version.version, key, model, obstacle, tuple(notes))


async def _until_it_answers(client: ControlClient) -> None:
    """As long as it takes: whoever started us ends us when the control plane dies or too much time passes."""
    from n4n.runtime.control_client import ControlRefused

    while True:
        try:
            await client.status()
        except ControlRefused as refused:
            if refused.code not in ("unreachable", "unavailable", "deadline"):
                raise
            await client.close()
            await asyncio.sleep(LOOK_S)
        else:
            return


async def _settle_catalog(client: ControlClient, wish: Wish) -> list[str]:
    head = await _head(client)
    wanted = parse_document(json.loads(wish.document_json))[0]
    decision = decide(head, wanted, asked_for=wish.asked_for)
    if isinstance(decision, Apply):
        applied = await client.apply(
            wish.document_json,
            author=FILE_AUTHOR if wish.asked_for else AUTHOR,
            message=wish.message,
            expect_version=head.version if head else 0,
            allow_shrink=decision.allow_shrink,
        )
        return [f"version {applied.version.version} of the catalog is {wish.message}"] if head else []
    lost = stranded(head.document, wish.moved_ports) if head else []
    if head and lost:
        where = ", ".join(f"{name} (port {wish.moved_ports[name]})" for name in lost)
        raise Refused(
            f"another program has taken the port of {where}, which catalog version {head.version} by {head.author} names: "
            "stop that program, or start without --sim and apply a catalog without it"
        )
    return [decision.note] if decision.note else []


async def _head(client: ControlClient) -> Head | None:
    from n4n.runtime.control_client import ControlRefused

    try:
        found = await client.get()
    except ControlRefused as refused:
        if refused.code == "not_found":
            return None
        raise
    return Head(found.version.version, found.version.author, cast(Document, json.loads(found.document_json)))


async def _working_key(client: ControlClient, known: str) -> str:
    """The key of earlier starts while it is active, else a new one."""
    from n4n.runtime.control_client import ControlRefused

    parts = split_key(known)
    if parts:
        try:
            if (await client.show_key(parts[0])).state == "active":
                return known
        except ControlRefused as refused:
            if refused.code != "not_found":
                raise
    return (await client.create_key(TENANT, {}, author=AUTHOR)).secret


async def _opens(base_url: str, key: str) -> bool:
    """Whether a key that is active is let in: its secret may have been rotated."""
    while True:
        try:
            return await asyncio.to_thread(Router(base_url, key).lets_in)
        except OSError:  # it does not listen yet
            await asyncio.sleep(LOOK_S)


async def _until_routers_follow(client: ControlClient, workers: int) -> None:
    """Until so many connected routers hold the newest catalog and the newest keys."""
    while True:
        nodes = await client.nodes()
        current = [
            node
            for node in nodes
            if node.role == "data-plane"
            and node.connected
            and node.applied_version == node.head_version
            and node.access_version == node.access_head_version
        ]
        if len(current) >= workers:
            return
        await asyncio.sleep(LOOK_S)
