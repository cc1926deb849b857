"""What an endpoint lacks of a request, and when a request is surely too long for it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Native
from n4n.core.chat_request import read_chat
from n4n.core.dialects import Speech
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import FEATURES
from n4n.core.fitness import CONTENT, barred_kind, lacking, least_tokens, most_bytes, untaken_tools
from n4n.core.skins.completions import read_completions
from n4n.core.skins.embeddings import read_embeddings
from tests.support.endpoints import chat, endpoint

MESSAGES = Speech("anthropic", frozenset(("seed", "web_search")))


def said(text: object, **fields: object) -> ChatRequest:
    """A chat as its client writes it."""
    return read_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("used", "supports", "native", "missing"),
    [
        ({"seed"}, None, None, {"seed"}),
        ({"seed"}, {"seed"}, None, {"seed"}),  # what the words cannot say no catalog can promise
        ({"vision", "tools"}, {"tools"}, None, {"vision"}),
        ({"vision", "seed"}, {"seed"}, None, {"vision", "seed"}),
        ({"web_search"}, None, "anthropic", set()),  # nothing is translated
        ({"web_search"}, None, "openai_responses", {"web_search"}),
        ({"web_search", "tools"}, {"web_search"}, "anthropic", {"tools"}),
        (set(), None, None, set()),
    ],
)
def test_an_endpoint_lacks_what_its_catalog_denies_and_what_is_lost_on_the_way_into_its_words(
    used: set[str], supports: set[str] | None, native: str | None, missing: set[str]
) -> None:
    one: Endpoint = endpoint("e1", supports=None if supports is None else frozenset(supports))
    asked = chat(features=frozenset(used), native=None if native is None else Native(native, {}))

    assert lacking(asked, one, MESSAGES) == missing


def test_a_size_that_may_fit_is_eight_bytes_for_each_token_of_the_window() -> None:
    assert most_bytes(endpoint("e1", context_window=1000)) == 8000
    assert most_bytes(endpoint("e1")) is None


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("word " * 10_000, 6_000, 10_000),
        ("    if deeply:\n" * 5_000, 8_000, 15_000),
        ("漢字" * 10_000, 7_000, 20_000),
    ],
)
def test_the_least_that_a_prompt_can_count_is_below_what_tokenizers_make_of_it(text: str, least: int, most: int) -> None:
    assert least <= least_tokens(said(text)) <= most


def test_escapes_do_not_make_a_prompt_longer_than_its_characters() -> None:
    escaped = read_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": "漢字" * 10_000}]}).encode())

    assert least_tokens(escaped) <= least_tokens(said("漢字" * 10_000))


@pytest.mark.parametrize(
    "asked",
    [
        said([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}]),
        read_chat(json.dumps({"model": "m", "messages": [{"role": "assistant", "reasoning_details": ["A" * 100_000]}]}).encode()),
        ChatRequest({}, "m", body_bytes=100_000, native=Native("anthropic", {"messages": msgspec.Raw(b'[{"signature":"xyz"}]')})),
    ],
)
def test_the_size_of_pictures_and_of_sealed_reasoning_says_nothing(asked: ChatRequest) -> None:
    assert least_tokens(asked) == 0


def test_a_native_body_is_looked_at_as_the_client_wrote_it() -> None:
    fields = {"messages": msgspec.Raw(b'"' + b"\\u6f22" * 1000 + b'"')}

    assert least_tokens(ChatRequest({}, "m", body_bytes=6002, native=Native("anthropic", fields))) == (6002 - 5000) // 8


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=2000))
def test_the_least_is_never_negative_and_never_above_the_bytes(text: str) -> None:
    asked = said(text)

    assert 0 <= least_tokens(asked) <= asked.body_bytes


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("model", ["anything", "claude-sonnet-5", "mistral-large", "publishers/google/models/gemini-3-pro"])
def test_every_dialect_says_how_its_models_are_spoken_to(name: str, model: str) -> None:
    speech = DIALECTS[name].speech(model)

    assert speech is DIALECTS[name].speech(model) or speech == DIALECTS[name].speech(model)
    assert speech.cannot <= set(FEATURES) and speech.shape and CONTENT.isdisjoint(speech.cannot - {"audio_input"})


def test_vertex_speaks_to_claude_as_anthropic_does_and_to_the_others_in_their_own_words() -> None:
    vertex = DIALECTS["vertex"]

    assert vertex.speech("claude-sonnet-5@20290101") == DIALECTS["anthropic"].speech("")
    assert vertex.speech("mistral-medium-3") == DIALECTS["openai"].speech("")
    assert vertex.speech("gemini-3-pro") == DIALECTS["gemini"].speech("")


CHATTING = Speech()


@pytest.mark.parametrize(
    ("tools", "supports", "speech", "untaken"),
    [
        (("bash", "web_search"), None, MESSAGES, ()),  # nothing is translated, and nothing denied
        (("bash", "web_search"), {"tools"}, MESSAGES, ("web_search",)),
        (("bash", "web_search"), {"web_search"}, MESSAGES, ("bash", "web_search")),  # it takes no tools at all
        (("bash", "web_search"), {"tools", "web_search"}, MESSAGES, ()),
        (("bash", "web_search"), None, CHATTING, ("bash", "web_search")),
        (("bash", "web_search"), {"web_search"}, CHATTING, ("bash",)),
        (("web_search",), {"web_search"}, Speech("gemini", frozenset(("web_search",))), ("web_search",)),
    ],
)
def test_tools_of_an_api_are_taken_by_who_speaks_it_and_the_search_of_the_web_by_who_can_be_asked_for_it(
    tools: tuple[str, ...], supports: set[str] | None, speech: Speech, untaken: tuple[str, ...]
) -> None:
    one: Endpoint = endpoint("e1", supports=None if supports is None else frozenset(supports))
    asked = chat(features=frozenset(("tools", "web_search")), native=Native("anthropic", {}), native_tools=tools)

    assert untaken_tools(asked, one, speech) == untaken


def test_many_texts_to_be_embedded_may_be_longer_than_a_window() -> None:
    asked = read_embeddings(json.dumps({"model": "m", "input": ["word " * 1_000] * 2_000}).encode())

    assert least_tokens(asked) == 0


@pytest.mark.parametrize(
    ("ask", "supports", "barred"),
    [
        ("chat", None, None),
        ("chat", {"text_completions", "tools"}, None),
        ("chat", {"text_completions"}, "chat"),
        ("chat", {"embeddings"}, "chat"),
        ("texts", {"text_completions"}, None),
        ("texts", {"embeddings"}, "chat"),
        ("texts", {"tools"}, None),  # it becomes a chat there
        ("vectors", {"embeddings"}, None),
        ("vectors", {"tools"}, "embeddings"),
        ("vectors", None, "embeddings"),
    ],
)
def test_who_makes_something_else_alone_is_told_before_it_is_asked(ask: str, supports: set[str] | None, barred: str | None) -> None:
    asks = {
        "chat": chat(),
        "texts": read_completions(b'{"model":"m","prompt":"Once"}'),
        "vectors": read_embeddings(b'{"model":"m","input":"Once"}'),
    }
    one = endpoint("e1", supports=None if supports is None else frozenset(supports))

    assert barred_kind(asks[ask], one) == barred


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        (said("?", tools=[{"type": "function"}], parallel_tool_calls=False), {"parallel_tools"}),
        (said("?", tools=[{"type": "function"}], parallel_tool_calls=True), set()),
        (chat(features=frozenset(("parallel_tools",)), native=Native("anthropic", {})), {"parallel_tools"}),
    ],
)
def test_that_calls_may_be_parallel_is_lost_nowhere_and_that_they_may_not_where_there_is_no_word_for_it(
    request_: ChatRequest, missing: set[str]
) -> None:
    gemini = Speech("gemini", frozenset(("parallel_tools",)))

    assert lacking(request_, endpoint("e1"), gemini) & {"parallel_tools"} == missing
