"""What real clients ask for beside text, tools and objects: images, embeddings, text completions, counts and lists of models."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import openai
import pytest
from langchain_openai import OpenAIEmbeddings

from tests.support.clients import TURNS, anthropic_client, openai_client
from tests.support.router import KEY, RunningRouter, running_router
from tests.support.simulated import PLACES, Simulated, route

IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(48))).decode()
IMAGE_URL = f"data:image/png;base64,{IMAGE}"
SIDES = 1536  # of llmock's vectors


async def image_in_a_chat(base_url: str) -> object:
    content = [{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": IMAGE_URL}}]
    async with openai_client(base_url) as client:
        return await client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])


async def image_in_a_response(base_url: str) -> object:
    content = [{"type": "input_text", "text": "what is it"}, {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}]
    async with openai_client(base_url) as client:
        return await client.responses.create(model="m", input=[{"role": "user", "content": content}])


async def image_in_a_message(base_url: str) -> object:
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    content = [{"type": "text", "text": "what is it"}, {"type": "image", "source": source}]
    async with anthropic_client(base_url) as client:
        return await client.messages.create(model="m", max_tokens=500, messages=[{"role": "user", "content": content}])


@pytest.mark.parametrize("ask", [image_in_a_chat, image_in_a_response, image_in_a_message])
@pytest.mark.parametrize("at", PLACES)
async def test_an_image_reaches_every_provider_as_it_is(company: Simulated, at: str, ask: Callable[[str], Awaitable[object]]) -> None:
    async with running_router(route((company, at))) as router:
        answer = await ask(router.base_url)

    (asked,) = company.requests
    assert str(asked.body).count(IMAGE) == 1
    assert answer.model_extra["n4n"]["warnings"] == []
    assert company.findings() == []


@pytest.mark.parametrize("at", PLACES)
async def test_a_text_goes_on_at_every_provider_whole_and_as_a_stream(company: Simulated, at: str) -> None:
    company.reply("upon a time", times=2)

    async with running_router(route((company, at))) as router, openai_client(router.base_url) as client:
        whole = await client.completions.create(model="m", prompt="Once", max_tokens=50)
        stream = await client.completions.create(model="m", prompt="Once", max_tokens=50, stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream if chunk.choices]

    assert (whole.object, whole.choices[0].text, whole.choices[0].finish_reason) == ("text_completion", "upon a time", "stop")
    assert "".join(pieces) == "upon a time"
    assert company.findings() == []


@pytest.mark.parametrize("at", PLACES)
async def test_tokens_are_counted_or_estimated_wherever_a_model_lives(company: Simulated, at: str) -> None:
    async with running_router(route((company, at))) as router, anthropic_client(router.base_url) as client:
        counted = await client.messages.count_tokens(model="m", messages=TURNS)

    assert 3 < counted.input_tokens < 50


async def test_both_sdks_list_the_models_that_a_key_may_use(company: Simulated) -> None:
    async with running_router(route((company, "openai"), (company, "anthropic"))) as router:
        async with openai_client(router.base_url) as client:
            assert [model.id async for model in client.models.list()] == ["m"]
            assert (await client.models.retrieve("m")).object == "model"
        async with anthropic_client(router.base_url) as other:
            assert [model.id async for model in other.models.list()] == ["m"]
            assert (await other.models.retrieve("m")).type == "model"
    assert company.requests == []


# ── embeddings


def embedding(company: Simulated, *more: Simulated) -> dict[str, object]:
    """A catalog whose model `m` makes embeddings and nothing else."""
    document = route(*((one, "openai") for one in (company, *more)))
    for endpoint in document["endpoints"].values():
        endpoint |= {"upstream_model": "text-embedding-3-small", "supports": ["embeddings"]}
    return document


async def vectors(router: RunningRouter, texts: list[str], **asked: object) -> list[list[float]]:
    """Of texts, in the order in which they were given."""
    async with openai_client(router.base_url) as client:
        answer = await client.embeddings.create(model="m", input=texts, **asked)
    assert [one.index for one in answer.data] == list(range(len(texts)))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > 0
    return [one.embedding for one in answer.data]


async def by_langchain(router: RunningRouter, texts: list[str]) -> list[list[float]]:
    """The same through `langchain-openai`; it would cut texts into tokens, of which llmock takes none."""
    asked = {"model": "m", "base_url": router.base_url, "api_key": KEY, "max_retries": 0, "check_embedding_ctx_length": False}
    async with openai.DefaultAsyncHttpxClient() as http:
        return await OpenAIEmbeddings(**asked, http_async_client=http).aembed_documents(texts)


async def test_embeddings_are_made_in_either_format_and_many_at_once(company: Simulated) -> None:
    texts = [f"the text with number {number}" for number in range(64)]

    async with running_router(embedding(company)) as router:
        packed = await vectors(router, texts[:2])
        plain = await vectors(router, texts[:2], encoding_format="float")
        many = await vectors(router, texts)
        langchains = await by_langchain(router, texts[:2])

    assert packed == plain == langchains == many[:2]
    assert len(many) == 64
    assert {len(vector) for vector in packed} == {SIDES}
    assert company.findings() == []


async def test_embeddings_wait_for_a_rate_limit_and_move_on_from_an_outage_like_everything_else(
    company: Simulated, rival: Simulated
) -> None:
    async with running_router(embedding(company, rival)) as router:
        company.outage()
        (from_the_rival,) = await vectors(router, ["a text that is embedded"])
    assert company.findings(but={"gave_up"}) == []  # the rival answered, which the company cannot see

    company.reset().rate_limit(retry_after=0.2)
    async with running_router(embedding(company)) as router:
        (waited_for,) = await vectors(router, ["a text that is embedded"])

    assert from_the_rival == waited_for
    assert len(company.requests) == 2
    assert company.findings() + rival.findings() == []
