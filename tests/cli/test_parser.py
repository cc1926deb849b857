"""The command line itself: help with an example everywhere, wrong usage in one line with exit status 2, and a light start."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator

import pytest

from n4n.cli.__main__ import main, parser
from n4n.cli.parser import Parser


def every(below: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield below
    for action in below._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from every(inner)


PARSERS = {found.prog: found for found in every(parser())}


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize("prog", PARSERS)
def test_every_help_has_an_example(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*prog.split()[1:], "-h"])

    assert ended.value.code == 0
    assert "example" in capsys.readouterr().out.splitlines()[-2] or "example" in (PARSERS[prog].epilog or "")


@pytest.mark.parametrize("prog", PARSERS)
def test_an_example_is_a_command_that_can_be_typed(prog: str) -> None:
    lines = [line.strip() for line in (PARSERS[prog].epilog or "").splitlines()[1:]]

    assert lines
    for line in lines:
        words = line.split(" > ")[0].replace("OPENAI_API_KEY=… ", "").replace("'New price'", "price").split()
        if words[0] == "n4n" and "COMMAND" not in words:
            parser().parse_args(words[1:])


@pytest.mark.parametrize("prog", PARSERS)
def test_an_unknown_flag_is_wrong_usage(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "-h`" in fails([*prog.split()[1:], "--no-such-flag"], capsys)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "COMMAND"),
        (["benches"], "invalid choice: 'benches'"),
        (["catalog"], "COMMAND"),
        (["catalog", "apply"], "-f/--file"),
        (["catalog", "apply", "-f", "x", "--expect-version", "-1"], "--expect-version"),
        (["catalog", "rollback", "two"], "not a version"),
        (["catalog", "show", "-o", "table"], "-o/--output"),
        (["key", "create", "--tenant", "a b"], "--tenant"),
        (["key", "create", "--tenant", "a", "--expires", "soon"], "--expires"),
        (["key", "create", "--tenant", "a", "--budget-usd", "50"], "50/month"),
        (["key", "create", "--tenant", "a", "--directive", "regoin=eu"], "did you mean region?"),
        (["key", "create", "--tenant", "a", "--require-directive", "colour"], "--require-directive"),
        (["key", "create", "--tenant", "a", "--rpm", "0"], "--rpm"),
        (["key", "create", "--tenant", "a", "--rpm", "none"], "--rpm"),
        (["key", "rotate", "k3j9x0aa81bc", "--grace", "2027-01-01"], "--grace"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--workers", "0"], "--workers: '0' will not do: write a whole number from 1 to 100000"),
        (["data-plane", "--workers", "0"], "--workers"),
        (["catalog", "history", "--limit", "0"], "--limit"),
        (["explain", "--model", "m", "--base-url", "http://router:8080"], "http://router:8080/v1"),
        (["explain", "--model", "m", "--directive", "region"], "key=value"),
        (["explain", "--model", "m", "--key", "sk-n4n-ключ"], "--key"),
        (["data-plane", "--worker", "x"], "--worker"),
        (["key", "show", "nonsense"], "ID: must be the 12 letters and digits after sk-n4n-; n4n key list"),
        (["budget", "list", "--key", "nonsense"], "--key: must be the 12 letters and digits"),
        (["usage", "--by", "tenant,key,model,day"], "--by: 'tenant,key,model,day' names 4: write at most 3"),
        (["usage", "--only", "tennant=a"], "--only: 'tennant' is none of tenant, key, model, provider, endpoint (did you mean tenant?)"),
        (["usage", "--only", "day=2026-11-30"], "--only: 'day' is none of"),
    ],
)  # fmt: skip
def test_a_malformed_value_is_one_line_that_names_the_field(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in fails(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["key", "create", "--tenant", "a", "--budget-soft"], "n4n: --budget-soft: say which budget is soft"),
        (["key", "create", "--tenant", "a", "--budget-usd", "1/day", "--budget-usd", "2/day"], "n4n: --budget-usd: usd/day is given twice"),
        (["key", "create", "--tenant", "a", "--tag", "a=b", "--tag", "a=c"], "n4n: --tag: a tag was given twice"),
        (["key", "update", "k3j9x0aa81bc"], "n4n: name a rule to change, such as --rpm 600"),
        (["tenant", "update", "a"], "n4n: name a rule to change, such as --rpm 6000"),
        (["usage", "--since", "1h", "--until", "2h"], "n4n: --until: is not after --since"),
        (["usage", "export", "--since", "2026-11-02", "--until", "2026-11-02"], "n4n: --until: is not after --since"),
        (["usage", "rerate", "--label", "a", "--catalog-version", "1", "--since", "1h", "--until", "2h"], "n4n: --until: is not after"),
        (["audit", "--since", "1h", "--until", "2h"], "n4n: --until: is not after --since"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage_before_anybody_is_asked(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(told)
    assert err.count("\n") == 1


def test_a_whole_key_stands_for_its_public_id_and_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    whole = "sk-n4n-k3j9x0aa81bc-97OHFFmTmbboTqSx-LcnebLUPi94uTRk-CAzX6LR8Zw"

    assert parser().parse_args(["key", "show", whole]).public_id == "k3j9x0aa81bc"
    assert parser().parse_args(["key", "show", "sk-n4n-k3j9x0aa81bc"]).public_id == "k3j9x0aa81bc"
    assert "97OHFF" not in fails(["key", "show", whole + "é"], capsys)


def test_an_unknown_flag_names_the_help_of_its_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(["nodes", "--json"], capsys) == "n4n: unrecognized arguments: --json; write -o json; see `n4n nodes -h`"
    assert fails(["catalog", "history", "--jsn"], capsys).endswith("see `n4n catalog history -h`")
    assert fails(["--jsn", "nodes"], capsys).endswith("see `n4n -h`")


def test_flags_are_not_guessed_from_their_beginnings(capsys: pytest.CaptureFixture[str]) -> None:
    fails(["up", "--adm", "1"], capsys)


def test_the_parser_is_one_kind_throughout() -> None:
    assert all(isinstance(found, Parser) for found in PARSERS.values())


def test_help_loads_nothing_heavy() -> None:
    heavy = ["grpc", "google.protobuf", "aiohttp", "sqlalchemy", "redis", "asyncio", "llmock", "prometheus_client"]
    program = f"import sys\nimport n4n.cli.__main__ as c\nc.parser()\nprint([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_what_up_runs_on_never_imports_grpc() -> None:
    program = "import sys\nimport n4n.cli.machine\nprint([name for name in ('grpc', 'google.protobuf') if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
