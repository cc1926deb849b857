"""What a newcomer reads when everything is ready."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from n4n.catalogs import builtin_document, sim_document
from n4n.cli.welcome import World, curl, trial, welcome
from n4n.core.document import Document, parse_document

SIM = parse_document(sim_document({"sim-east": 1, "sim-west": 2, "sim-eu": 3}))[0]


def world(
    states: Mapping[str, str] | None = None,
    dialects: tuple[str, ...] = ("openai",),
    environ: Mapping[str, str] | None = None,
    listens: Callable[[int], bool] = lambda _: True,
) -> World:
    """One in which everything simulated can answer, unless told."""
    return World(states or {}, dialects, {"N4N_SIM_KEY": "sim"} if environ is None else environ, listens)


def builtin(**environ: str) -> Document:
    """The built-in catalog in normal form."""
    return parse_document(builtin_document(environ)[0])[0]


def test_the_curl_line_is_one_line_that_a_shell_reads_as_meant() -> None:
    words = shlex.split(curl("http://127.0.0.1:8080/v1", "sk-n4n-a-b", "gpt-4o"))

    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert "Authorization: Bearer sk-n4n-a-b" in words
    assert json.loads(words[-1])["model"] == "gpt-4o"


def test_the_example_is_the_cheapest_model_that_would_answer() -> None:
    assert trial(SIM, world()) == ("gpt-4o-mini", "")
    cheapest = {name: "draining" for name in SIM["endpoints"] if name.endswith("gpt-4o-mini")}
    assert trial(SIM, world(cheapest))[0] == "gpt-oss-120b"


def test_what_only_makes_embeddings_is_no_example() -> None:
    others = {name: "draining" for name in SIM["endpoints"] if not name.endswith("text-embedding-3-small")}

    model, why = trial(SIM, world(others))

    assert model is None
    assert "is draining" in why


def test_a_dialect_that_nobody_speaks_is_no_example() -> None:
    model, why = trial(SIM, world(dialects=("bedrock",)))

    assert model is None
    assert "sim-west speaks openai, which this version does not" in why


def test_simulated_providers_that_do_not_run_are_no_example() -> None:
    model, why = trial(SIM, world(listens=lambda _: False))

    assert model is None
    assert "sim-west does not answer on 127.0.0.1:2" in why
    assert "\n" not in why
    assert trial(SIM, world(listens=lambda port: port == 3))[0] == "gpt-4o-mini"


def test_an_account_without_its_key_is_no_example() -> None:
    openai = builtin(OPENAI_API_KEY="sk-x")

    assert trial(openai, world(environ={"OPENAI_API_KEY": "sk-x"}))[0] is not None
    model, why = trial(openai, world(environ={}))
    assert model is None
    assert "OPENAI_API_KEY is not set" in why


def test_without_any_key_the_remedy_is_named() -> None:
    model, why = trial(builtin(), world())

    text = welcome("http://127.0.0.1:8080/v1", "sk-n4n-a-b", model, why, 1.0)

    assert "set OPENAI_API_KEY" in text
    assert "--sim" in text
    assert "curl" not in text
