"""Limits and the usual priority of a key or a tenant, as flags say them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping

from n4n.cli import values

LIMITS = {
    "rpm": "requests per minute",
    "tpm": "tokens per minute",
    "rpd": "requests per day",
    "tpd": "tokens per day",
    "burst": "requests at once, instead of a minute's",
    "concurrency": "requests running at the same time",
    "streams": "streams running at the same time",
}
Reader = Callable[[Callable[[str], object]], Callable[[str], object]]


def offer_limits(parser: ArgumentParser, reader: Reader, also: str) -> None:
    """Adds the flags; `reader` makes `none` take a rule away where there is one, and `also` says so."""
    for name, meaning in LIMITS.items():
        parser.add_argument(f"--{name}", type=reader(values.count), metavar="N", default=..., help=f"{meaning}{also}")
    said = "of requests that name none: interactive, background or best_effort"
    parser.add_argument("--priority", type=reader(values.priority), metavar="PRIORITY", default=..., help=said)


def given_limits(args: Namespace, now: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The rules that flags ask for, and the names of those they touch. Limits are one rule: what no flag names is carried over."""
    rules: dict[str, object] = {}
    touched: list[str] = []
    limits = {name: getattr(args, name) for name in LIMITS if getattr(args, name) is not ...}
    if limits:
        touched.append("limits")
        rules["limits"] = {name: value for name, value in {**now, **limits}.items() if value is not None}
    if args.priority is not ...:
        touched.append("priority")
        rules["priority"] = args.priority
    return rules, touched
