"""Every skin × stream or not × every dialect × every situation, through the official SDKs: one engine serves them all.

The cells are made from the tables in tests/support/matrix. A client asks in its own words, the provider reads what it got in its
own, and both have to mean the same; then the provider answers in its own words, and so does what the client has of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from n4n.core.dialects.table import DIALECTS
from n4n.core.skins.table import SKINS
from tests.support.matrix.provider import cut
from tests.support.matrix.stage import Stage, staged
from tests.support.matrix.table import CLIENTS, LOSSES, PROVIDERS, SITUATIONS, TOLD, UNTELLABLE, Cell, cells, told_in
from tests.support.matrix.words import Heard, Refused, Told
from tests.support.script import Answer, Rst

CELLS = cells()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with staged({cell.name: cell.provider for cell in CELLS}) as made:
        yield made


def script(cell: Cell) -> Answer:
    """What the provider of a cell answers."""
    situation, provider, told = SITUATIONS[cell.situation], PROVIDERS[cell.provider], told_in(cell)
    if situation.fault is not None:
        return provider.fault(situation.fault, cell.stream)
    assert told is not None
    match situation.breaks, cell.stream:
        case "error", True:
            return (*provider.begun(told.text), *provider.broken())
        case "error", False:
            return provider.inside()
        case "reset", True:
            return (*provider.begun(told.text), Rst())
        case "reset", False:
            return cut(provider.whole(told))
        case _:
            return provider.stream(told) if cell.stream else provider.whole(told)


def check_failed(cell: Cell, got: Refused) -> None:
    """The provider did not answer."""
    situation, provider, told = SITUATIONS[cell.situation], PROVIDERS[cell.provider], told_in(cell)
    means = situation.fault or ("server_error" if situation.breaks == "reset" else provider.broken_class)
    (attempt,) = got.n4n["attempts"]
    assert (attempt["endpoint"], attempt["class"]) == (f"e-{cell.name}", means)
    if situation.breaks is not None and cell.stream:
        assert told is not None
        assert (got.status, got.code, got.before) == (None, "stream_interrupted", told.text)
        return
    assert (got.status, got.code) == TOLD[means]
    assert (got.retry_after is not None) == (got.status in (429, 503))


def check_answered(cell: Cell, got: Heard, told: Told, warnings: list[str]) -> None:
    """The client has what the provider told."""
    tokens = got.told.tokens
    assert (got.n4n["usage"]["prompt_tokens"], got.n4n["usage"]["completion_tokens"]) == (tokens.prompt, tokens.completion)
    assert not got.n4n["usage"]["estimated"]
    assert (got.n4n["provider"], got.n4n["endpoint"], got.n4n["fallback_attempts"]) == (f"p-{cell.provider}", f"e-{cell.name}", 0)
    assert got.n4n["warnings"] == warnings and got.n4n["cost_usd"] is not None
    assert got.told == told


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_what_is_asked_arrives_and_what_is_answered_comes_back(cell: Cell, stage: Stage) -> None:
    situation, provider, client = SITUATIONS[cell.situation], PROVIDERS[cell.provider], stage.clients[cell.client]
    untellable, loss = UNTELLABLE.get((cell.provider, cell.situation)), LOSSES.get((cell.provider, cell.situation))
    stage.upstream.calls.clear()
    stage.upstream.script(script(cell))

    got = await client.ask(cell.name, situation.ask, stream=cell.stream)

    if untellable is not None:
        assert isinstance(got, Refused)
        assert (got.status, got.code, "attempts" in got.n4n, stage.upstream.calls) == (400, "no_eligible_endpoint", False, [])
        return
    (call,) = stage.upstream.calls
    said = client.says(situation.ask)
    wanted = said if loss is None else loss.left(said)
    assert provider.asked(call) == wanted
    if isinstance(got, Refused):
        assert situation.fault is not None or situation.breaks is not None, got
        assert got.kind == client.kind(got.code) or got.status is None
        check_failed(cell, got)
        return
    told = told_in(cell)
    assert told is not None and situation.breaks is None
    warned = loss is not None and loss.warning is not None and wanted != said
    warnings = [str(loss.warning).format(endpoint=f"e-{cell.name}")] if loss is not None and warned else []
    check_answered(cell, got, client.hears(provider.tells(told)), warnings)


def test_every_exception_is_about_cells_that_there_are() -> None:
    every = {(cell.provider, cell.situation) for cell in CELLS}
    assert {*LOSSES, *UNTELLABLE} <= every
    made = len(CLIENTS) * len(PROVIDERS) * len(SITUATIONS) * 2
    assert len(CELLS) < made and len({cell.name for cell in CELLS}) == len(CELLS)


def test_the_tables_hold_every_skin_that_asks_for_text_and_every_dialect() -> None:
    paths = {client(None, None).path for client in CLIENTS.values()}  # type: ignore[arg-type]
    assert {provider.dialect for provider in PROVIDERS.values()} == set(DIALECTS)
    assert paths == set(SKINS) - {"/v1/completions", "/v1/embeddings"}
