"""`n4n tenant …`: what holds for all keys of a tenant together."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, cast

from n4n.cli import values
from n4n.cli.budget_rules import (
    STANDING_COLUMNS,
    budget_fields,
    given_budgets,
    gives_budgets,
    offer_budgets,
    spelled,
    standing_row,
    wire_budget,
)
from n4n.cli.calls import ask, document_of, offer_author
from n4n.cli.instance import offer_instance
from n4n.cli.limit_rules import LIMITS, given_limits, offer_limits
from n4n.cli.output import WrongUsage, iso, note, offer_json, print_fields, print_rows
from n4n.cli.parser import Commands, Parser, example
from n4n.core import schema

if TYPE_CHECKING:
    from n4n.runtime.access_calls import BudgetInfo, TenantInfo

COLUMNS = {
    "tenant": "TENANT", "keys": "KEYS", "rpm": "RPM", "tpm": "TPM", "concurrency": "CONCURRENCY", "budgets": "BUDGETS",
    "provider_caps": "PROVIDER CAPS", "created_at": "CREATED (UTC)",
}  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the group."""
    group = commands.group("tenant", about="tenants and what holds for all their keys", epilog=example("n4n tenant list"))
    listing = group.add("list", about="every tenant with its rules", epilog=example("n4n tenant list -o json"))
    _offer_reading(listing, run_list)
    show = group.add("show", about="one tenant, and how its budgets stand", epilog=example("n4n tenant show acme"))
    show.add_argument("tenant", type=values.name, metavar="NAME")
    _offer_reading(show, run_show)
    line = "n4n tenant update acme --rpm 6000 --budget-usd 1000/month --provider-cap openai=600/month"
    update = group.add("update", about="change the rules that are named; a tenant that is new is made", epilog=example(line))
    update.add_argument("tenant", type=values.name, metavar="NAME")
    offer_limits(update, values.or_none, " of all its keys together; none: no limit")
    offer_budgets(update, values.or_none, "; none takes them away")
    update.add_argument(
        "--provider-cap", action="append", type=values.provider_cap, metavar="PROVIDER=USD/WINDOW",
        help="from 80 %% of it on, other providers are preferred; nothing is refused. PROVIDER=none takes it away; repeatable",
    )  # fmt: skip
    update.add_argument(
        "--capture-content", choices=("on", "off"), default=None,
        help="on: traces of its requests bear what was asked and answered; off, as it is unless somebody turns it on: nothing of it",
    )  # fmt: skip
    offer_author(update)
    _offer_reading(update, run_update)


def _offer_reading(parser: Parser, run: object) -> None:
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run_list(args: Namespace) -> int:
    """`n4n tenant list`"""
    found = ask(args, "fetching the tenants", lambda client: client.list_tenants())
    print_rows([tenant_row(info) for info in found], COLUMNS, args.output, empty="there are no tenants; n4n key create makes one")
    return 0


def run_show(args: Namespace) -> int:
    """`n4n tenant show`"""
    info = ask(args, "fetching the tenant", lambda client: client.show_tenant(args.tenant))
    standings = [one for one in ask(args, "adding up", lambda client: client.budgets(args.tenant, "")) if not one.public_id]
    rows = [standing_row(one) for one in standings]
    if args.output == "json":
        print_fields({**tenant_row(info), "standings": rows}, args.output)
        return 0
    print_fields(tenant_row(info), args.output)
    if rows:
        print()
        print_rows(rows, STANDING_COLUMNS, args.output, empty="")
    return 0


def run_update(args: Namespace) -> int:
    """`n4n tenant update`"""
    touches = gives_budgets(args)
    if not touches and args.provider_cap is None and args.capture_content is None and not given_limits(args, {})[1]:
        raise WrongUsage("name a rule to change, such as --rpm 6000 or --budget-usd 1000/month; see `n4n tenant update -h`")
    now = next((one for one in ask(args, "fetching the tenants", lambda client: client.list_tenants()) if one.name == args.tenant), None)
    rules, fields = given_limits(args, now.limits if now else {})
    if touches:
        rules["budgets"] = given_budgets(args, now.budgets if now else ())
        fields.append("budgets")
    if args.provider_cap is not None:
        rules["provider_caps"] = _caps(args, now)
        fields.append("provider_caps")
    if args.capture_content is not None:
        rules["capture_content"] = args.capture_content == "on"
        fields.append("capture_content")
    changed = ask(args, "changing the tenant", lambda client: client.update_tenant(args.tenant, rules, fields, author=args.author))
    _warn_of_providers(args)
    print_fields(tenant_row(changed), args.output)
    return 0


def _warn_of_providers(args: Namespace) -> None:
    """A provider that the catalog does not have may come later, so it is no fault; often it is a misspelling, and caps nothing."""
    named = [provider for provider, cap in cast(list[tuple[str, values.Budget | None]], args.provider_cap or []) if cap is not None]
    known = document_of(args).get("providers", {}) if named else {}
    for name in named:
        if name not in known:
            note(f"n4n: --provider-cap: the catalog has no provider {name!r} now{schema.nearest(name, known)}")


def _caps(args: Namespace, now: TenantInfo | None) -> dict[str, object]:
    """All caps as they are to be: those of a provider that a flag names are replaced, the others stay."""
    kept: dict[str, object] = {
        provider: wire_budget(one.unit, one.amount, one.window, soft=one.soft)
        for provider, one in (now.provider_caps if now else {}).items()
    }
    for provider, cap in cast(list[tuple[str, values.Budget | None]], args.provider_cap):
        kept.pop(provider, None)
        if cap is not None:
            kept[provider] = wire_budget(cap.unit, cap.amount, cap.window, soft=False)
    return kept


def tenant_row(info: TenantInfo) -> dict[str, object]:
    """A tenant by its column names."""

    def told(provider: str, one: BudgetInfo) -> str:
        return f"{provider}={spelled(one.unit, one.amount, one.window, soft=False)}"

    return {
        "tenant": info.name,
        "keys": info.keys,
        **{name: info.limits.get(name) for name in LIMITS},
        "priority": info.priority,
        **budget_fields(info.budgets),
        "provider_caps": [told(provider, one) for provider, one in sorted(info.provider_caps.items())],
        "capture_content": info.capture_content,
        "created_at": iso(info.created_at_ms),
        "author": info.author,
        "access_version": info.access_version,
    }
