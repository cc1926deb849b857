"""`n4n catalog import`: a catalog document made of what another gateway was told, ready to be looked at and applied."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping

from n4n.catalogs.litellm_config import from_config, is_config
from n4n.catalogs.litellm_prices import from_price_map, is_price_map
from n4n.catalogs.openrouter import from_model_list, is_model_list
from n4n.cli.documents import read_document, readable, to_yaml
from n4n.cli.output import Refused, note, print_json
from n4n.cli.parser import Commands, Parser, example
from n4n.core.document import Document

Imported = tuple[Document, list[str]]


def add(group: Commands) -> None:
    """Adds the command to the group `catalog`."""
    sources = group.group(
        "import",
        about="print a catalog made of another gateway's configuration",
        epilog=example("n4n catalog import litellm config.yaml > catalog.yaml"),
    )
    litellm = sources.add(
        "litellm",
        about="read a LiteLLM proxy's config, or its price map",
        epilog=example(
            "n4n catalog import litellm config.yaml > catalog.yaml", "n4n catalog import litellm model_prices_and_context_window.json"
        ),
        more="What cannot be carried over is told on standard error, and why. References to os.environ/ stay names of variables.",
    )
    _offer(litellm, run_litellm)
    openrouter = sources.add(
        "openrouter",
        about="read OpenRouter's list of models",
        epilog=example("curl -s https://openrouter.ai/api/v1/models | n4n catalog import openrouter - > catalog.yaml"),
    )
    _offer(openrouter, run_openrouter)


def _offer(parser: Parser, run: Callable[[Namespace], int]) -> None:
    parser.add_argument("file", metavar="FILE", help="YAML or JSON; - reads standard input")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="the format (default yaml)")
    parser.set_defaults(run=run)


def run_litellm(args: Namespace) -> int:
    """`n4n catalog import litellm`"""
    raw = read_document(args.file, "FILE")
    if is_config(raw):
        return _show(from_config(raw, os.environ), args.output)
    if is_price_map(raw):
        return _show(from_price_map(raw, os.environ), args.output)
    raise Refused(f"{args.file} is no LiteLLM config, which has a model_list, and no price map, whose entries have a litellm_provider")


def run_openrouter(args: Namespace) -> int:
    """`n4n catalog import openrouter`"""
    raw = read_document(args.file, "FILE")
    if not is_model_list(raw):
        raise Refused(f"{args.file} is no list of OpenRouter's models: save what https://openrouter.ai/api/v1/models answers")
    return _show(from_model_list(raw), args.output)


def _show(imported: Imported, output: str) -> int:
    document, notes = imported
    for line in notes:
        note(f"n4n: {''.join(c if c.isprintable() else ' ' for c in line)}")
    if not document["endpoints"]:
        raise Refused("nothing could be carried over: no endpoint is left")
    shown: Mapping[str, object] = document
    if output == "json":
        print_json(readable(shown))
    else:
        sys.stdout.write(to_yaml(shown))
    return 0
