"""`n4n explain`: which endpoints a request would be offered to, in which order, and what removed the others. Sends nothing."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import cast

from n4n.cli import values
from n4n.cli.instance import locate, offer_instance
from n4n.cli.output import Refused, cell, offer_json, print_json, progress, table
from n4n.cli.parser import Commands, example
from n4n.cli.ports import reachable
from n4n.cli.router_probe import Router
from n4n.runtime.settings import read_settings

HEADINGS = ["RANK", "ENDPOINT", "PROVIDER", "REGION", "MODEL", "WEIGHT", "USD/1M IN", "USD/1M OUT", "ELIMINATED BY"]
PLACE = ("N4N_HOST", "N4N_PORT")
REMEDY = "give --key sk-n4n-… and --base-url http://ROUTER:8080/v1 (or set N4N_HOST and N4N_PORT)"
DRAWN = "ranks are drawn anew for each request, by weight, unless the model's strategy or sort= orders them"
Candidate = Mapping[str, object]


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "explain",
        about="candidates of a request, who was filtered by what, the order",
        more="It is a dry run on the data plane: no provider is called.",
        epilog=example("n4n explain --model gpt-4o --directive region=eu --directive sort=cost"),
    )
    parser.add_argument("--model", required=True, type=values.words, help="what the request would name: a model, an alias, tier/NAME")
    parser.add_argument(
        "--directive", action="append", type=values.directive, default=[], metavar="KEY=VALUE", help="a routing directive; repeatable"
    )
    parser.add_argument("--key", type=values.api_key, metavar="KEY", help="ask as this API key (default: the first one, from runtime.json)")
    parser.add_argument(
        "--base-url", type=values.base_url, metavar="URL", help="the router to ask, http://router:8080/v1 (default: from runtime.json)"
    )
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n explain`"""
    router = _router(args)
    try:
        with progress("asking the data plane"):
            answer = router.explain(args.model, ",".join(args.directive))
    except OSError as error:
        raise Refused(
            f"no data plane answers on {router.base_url} ({error}): look at `n4n status`, or name another with --base-url"
        ) from error
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise Refused(_refusal(answer.status, answer.body))
    if args.output == "json":
        print_json(answer.body)
    else:
        print("\n".join(explained(answer.body)))
    return 0


def _router(args: Namespace) -> Router:
    """The one that is named, else that of a running `n4n up`, else the one that N4N_HOST and N4N_PORT describe. Refused."""
    found = None
    if not (args.base_url and args.key):
        try:
            found = locate(args.data_dir)
        except Refused:
            if args.data_dir or not (args.base_url or any(name in os.environ for name in PLACE)):
                raise Refused(f"no n4n up runs here: {REMEDY}") from None
    base_url = args.base_url or (found.base_url if found else "") or _configured()
    key = args.key or (found.api_key if found and base_url == found.base_url else "")
    if not key:
        raise Refused(f"--key is missing, and no runtime.json tells one for {base_url}: {REMEDY}")
    return Router(base_url, key)


def _configured() -> str:
    settings = read_settings(os.environ)
    return f"http://{reachable(settings.host)}:{settings.port}/v1"


def _refusal(status: int, body: object) -> str:
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, Mapping) and error.get("message"):
        return f"{error.get('code') or status}: {error['message']}"
    return f"the data plane answered {status}: look at `n4n status`"


def explained(body: Mapping[str, object]) -> list[str]:
    """What is printed: the request as understood, then the candidates, those that remain first and in order."""
    candidates = cast(list[Candidate], body.get("candidates", []))
    directives = cast(list[str], body.get("directives", []))
    kept = sum(1 for candidate in candidates if candidate.get("kept"))
    head = f"{body.get('model')}: {kept} of {len(candidates)} candidates remain, catalog version {body.get('catalog_version')}"
    told = [head, *([f"directives: {', '.join(directives)}"] if directives else [])]
    if kept > 1 and not any(directive.startswith("sort=") for directive in directives):
        told.append(DRAWN)
    ordered = sorted(candidates, key=lambda one: (not one.get("kept"), _rank(one), str(one.get("endpoint"))))
    if not ordered:
        return told
    rehearsed = [f"{one.get('endpoint')}: a fault is injected: {one['injected_fault']}" for one in ordered if one.get("injected_fault")]
    return [*told, "", *table([_cells(candidate) for candidate in ordered], HEADINGS), *rehearsed]


def _rank(candidate: Candidate) -> int:
    rank = candidate.get("rank")
    return rank if isinstance(rank, int) else 1 << 30


def _cells(candidate: Candidate) -> list[str]:
    price = candidate.get("price")
    prices = price if isinstance(price, Mapping) else {}
    plain = [candidate.get(field) for field in ("rank", "endpoint", "provider", "region", "model")]
    weight = candidate.get("weight")
    shown = float(f"{weight:.3g}") if isinstance(weight, float) else weight
    return [cell(value) for value in (*plain, shown, prices.get("input_per_1m"), prices.get("output_per_1m"), candidate.get("reason"))]
