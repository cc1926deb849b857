"""The rules of an API key as flags say them, as the control plane takes them, and as they are shown."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.budget_rules import budget_fields, given_budgets, gives_budgets, offer_budgets
from n4n.cli.limit_rules import LIMITS, given_limits, offer_limits
from n4n.cli.output import WrongUsage, iso

if TYPE_CHECKING:
    from n4n.runtime.access_calls import BudgetInfo, KeyInfo

Rules = dict[str, object]  # by the names of the wire: limits, budgets, directives, …


def offer_rules(parser: ArgumentParser, *, clearing: bool) -> None:
    """Adds the flags; `clearing`: `none` as a value takes a rule away."""

    def reader(read: Callable[[str], object]) -> Callable[[str], object]:
        return values.or_none(read) if clearing else read

    also = "; none: no limit" if clearing else ""
    offer_limits(parser, reader, also)
    offer_budgets(parser, reader, "; none takes them away" if clearing else "")
    _offer_list(parser, "--directive", reader(values.directive), "KEY=VALUE", "binds every request of this key")
    _offer_list(parser, "--require-directive", reader(values.directive_name), "KEY", "a directive every request must carry, such as region")
    _offer_list(parser, "--model", reader(values.words), "MODEL", "may be used; all, unless one is named")
    parser.add_argument(
        "--require-pricing", action=BooleanOptionalAction, default=..., help="endpoints without a price in the catalog are not used"
    )
    _offer_list(parser, "--tag", reader(values.tag), "NAME=VALUE", "stands in the ledger beside each request, such as team=search")
    parser.add_argument("--expires", type=reader(values.instant), metavar="WHEN", default=..., help="30d, 12h, 90s or a date (UTC)")


def _offer_list(parser: ArgumentParser, flag: str, read: Callable[[str], object], metavar: str, meaning: str) -> None:
    parser.add_argument(flag, action="append", type=read, metavar=metavar, default=None, help=f"{meaning}; repeatable")


def given_rules(args: Namespace, limits_now: Mapping[str, int], budgets_now: Sequence[BudgetInfo] = ()) -> tuple[Rules, tuple[str, ...]]:
    """What the flags ask for, and the names of the rules they touch; a touched rule that is absent is cleared.

    Limits are one rule to the control plane, and so are budgets: those that no flag names are carried over from what is now.
    """
    rules, touched = given_limits(args, limits_now)
    if gives_budgets(args):
        touched.append("budgets")
        rules["budgets"] = given_budgets(args, budgets_now)
    for name, told in (("directives", args.directive), ("require_directives", args.require_directive), ("models", args.model)):
        if told is not None:
            touched.append(name)
            rules[name] = [one for one in told if one is not None]
    if args.require_pricing is not ...:
        touched.append("require_pricing")
        rules["require_pricing"] = args.require_pricing
    if args.tag is not None:
        touched.append("tags")
        rules["tags"] = _tags([one for one in args.tag if one is not None])
    if args.expires is not ...:
        touched.append("expires_at_ms")
        rules["expires_at_ms"] = args.expires
    return {name: value for name, value in rules.items() if value not in (None, [], {})}, tuple(touched)


def _tags(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    found = dict(given)
    if len(found) < len(given):
        raise WrongUsage("--tag: a tag was given twice; give each name once")
    return found


def key_row(info: KeyInfo) -> dict[str, object]:
    """A key by its column names, without its secret."""
    return {
        "public_id": info.public_id,
        "tenant": info.tenant,
        "state": info.state,
        **{name: info.limits.get(name) for name in LIMITS},
        "priority": info.priority,
        **budget_fields(info.budgets),
        "directives": list(info.directives),
        "require_directives": list(info.require_directives),
        "models": list(info.models),
        "require_pricing": info.require_pricing,
        "tags": dict(info.tags),
        "created_at": iso(info.created_at_ms),
        "expires_at": iso(info.expires_at_ms),
        "revoked_at": iso(info.revoked_at_ms),
        "author": info.author,
        "access_version": info.access_version,
    }
