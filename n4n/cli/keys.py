"""`n4n key …`: API keys of tenants and their rules. A key is shown once, when it is made or rotated."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from n4n.cli import values
from n4n.cli.budget_rules import STANDING_COLUMNS, standing_row
from n4n.cli.calls import ask, document_of, offer_author
from n4n.cli.instance import offer_instance
from n4n.cli.key_rules import given_rules, key_row, offer_rules
from n4n.cli.output import WrongUsage, note, offer_json, print_fields, print_rows
from n4n.cli.parser import Commands, Parser, example
from n4n.core import schema

if TYPE_CHECKING:
    from n4n.runtime.access_calls import KeyInfo

COLUMNS = {
    "public_id": "PUBLIC ID", "tenant": "TENANT", "state": "STATE", "rpm": "RPM", "tpm": "TPM", "concurrency": "CONCURRENCY",
    "budgets": "BUDGETS", "directives": "DIRECTIVES", "models": "MODELS", "expires_at": "EXPIRES (UTC)",
}  # fmt: skip
SHOWN_ONCE = "keep it now: it is not stored and cannot be shown again"


def add(commands: Commands) -> None:
    """Adds the group."""
    group = commands.group("key", about="API keys and their rules", epilog=example("n4n key create --tenant acme --rpm 600"))
    line = "n4n key create --tenant acme --rpm 600 --budget-usd 50/month --budget-tokens 5m/day --directive region=eu --expires 30d"
    create = group.add("create", about="make a key; it is shown once", epilog=example(line))
    create.add_argument("--tenant", type=values.name, required=True, help="whose key it is; made if it is new")
    offer_rules(create, clearing=False)
    _offer_change(create, run_create)
    listing = group.add("list", about="every key with its rules", epilog=example("n4n key list --tenant acme -o json"))
    listing.add_argument("--tenant", type=values.name, help="only this tenant's")
    listing.add_argument("--all", action="store_true", help="revoked ones too")
    _offer_reading(listing, run_list)
    show = group.add("show", about="one key with its rules, and how its budgets stand", epilog=example("n4n key show k3j9x0aa81bc"))
    _offer_key(show)
    _offer_reading(show, run_show)
    line = "n4n key update k3j9x0aa81bc --rpm 1200"
    update = group.add("update", about="change the rules that are named", epilog=example(line))
    _offer_key(update)
    offer_rules(update, clearing=True)
    _offer_change(update, run_update)
    rotate = group.add("rotate", about="give a key a new secret", epilog=example("n4n key rotate k3j9x0aa81bc --grace 24h"))
    _offer_key(rotate)
    rotate.add_argument("--grace", type=values.span, default=0, metavar="SPAN", help="how long the old secret stays valid (default 0)")
    _offer_change(rotate, run_rotate)
    revoke = group.add("revoke", about="end a key for good", epilog=example("n4n key revoke k3j9x0aa81bc"))
    _offer_key(revoke)
    _offer_change(revoke, run_revoke)


def _offer_key(parser: Parser) -> None:
    parser.add_argument("public_id", type=values.public_id, metavar="ID", help="the public id, the 12 letters and digits after sk-n4n-")


def _offer_reading(parser: Parser, run: object) -> None:
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def _offer_change(parser: Parser, run: object) -> None:
    offer_author(parser)
    _offer_reading(parser, run)


def run_create(args: Namespace) -> int:
    """`n4n key create`"""
    rules, _ = given_rules(args, {})
    made = ask(args, "making the key", lambda client: client.create_key(args.tenant, rules, author=args.author))
    _warn_of_models(args, rules)
    return _show_secret(made.key, made.secret, args.output)


def run_list(args: Namespace) -> int:
    """`n4n key list`"""
    found = ask(args, "fetching the keys", lambda client: client.list_keys(args.tenant or "", include_revoked=args.all))
    print_rows([key_row(info) for info in found], COLUMNS, args.output, empty="there are no keys; see `n4n key create -h`")
    return 0


def run_show(args: Namespace) -> int:
    """`n4n key show`"""
    info = ask(args, "fetching the key", lambda client: client.show_key(args.public_id))
    standings = ask(args, "adding up", lambda client: client.budgets("", info.public_id)) if info.budgets else ()
    rows = [standing_row(one) for one in standings if one.public_id]
    if args.output == "json":
        print_fields({**key_row(info), "standings": rows}, args.output)
        return 0
    print_fields(key_row(info), args.output)
    if rows:
        print()
        print_rows(rows, STANDING_COLUMNS, args.output, empty="")
    return 0


def _show(info: KeyInfo, output: str) -> int:
    print_fields(key_row(info), output)
    return 0


def run_update(args: Namespace) -> int:
    """`n4n key update`"""
    if not given_rules(args, {})[1]:
        raise WrongUsage("name a rule to change, such as --rpm 600; see `n4n key update -h`")
    now = ask(args, "fetching the key", lambda client: client.show_key(args.public_id))
    rules, touched = given_rules(args, now.limits, now.budgets)
    changed = ask(args, "changing the key", lambda client: client.update_key(args.public_id, rules, touched, author=args.author))
    _warn_of_models(args, rules)
    return _show(changed, args.output)


def run_rotate(args: Namespace) -> int:
    """`n4n key rotate`"""
    made = ask(args, "rotating the key", lambda client: client.rotate_key(args.public_id, grace_ms=args.grace, author=args.author))
    return _show_secret(made.key, made.secret, args.output)


def run_revoke(args: Namespace) -> int:
    """`n4n key revoke`"""
    print_fields(key_row(ask(args, "revoking the key", lambda client: client.revoke_key(args.public_id, author=args.author))), args.output)
    return 0


def _show_secret(info: KeyInfo, secret: str, output: str) -> int:
    print_fields({"api_key": secret, **key_row(info)}, output)
    if output != "json":
        note(SHOWN_ONCE)
    return 0


def _warn_of_models(args: Namespace, rules: Mapping[str, object]) -> None:
    """A model that the catalog does not have may come later, so it is no fault; often it is a misspelling."""
    named = cast(list[str], rules.get("models", []))
    known = _known_models(args) if named else ()
    for name in named:
        if name not in known:
            note(f"n4n: --model: the catalog has no model or alias {name!r} now{schema.nearest(name, known)}")


def _known_models(args: Namespace) -> list[str]:
    """Every name under which a request finds a model."""
    document = document_of(args)
    models = cast(Mapping[str, Mapping[str, list[str]]], document.get("models", {}))
    aliases = [alias for model in models.values() for alias in model.get("aliases", [])]
    return [*models, *aliases, *(f"tier/{tier}" for tier in document.get("tiers", {}))]
