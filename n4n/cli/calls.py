"""One call to the control plane of the instance that the arguments name, and what a refusal looks like."""

from __future__ import annotations

import getpass
import json
import os
import socket
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from n4n.cli import values
from n4n.cli.instance import Instance, locate
from n4n.cli.output import Refused, progress

if TYPE_CHECKING:
    from n4n.runtime.control_client import ControlClient, ControlRefused

T = TypeVar("T")


def offer_author(parser: ArgumentParser) -> None:
    """Adds `--author`."""
    parser.add_argument("--author", type=values.words, default=author(), help="who, for the history (default %(default)s)")


def author() -> str:
    """Who changes something, unless they say otherwise."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def ask(args: Namespace, doing: str, question: Callable[[ControlClient], Awaitable[T]]) -> T:
    """The answer to one call; Refused, a line per problem, when there is none. `doing` is said if it takes long."""
    import asyncio

    from n4n.runtime.control_client import ControlRefused

    instance = locate(args.data_dir)
    try:
        with progress(doing):
            return asyncio.run(_answer(instance, question))
    except ControlRefused as refused:
        raise Refused(*refusal_lines(refused)) from refused


def document_of(args: Namespace) -> Mapping[str, Mapping[str, object]]:
    """The catalog in force as its document has it; empty where none was applied yet."""
    from n4n.runtime.control_client import ControlRefused

    async def current(client: ControlClient) -> str:
        try:
            return (await client.get(None)).document_json
        except ControlRefused as refused:
            if refused.code != "not_found":
                raise
            return "{}"

    return cast(Mapping[str, Mapping[str, object]], json.loads(ask(args, "fetching the catalog", current)))


async def _answer(instance: Instance, question: Callable[[ControlClient], Awaitable[T]]) -> T:
    from n4n.core.tracing import read_parent
    from n4n.runtime.control_client import ControlClient
    from n4n.runtime.settings import read_settings
    from n4n.runtime.tls import tls_of

    targets = [target.strip() for target in instance.admin_url.split(",") if target.strip()]
    parent = read_parent(os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE"))  # as CI systems and otel-cli set them
    async with ControlClient(targets, instance.admin_token, tls=tls_of(read_settings()), parent=parent) as client:
        return await question(client)


def refusal_lines(refused: ControlRefused) -> list[str]:
    """One line per field at fault; the refusal's own line where it names none."""
    return [str(problem) for problem in refused.problems] or [refused.message]
