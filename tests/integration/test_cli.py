"""The command against a running n4n, as an operator types it: what it prints, what it exits with, what it calls things."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.machine import Machine, clean_environ, run_n4n, wait_until

Rows = list[dict[str, object]]
LONG_LIST = "models:\n" + "".join(f"  m{n}: {{nonsense: {n}}}\n" for n in range(300))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("cli") / "data")
    machine.start()
    yield machine
    machine.end()


def told(machine: Machine, *arguments: str, stdin: str = "", noted: str = "") -> object:
    """The JSON of a command that succeeds and says no more than `noted` beside it."""
    done = machine.n4n(*arguments, told=stdin)
    assert (done.returncode, done.stderr) == (0, noted)
    return json.loads(done.stdout)


def rows(machine: Machine, *arguments: str) -> Rows:
    """The JSON list of a command that succeeds."""
    return cast(Rows, told(machine, *arguments, "-o", "json"))


def refused(machine: Machine, *arguments: str, stdin: str = "") -> list[str]:
    """The lines on standard error of a command that is refused."""
    done = machine.n4n(*arguments, told=stdin)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert all(line.startswith("n4n: ") for line in lines)
    return [line.removeprefix("n4n: ") for line in lines]


def head(machine: Machine) -> int:
    return cast(int, rows(machine, "catalog", "history")[0]["version"])


def priced(machine: Machine, price: float) -> str:
    """The catalog with one price changed, as JSON."""
    document = json.loads(machine.n4n("catalog", "show", "-o", "json").stdout)
    document["endpoints"]["sim-eu-gpt-4o"]["price"]["output_per_1m"] = price
    return json.dumps(document)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_is_shown_makes_no_version_when_applied_again(machine: Machine, form: str) -> None:
    shown = machine.n4n("catalog", "show", "-o", form).stdout
    before = head(machine)

    assert machine.n4n("catalog", "diff", "-f", "-", told=shown).stdout == f"no difference to version {before}\n"
    assert machine.n4n("catalog", "apply", "-f", "-", told=shown).stdout == f"nothing to change: version {before} is in force\n"
    assert head(machine) == before


def test_a_price_is_changed_seen_and_rolled_back(machine: Machine) -> None:
    before = head(machine)
    dearer = priced(machine, 77.5)
    path = "endpoints.sim-eu-gpt-4o.price.output_per_1m"

    (change,) = cast(Rows, told(machine, "catalog", "diff", "-f", "-", "-o", "json", stdin=dearer))
    assert (change["path"], change["after"]) == (path, "77.5")
    assert f"{path}: {change['before']} → 77.5" in machine.n4n("catalog", "diff", "-f", "-", told=dearer).stdout
    dry = machine.n4n("catalog", "apply", "-f", "-", "--dry-run", told=dearer).stdout
    assert dry.startswith(f"would make version {before + 1}, 1 change:\n{path}: ")
    assert head(machine) == before

    done = machine.n4n("catalog", "apply", "-f", "-", "-m", "a new price", "--author", "ann", "--expect-version", str(before), told=dearer)
    assert done.stdout.startswith(f"version {before + 1} is in force, 1 change:\n{path}: ")
    newest = rows(machine, "catalog", "history")[0]
    assert (newest["author"], newest["message"], newest["changes"]) == ("ann", "a new price", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(newest["committed_at"]))

    (line,) = refused(machine, "catalog", "apply", "-f", "-", "--expect-version", str(before), stdin=priced(machine, 78))
    assert "ann" in line
    assert path in line
    assert f"not {before}" in line

    assert machine.n4n("catalog", "rollback", str(before)).returncode == 0
    assert head(machine) == before + 2
    assert machine.n4n("catalog", "show", "--version", str(before)).stdout.startswith(f"# version {before} by ")


def test_every_problem_of_a_document_is_a_line_that_begins_with_its_field(machine: Machine) -> None:
    bad = "models: {a: {context_windw: 1}, b: {context_window: -1}}\nendpoints: {x: {model: c, account: d}}\n"

    fields = [line.split(": ")[0] for line in refused(machine, "catalog", "apply", "-f", "-", stdin=bad)]

    assert fields == ["models.a.context_windw", "models.b.context_window", "endpoints.x.model", "endpoints.x.account"]
    assert [line.split(": ")[0] for line in refused(machine, "catalog", "validate", "-f", "-", stdin=bad)] == fields


def test_validate_needs_nobody_to_ask(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("models: {a: {context_windw: 1}}")
    (tmp_path / "good.yaml").write_text("models: {a: {}}")

    bad, good = (run_n4n("catalog", "validate", "-o", "json", "-f", str(tmp_path / f"{name}.yaml")) for name in ("bad", "good"))

    assert (bad.returncode, json.loads(bad.stdout)[0]["field"]) == (1, "models.a.context_windw")
    assert (good.returncode, good.stdout) == (0, "[]\n")


@pytest.mark.parametrize("verb", ["apply", "diff", "validate"])
def test_no_problem_is_left_out_however_many_there_are(machine: Machine, verb: str) -> None:
    assert len(refused(machine, "catalog", verb, "-f", "-", stdin=LONG_LIST)) == 300


def test_a_catalog_that_shrinks_needs_a_deliberate_yes(machine: Machine) -> None:
    lines = refused(machine, "catalog", "apply", "-f", "-", stdin="{}")

    assert any(line.startswith("endpoints: ") and "--allow-shrink" in line for line in lines)


def test_an_endpoint_is_drained_and_enabled(machine: Machine) -> None:
    name = "sim-west-gpt-4o-mini"

    def state() -> object:
        return {row["endpoint"]: row["state"] for row in rows(machine, "endpoint", "list")}[name]

    assert state() == "active"
    assert machine.n4n("endpoint", "drain", name).returncode == 0
    assert state() == "draining"
    assert f"# endpoint {name} is draining" in machine.n4n("catalog", "show").stdout
    assert machine.n4n("endpoint", "disable", name, "-m", "it lies").returncode == 0
    assert state() == "disabled"
    wait_until(lambda: "disabled" in machine.n4n("explain", "--model", "gpt-4o-mini").stdout)
    assert machine.n4n("endpoint", "enable", name).returncode == 0
    assert state() == "active"
    (line,) = refused(machine, "endpoint", "drain", "sim-west-gpt-4o-min")
    assert f"did you mean {name}" in line


def test_a_key_lives_from_create_to_revoke(machine: Machine) -> None:
    rules = ["--rpm", "10", "--tpm", "200k", "--budget-usd", "50/month", "--directive", "region=eu", "--require-directive", "region"]
    create = ["key", "create", "--tenant", "acme", *rules, "--model", "gpt-4o", "-o", "json"]
    made = cast(dict[str, object], told(machine, *create))
    public_id, key = str(made["public_id"]), str(made["api_key"])
    assert key.startswith(f"sk-n4n-{public_id}-")
    assert (made["rpm"], made["tpm"], made["budget_usd"], made["budget_window"]) == (10, 200_000, 50, "month")
    assert (made["directives"], made["require_directives"], made["models"]) == (["region=eu"], ["region"], ["gpt-4o"])
    assert key.removeprefix(f"sk-n4n-{public_id}-") not in machine.n4n("key", "show", public_id).stdout

    update = ["key", "update", public_id, "--rpm", "none", "--model", "none", "--expires", "30d", "-o", "json"]
    changed = cast(dict[str, object], told(machine, *update))
    assert (changed["rpm"], changed["tpm"], changed["models"], changed["budget_usd"]) == (None, 200_000, [], 50)
    assert changed["expires_at"] is not None

    rotated = cast(dict[str, object], told(machine, "key", "rotate", public_id, "--grace", "1h", "-o", "json"))
    assert rotated["public_id"] == public_id
    assert rotated["api_key"] != key
    assert public_id in [row["public_id"] for row in rows(machine, "key", "list", "--tenant", "acme")]
    assert cast(dict[str, object], told(machine, "key", "revoke", public_id, "-o", "json"))["state"] == "revoked"
    assert public_id not in [row["public_id"] for row in rows(machine, "key", "list")]
    assert public_id in [row["public_id"] for row in rows(machine, "key", "list", "--all")]
    (line,) = refused(machine, "key", "update", public_id, "--rpm", "5")
    assert "revoked" in line


def test_budgets_of_keys_and_tenants_are_given_shown_and_taken_away(machine: Machine) -> None:
    budgets = ["--budget-usd", "50/month", "--budget-usd", "5/24h/soft", "--budget-tokens", "1m/day"]
    made = cast(dict[str, object], told(machine, "key", "create", "--tenant", "gamma", *budgets, "-o", "json"))
    public_id = str(made["public_id"])
    assert made["budgets"] == ["50 USD/month", "5 USD/24h (soft)", "1000000 tokens/day"]
    shown = cast(dict[str, Rows], told(machine, "key", "show", public_id, "-o", "json"))
    assert [(row["budget"], row["kind"], row["spent"], row["limit"], row["level"]) for row in shown["standings"]] == [
        ("usd/month", "hard", 0, 50, 0), ("usd/24h", "soft", 0, 5, 0), ("tokens/day", "hard", 0, 1_000_000, 0),
    ]  # fmt: skip
    assert shown["standings"][0]["resets_at"] and shown["standings"][1]["resets_at"] is None

    changed = cast(dict[str, object], told(machine, "key", "update", public_id, "--budget-usd", "9/month", "--budget-soft", "-o", "json"))
    assert changed["budgets"] == ["9 USD/month (soft)", "1000000 tokens/day"]
    assert "usd/month" in machine.n4n("key", "show", public_id).stdout
    cleared = cast(dict[str, object], told(machine, "key", "update", public_id, "--budget-usd", "none", "-o", "json"))
    assert (cleared["budgets"], cleared["budget_usd"], cleared["budget_tokens"]) == (["1000000 tokens/day"], None, 1_000_000)

    cap = ["--provider-cap", "sim-east=600/month"]
    tenant = cast(dict[str, object], told(machine, "tenant", "update", "gamma", "--budget-usd", "1000/month", *cap, "-o", "json"))
    assert (tenant["budgets"], tenant["provider_caps"], tenant["keys"]) == (["1000 USD/month"], ["sim-east=600 USD/month"], 1)
    assert {row["tenant"] for row in rows(machine, "tenant", "list")} >= {"default", "gamma"}
    listed = rows(machine, "budget", "list", "--tenant", "gamma")
    assert [(row["key"], row["provider"], row["budget"]) for row in listed] == [
        (None, None, "usd/month"), (None, "sim-east", "usd/month"), (public_id, None, "tokens/day"),
    ]  # fmt: skip
    for word in ("on", "off"):
        wanted = cast(dict[str, object], told(machine, "tenant", "update", "gamma", "--capture-content", word, "-o", "json"))
        assert wanted["capture_content"] is (word == "on")
    limited = cast(dict[str, object], told(machine, "tenant", "update", "gamma", "--rpm", "6k", "--priority", "background", "-o", "json"))
    assert (limited["rpm"], limited["tpm"], limited["priority"], limited["budgets"]) == (6000, None, "background", ["1000 USD/month"])
    limited = cast(dict[str, object], told(machine, "tenant", "update", "gamma", "--tpd", "1m", "--priority", "none", "-o", "json"))
    assert (limited["rpm"], limited["tpd"], limited["priority"]) == (6000, 1_000_000, None)
    taken = cast(dict[str, object], told(machine, "tenant", "update", "gamma", "--provider-cap", "sim-east=none", "-o", "json"))
    assert (taken["budgets"], taken["provider_caps"]) == (["1000 USD/month"], [])
    assert "resets" in machine.n4n("tenant", "show", "gamma").stdout.lower()


def test_a_tenant_that_is_not_there_is_one_line(machine: Machine) -> None:
    assert refused(machine, "tenant", "show", "nobody") == ["name: there is no tenant nobody; n4n tenant list shows them"]


def test_a_cap_on_a_provider_that_the_catalog_does_not_have_is_told_of(machine: Machine) -> None:
    done = machine.n4n("tenant", "update", "epsilon", "--provider-cap", "sim-eats=5/day")

    assert (done.returncode, done.stderr) == (
        0,
        "n4n: --provider-cap: the catalog has no provider 'sim-eats' now (did you mean sim-east?)\n",
    )
    assert machine.n4n("tenant", "update", "epsilon", "--provider-cap", "sim-eats=none").stderr == ""


def test_a_bench_that_nobody_answers_fails(machine: Machine) -> None:
    wrong = machine.runtime["api_key"][:-3] + "AAA"
    done = machine.n4n("bench", "--n", "1", "--model", "gpt-4o", "--key", wrong, "-o", "json")

    assert (done.returncode, json.loads(done.stdout)[0]["error"]) == (1, "invalid_api_key")
    assert done.stderr.splitlines()[-1].startswith("n4n: no request was answered, most often for invalid_api_key")
    assert wrong not in done.stderr


def test_an_edited_limit_holds_within_a_second_and_resets_nothing(machine: Machine) -> None:
    made = cast(dict[str, str], told(machine, "key", "create", "--tenant", "delta", "--rpd", "1000", "-o", "json"))
    statuses: list[int] = []

    def chat() -> int:
        body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "ping"}], "max_tokens": 5}).encode()
        headers = {"authorization": f"Bearer {made['api_key']}", "content-type": "application/json"}
        request = urllib.request.Request(f"{machine.runtime['base_url']}/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                statuses.append(answer.status)
        except urllib.error.HTTPError as refused:
            statuses.append(refused.code)
        return statuses[-1]

    def edited(limit: str, until: int) -> None:
        assert machine.n4n("key", "update", made["public_id"], "--rpd", limit).returncode == 0
        began = time.monotonic()
        wait_until(lambda: chat() == until)
        assert time.monotonic() - began < 2, "a second, on a machine that does other things too"

    wait_until(lambda: chat() == 200)
    chat()
    edited("2", 429)
    edited("60", 200)
    wait_until(lambda: chat() == 429)
    assert 60 <= statuses.count(200) <= 61, "what was used before counts"


def test_a_key_for_a_model_that_the_catalog_does_not_have_is_made_with_a_warning(machine: Machine) -> None:
    warned = "n4n: --model: the catalog has no model or alias 'gpt-4p' now (did you mean gpt-4o?)\n"
    create = ["key", "create", "--tenant", "beta", "--model", "gpt-4o", "--model", "gpt-4p", "-o", "json"]

    made = cast(dict[str, object], told(machine, *create, noted=warned))

    assert made["models"] == ["gpt-4o", "gpt-4p"]


def test_explain_tells_the_order_and_what_removed_the_others(machine: Machine) -> None:
    body = cast(dict[str, Rows], told(machine, "explain", "--model", "gpt-4o", "--directive", "region=eu", "-o", "json"))
    kept = {row["endpoint"]: (row["kept"], row["reason"]) for row in body["candidates"]}
    assert kept["sim-eu-gpt-4o"] == (True, None)
    assert kept["sim-east-gpt-4o"] == (False, "region=eu")

    table = machine.n4n("explain", "--model", "gpt-4o", "--directive", "region=eu").stdout.splitlines()
    assert table[0].startswith("gpt-4o: 1 of 3 candidates remain, catalog version ")
    assert table[4].split()[:2] == ["1", "sim-eu-gpt-4o"]
    drawn = "ranks are drawn anew for each request, by weight, unless "
    assert drawn in machine.n4n("explain", "--model", "gpt-4o").stdout
    assert drawn not in machine.n4n("explain", "--model", "gpt-4o", "--directive", "sort=cost").stdout

    assert refused(machine, "explain", "--model", "gpt-4p")[0].startswith("model_not_found: ")
    assert refused(machine, "explain", "--model", "gpt-4o", "--key", f"sk-n4n-{'a' * 12}-{'b' * 43}")[0].startswith("invalid_api_key: ")


def test_explain_asks_a_named_router_and_says_what_to_name(machine: Machine, tmp_path: Path) -> None:
    elsewhere = {"N4N_DATA_DIR": str(tmp_path)}
    key, base_url = str(machine.runtime["api_key"]), str(machine.runtime["base_url"])
    question = ["explain", "--model", "gpt-4o"]

    named = run_n4n(*question, "--key", key, "--base-url", base_url, environ=clean_environ(**elsewhere))
    by_port = run_n4n(*question, "--key", key, environ=clean_environ(**elsewhere, N4N_PORT=base_url.split(":")[2].removesuffix("/v1")))
    keyless = run_n4n(*question, "--base-url", "http://127.0.0.1:9/v1", environ=clean_environ(N4N_DATA_DIR=str(machine.data_dir)))
    lost = run_n4n(*question, environ=clean_environ(**elsewhere))

    assert "sim-eu-gpt-4o" in named.stdout and "sim-eu-gpt-4o" in by_port.stdout
    assert keyless.stderr.startswith("n4n: --key is missing, and no runtime.json tells one for http://127.0.0.1:9/v1: ")
    (line,) = lost.stderr.splitlines()
    assert all(word in line for word in ("--key", "--base-url", "N4N_HOST", "N4N_PORT"))


def test_what_a_first_version_added_is_counted_not_listed(machine: Machine) -> None:
    comments = [line for line in machine.n4n("catalog", "show", "--version", "1").stdout.splitlines() if line.startswith("#")]

    assert "# endpoints: 25 additions" in comments
    assert len(comments) <= 12


def test_the_built_in_catalog_can_be_printed_and_is_what_up_would_apply(tmp_path: Path) -> None:
    (tmp_path / "catalog.yaml").write_text(run_n4n("catalog", "builtin", environ=clean_environ(OPENAI_API_KEY="sk-x")).stdout)

    assert "20 endpoints" in run_n4n("catalog", "validate", "-f", str(tmp_path / "catalog.yaml")).stdout
    assert "sk-x" not in (tmp_path / "catalog.yaml").read_text()
    without = run_n4n("catalog", "builtin", environ=clean_environ())
    assert (without.returncode, without.stdout) == (1, "")
    assert "set OPENAI_API_KEY" in without.stderr


def test_status_and_nodes_tell_versions_and_stores(machine: Machine) -> None:
    status = cast(dict[str, object], told(machine, "status", "--json"))
    assert (status["database"], status["redis"], status["base_url"]) == ("ok", "ok", machine.runtime["base_url"])
    (node,) = (one for one in rows(machine, "nodes") if one["role"] != "prober")  # which joins in its own time
    assert node["role"] == "data-plane"
    assert node["connected"] is True
    assert {"node", "applied_version", "head_version", "access_version", "lag_ms", "last_ack", "last_nack", "last_seen"} <= set(node)
    assert "NODE" in machine.n4n("nodes").stdout


def test_the_instance_is_found_by_variable_by_folder_or_by_address(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    runtime = machine.runtime
    address = {"N4N_ADMIN_URL": str(runtime["admin_url"]), "N4N_ADMIN_TOKEN": str(runtime["admin_token"])}

    for environ in ({"N4N_DATA_DIR": str(machine.data_dir)}, address, {**address, "N4N_DATA_DIR": "/nowhere"}):
        assert run_n4n("nodes", environ=clean_environ(**environ)).returncode == 0
    wrong = run_n4n("nodes", environ=clean_environ(**address | {"N4N_ADMIN_TOKEN": "wrong"}))
    assert wrong.returncode == 1
    assert "N4N_ADMIN_TOKEN" in wrong.stderr


def test_nobody_there_is_one_line_with_the_remedy(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")

    for environ in ({"N4N_DATA_DIR": str(empty)}, {"N4N_ADMIN_URL": "127.0.0.1:9"}):
        for command in (["nodes"], ["catalog", "history"], ["key", "list"]):
            done = run_n4n(*command, environ=clean_environ(**environ))
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert "n4n up" in line


def test_a_file_that_is_not_there_is_one_line(machine: Machine) -> None:
    (line,) = refused(machine, "catalog", "apply", "-f", "nowhere.yaml")

    assert line.startswith("-f nowhere.yaml: no such file")


def test_the_audit_trail_is_read_in_pages_and_by_what_was_changed(machine: Machine) -> None:
    made = cast(dict[str, str], told(machine, "key", "create", "--tenant", "audited", "-o", "json"))["public_id"]
    rows(machine, "key", "update", made, "--budget-usd", "5/day", "--author", "zoe")
    told(machine, "key", "revoke", made, "-o", "json")

    trail = rows(machine, "audit", "--kind", "key", "--name", made)
    assert [one["action"] for one in trail] == ["revoke", "update", "create"]
    assert [one["author"] for one in rows(machine, "audit", "--kind", "budget", "--name", made)] == ["zoe"]
    newest = machine.n4n("audit", "--name", made, "--limit", "2", "-o", "json")
    assert newest.stderr == f"n4n: there may be older ones: --before {trail[1]['id']}\n"
    assert rows(machine, "audit", "--name", made, "--before", str(trail[1]["id"])) == trail[2:]
    table = machine.n4n("audit", "--name", made, "--since", "1h").stdout.splitlines()
    assert table[0].split()[:3] == ["AT", "(UTC)", "AUTHOR"] and len(table) == 4
    assert table[-1].endswith("state: active, tenant: audited"), "and not as JSON in JSON"
    assert machine.n4n("audit", "--kind", "nonsense").returncode == 2
