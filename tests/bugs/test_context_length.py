"""An input that is too long is the request's fault, and only a larger window helps."""

from __future__ import annotations

import json

import pytest

from tests.support.answers import error
from tests.support.router import catalog, running_router
from tests.support.upstream import ScriptedUpstream

TOO_LONG = {
    "code": error(400, code="context_length_exceeded", type="invalid_request_error"),
    "text": error(400, message="This model's maximum context length is 4096 tokens, however you requested 9000 tokens"),
    "status of another": error(403, message="input tokens + max_tokens exceed the model's maximum context length"),
    "rate limit that never fits": error(429, code="rate_limit_exceeded", message="Request too large: Limit 100, Requested 900"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", TOO_LONG)
@pytest.mark.parametrize(
    ("windows", "calls"), [((None, None, None), 1), ((8000, 8000, 4000), 1), ((8000, 4000, 128_000), 2), ((8000, None, 9000), 2)]
)
async def test_it_is_tried_once_and_then_only_where_more_fits(windows: tuple[int | None, ...], calls: int, kind: str, stream: bool) -> None:
    """LiteLLM #22697 (case 12): a context window that was exceeded was retried as if it were a fault of the API."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=TOO_LONG[kind])
        document = catalog(*[upstream.base_url] * 3)
        for at, window in enumerate(windows, 1):
            document["endpoints"][f"e{at}"] |= {} if window is None else {"context_window": window}  # type: ignore[index]
        async with running_router(document) as house:
            async with house.chat(stream=stream) as answer:
                told = json.loads(await answer.text())["error"]
            views, accounts = dict(house.router.health.views), dict(house.router.health.cooling_accounts)
    assert (answer.status, told["code"], told["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    assert len(upstream.calls) == calls and answer.headers["x-should-retry"] == "false"
    assert accounts == {} and all(not view.cooldown_until and not view.breaker.recent for view in views.values())
