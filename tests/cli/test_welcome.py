"""What a newcomer reads when everything is ready."""

from __future__ import annotations

import json
import shlex

from n4n.catalogs import builtin_document, sim_document
from n4n.cli.welcome import curl, example_model, welcome
from n4n.core.document import parse_document

SIM = parse_document(sim_document({"sim-east": 1, "sim-west": 2, "sim-eu": 3}))[0]


def test_the_curl_line_is_one_line_that_a_shell_reads_as_meant() -> None:
    words = shlex.split(curl("http://127.0.0.1:8080/v1", "sk-n4n-a-b", "gpt-4o"))

    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert "Authorization: Bearer sk-n4n-a-b" in words
    assert json.loads(words[-1])["model"] == "gpt-4o"


def test_the_example_is_the_cheapest_model_that_would_answer() -> None:
    assert example_model(SIM, {}, {"openai"}) == "gpt-4o-mini"
    cheapest = {name: "draining" for name in SIM["endpoints"] if name.endswith("gpt-4o-mini")}
    assert example_model(SIM, cheapest, {"openai"}) == "llama-3.3-70b-instruct"


def test_a_dialect_that_nobody_speaks_is_no_example() -> None:
    assert example_model(SIM, {}, {"bedrock"}) is None


def test_without_any_key_the_remedy_is_named() -> None:
    document, _ = builtin_document({})
    model = example_model(parse_document(document)[0], {}, {"openai"})

    text = welcome("http://127.0.0.1:8080/v1", "sk-n4n-a-b", model, 1.0)

    assert "set OPENAI_API_KEY" in text
    assert "--sim" in text
    assert "curl" not in text
