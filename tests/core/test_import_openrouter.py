"""OpenRouter's list of models as a catalog."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from n4n.catalogs.openrouter import from_model_list, is_model_list
from n4n.core.document import Document, parse_document


def imported(*entries: object) -> tuple[Document, list[str]]:
    document, notes = from_model_list({"data": list(entries)})
    assert parse_document(document)[1] == []
    return document, notes


SONNET: dict[str, object] = {
    "id": "anthropic/claude-sonnet-4.5",
    "context_length": 1_000_000,
    "architecture": {"input_modalities": ["text", "image", "file", "video"], "output_modalities": ["text"]},
    "pricing": {
        "prompt": "0.000003",
        "completion": "0.000015",
        "request": "0",
        "input_cache_read": "0.0000003",
        "input_cache_write": "0.00000375",
    },
    "top_provider": {"context_length": 200_000, "max_completion_tokens": 64_000},
    "supported_parameters": [
        "tools",
        "tool_choice",
        "response_format",
        "structured_outputs",
        "reasoning",
        "temperature",
        "stop",
        "unheard_of",
    ],
}


def test_a_model_of_openrouter_is_an_endpoint_there() -> None:
    document, notes = imported(SONNET)

    assert notes == []
    assert document["providers"] == {"openrouter": {"dialect": "openai", "base_url": "https://openrouter.ai/api/v1"}}
    assert document["accounts"] == {"openrouter-main": {"provider": "openrouter", "credential": "env:OPENROUTER_API_KEY"}}
    assert document["models"] == {
        "claude-sonnet-4.5": {"aliases": ["anthropic/claude-sonnet-4.5"], "context_window": 200_000, "max_output_tokens": 64_000}
    }
    (endpoint,) = document["endpoints"].values()
    assert list(document["endpoints"]) == ["openrouter-claude-sonnet-4.5"]
    assert endpoint["upstream_model"] == "anthropic/claude-sonnet-4.5"
    assert endpoint["price"] == {"input_per_1m": "3", "output_per_1m": "15", "cached_input_per_1m": "0.3", "cache_write_per_1m": "3.75"}
    assert endpoint["supports"] == [
        "tools", "tool_choice", "forced_tool_choice", "json_object", "json_schema", "reasoning", "stop", "sampling_params",
        "vision", "pdf_input", "prompt_caching", "stream_options",
    ]  # fmt: skip


def test_names_that_two_vendors_share_keep_the_vendor() -> None:
    document, _ = imported({"id": "a/m"}, {"id": "b/m"}, {"id": "a/n:free"}, {"id": "plain"})

    assert {name: model.get("aliases") for name, model in document["models"].items()} == {
        "a-m": ["a/m"], "b-m": ["b/m"], "n-free": ["n:free", "a/n:free"], "plain": None,
    }  # fmt: skip
    assert [endpoint["upstream_model"] for endpoint in document["endpoints"].values()] == ["a/m", "b/m", "a/n:free", "plain"]


def test_what_is_lost_is_told() -> None:
    document, notes = imported(
        {"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}},
        {**SONNET, "id": "x/images", "pricing": {"prompt": "0.1", "completion": "0.1", "image": "0.02"}},
        {"id": "x/painter", "architecture": {"output_modalities": ["image"]}},
        {"id": "odd name", "pricing": {"prompt": "0", "completion": "0"}},
        {"name": "no id"},
        7,
    )

    assert notes == [
        "model 'openrouter/auto' has no price: what it costs depends on where it is sent",
        "model 'odd name' is now odd-name: its old name cannot be one here",
        "models billed for more than tokens (requests, images, searches), of which the rest has no price here: 1",
        "models left out, for they write no text: 1",
        "entries left out, for they have no id: 1",
    ]
    assert set(document["models"]) == {"auto", "images", "odd-name"}
    assert "supports" not in document["endpoints"]["openrouter-auto"]


def test_an_alias_that_is_taken_is_told() -> None:
    document, notes = imported(
        {"id": "a/b", "pricing": {"prompt": "0", "completion": "0"}}, {"id": "tier/x", "pricing": {"prompt": "0", "completion": "0"}}
    )

    assert notes == ["model 'tier/x' is only known as x"]
    assert document["models"]["x"] == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**12) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["prompt", "completion", "context_length"]), inner, max_size=2)
    ),
)
NAMES = st.sampled_from(["a/b", "c/b", "tier/x", "x y", "", "/"])


@given(st.lists(st.fixed_dictionaries({"id": NAMES}, optional={name: JSON for name in SONNET if name != "id"}) | JSON, max_size=4))
def test_whatever_a_list_holds_the_catalog_is_valid(entries: list[object]) -> None:
    imported(*entries)


def test_a_list_is_known_by_its_shape() -> None:
    others: list[object] = [{"data": 5}, {}, [], None]

    assert is_model_list({"data": []})
    assert not any(map(is_model_list, others))
