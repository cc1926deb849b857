"""`n4n catalog import`: a document on standard output that can be applied, what was lost on standard error, and a word for what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from n4n.cli.__main__ import main
from n4n.core.document import parse_document

CONFIG = """
model_list:
  - model_name: gpt-4o
    litellm_params: {model: azure/our-gpt, api_base: os.environ/AZURE_BASE, api_key: os.environ/AZURE_KEY, rpm: 60}
    model_info: {base_model: azure/gpt-4o}
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: sk-a-real-key}
  - model_name: claude
    litellm_params: {model: anthropic/claude-sonnet-4-5}
router_settings:
  fallbacks: [{gpt-4o: [claude]}]
  num_retries: 2
general_settings: {master_key: sk-1234}
"""
PRICES = {"gpt-x": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}}
MODELS = {"data": [{"id": "a/b", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}]}


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_litellm_user_moves_with_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_BASE", "https://r.openai.azure.com")

    assert main(["catalog", "import", "litellm", written(tmp_path, "config.yaml", CONFIG)]) == 0

    out, err = capsys.readouterr()
    document, problems = parse_document(yaml.safe_load(out))
    assert problems == []
    assert set(document["endpoints"]) == {"azure-gpt-4o", "openai-gpt-4o", "anthropic-claude"}
    assert document["tiers"]["gpt-4o"] == {"chain": ["gpt-4o", "claude"]}
    assert document["endpoints"]["azure-gpt-4o"]["price"] == {"input_per_1m": "2.5", "output_per_1m": "10", "cached_input_per_1m": "1.25"}
    assert "sk-" not in out + err
    assert all(line.startswith("n4n: ") for line in err.splitlines())
    assert "put it into the environment variable OPENAI_API_KEY_1" in err and "general_settings.master_key was left out" in err
    assert main(["catalog", "validate", "-f", written(tmp_path, "catalog.yaml", out)]) == 0


def test_a_price_map_and_a_list_of_models_are_catalogs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source, content in (("litellm", PRICES), ("openrouter", MODELS)):
        assert main(["catalog", "import", source, written(tmp_path, "list.json", json.dumps(content)), "-o", "json"]) == 0
        (endpoint,) = json.loads(capsys.readouterr().out)["endpoints"].values()
        assert endpoint["price"] == {"input_per_1m": 1, "output_per_1m": 2}


@pytest.mark.parametrize(
    ("source", "content", "words"),
    [
        ("litellm", "{}", "is no LiteLLM config"),
        ("litellm", '{"model_list": []}', "nothing could be carried over"),
        ("litellm", "model_list: [", "line 1"),
        ("openrouter", '{"model_list": []}', "is no list of OpenRouter's models"),
        ("openrouter", '{"data": []}', "nothing could be carried over"),
    ],
)
def test_what_is_none_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, content: str, words: str
) -> None:
    assert main(["catalog", "import", source, written(tmp_path, "file.yaml", content)]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert words in err and len(err.splitlines()) == 1


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["catalog", "import"], ["catalog", "import", "portkey", "x"], ["catalog", "import", "litellm"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
