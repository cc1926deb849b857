"""The argument parser of every command: no abbreviations, an example in every -h, wrong usage in one line with exit status 2."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import NoReturn

from n4n.cli.output import complain

WRONG_USAGE = 2


class Parser(ArgumentParser):
    """Wrong usage in the house's manner."""

    def parse_known_args(  # type: ignore[override]  # argparse itself passes nothing but a Namespace
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """As its parent's; but a command answers for what it does not know, where argparse would let the outermost parser answer."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            also = "; write -o json" if "--json" in unknown and "-o" in self._option_string_actions else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{also}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """One line on standard error, exit status 2."""
        complain(f"{' '.join(message.removeprefix('argument ').split())}; see `{self.prog} -h`")
        sys.exit(WRONG_USAGE)


class Commands:
    """The subcommands of a parser."""

    def __init__(self, parser: Parser, *, required: bool = True) -> None:
        """`required`: the parser does nothing by itself."""
        self._action = parser.add_subparsers(metavar="COMMAND", required=required, parser_class=Parser)

    def add(self, name: str, *, about: str, epilog: str, more: str = "") -> Parser:
        """One more. `about` is its line in the list; `epilog` holds its example."""
        described = about[0].upper() + about[1:] + "." + (f" {more}" if more else "")
        return self._action.add_parser(
            name,
            help=about,
            description=described,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=RawDescriptionHelpFormatter,
        )

    def group(self, name: str, *, about: str, epilog: str) -> Commands:
        """One that has subcommands itself."""
        return Commands(self.add(name, about=about, epilog=epilog))


def example(*lines: str) -> str:
    """The end of a help text."""
    return "\n".join([f"example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])
