"""What models are probed with, what an answer means, and what it costs in the ledger."""

from __future__ import annotations

import msgspec
import pytest

from n4n.core import json_bytes
from n4n.core.catalog import PICO, ModelId, ProbePolicy
from n4n.core.chat import Usage
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure, FailureClass, MalformedRequest
from n4n.core.ledger import Dispatch, read_rows
from n4n.core.probes.profile import is_probed, most_pico, probe_request
from n4n.core.probes.rows import TENANT, Came, Sent, dispatched_line, settled_line
from n4n.core.probes.verdict import (
    WELL,
    AccountOut,
    Gone,
    Ill,
    Limited,
    Misconfigured,
    Unclear,
    Verdict,
    is_spared,
    judge,
    least_named,
    remedy,
)
from tests.support.endpoints import endpoint, model, priced

C = FailureClass


def body_of(asked: object, dialect: str = "openai", **fields: object) -> dict[str, object]:
    """What leaves for a provider."""
    at = endpoint("e", dialect=dialect, **fields)
    sent = DIALECTS[dialect].encode(asked, at, "secret")  # type: ignore[arg-type]
    told = json_bytes.parse(sent.body)
    assert isinstance(told, dict)
    return told


def test_one_token_is_asked_for_unless_the_model_has_a_profile() -> None:
    usual = probe_request(model(), endpoint("e"))
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    assert usual.stream and body_of(usual) == {
        "model": "m", "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1, **streamed,
    }  # fmt: skip

    profile = ProbePolicy(max_tokens=16, param="max_completion_tokens", prompt="hi", effort="low", stream=False)
    asked = probe_request(model(probe=profile), endpoint("e"))
    assert not asked.stream and body_of(asked) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 16,
        "reasoning_effort": "low",
    }


@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "openai_responses", "azure", "bedrock"])
def test_every_dialect_says_the_limit_in_its_own_words(dialect: str) -> None:
    sent = json_bytes.dump(body_of(probe_request(model(probe=ProbePolicy(max_tokens=77)), endpoint("e")), dialect))

    assert b":77" in sent


def test_an_endpoint_that_makes_embeddings_is_asked_for_one() -> None:
    asked = probe_request(model(), endpoint("e", supports=frozenset({"embeddings"})))

    assert body_of(asked, supports=frozenset({"embeddings"})) == {"model": "m", "input": "ping"}


def test_a_profile_that_makes_no_request_says_so() -> None:
    with pytest.raises(MalformedRequest):
        probe_request(model(probe=ProbePolicy(param="n", max_tokens=9999)), endpoint("e"))


def test_what_a_probe_costs_at_most_is_more_than_it_costs() -> None:
    asked = probe_request(model(), endpoint("e"))

    assert most_pico(asked, 1, endpoint("e", price=priced(2.5, 10))) == (asked.body_bytes + 64) * 2_500_000 + 16 * 10_000_000
    assert most_pico(asked, 1, endpoint("e")) == 0


def test_who_is_probed() -> None:
    assert is_probed(ProbePolicy(), endpoint("e"), 1)
    assert not is_probed(ProbePolicy(enabled=False), endpoint("e"), 1)
    assert not is_probed(ProbePolicy(), endpoint("e", state="draining"), 1)
    assert not is_probed(ProbePolicy(), endpoint("e"), 0)


def verdict(failure_class: FailureClass, message: str = "no", **fields: object) -> Verdict:
    """Of a failure that came in time."""
    return judge(Failure(failure_class, message, **fields), "max_tokens", 1.0, 5.0)  # type: ignore[arg-type]


def test_a_failure_is_charged_to_what_it_speaks_of() -> None:
    assert judge(None, "max_tokens", 1.0, 5.0) is WELL
    for ill in (C.TIMEOUT, C.SERVER_ERROR, C.OVERLOADED):
        assert isinstance(verdict(ill), Ill)
    assert isinstance(verdict(C.RATE_LIMITED), Limited)
    assert isinstance(verdict(C.RATE_LIMITED, retry_after_s=86_400.0), AccountOut), "a quota that lasts a day"
    for out in (C.AUTH, C.QUOTA_EXHAUSTED):
        assert isinstance(verdict(out), AccountOut)
    assert isinstance(verdict(C.MODEL_NOT_FOUND), Gone)
    for refused in (C.BAD_REQUEST, C.CONTEXT_LENGTH, C.CONTENT_POLICY):
        assert isinstance(verdict(refused), Misconfigured)


def test_a_timeout_while_we_stood_still_tells_nothing() -> None:
    late = Failure(C.TIMEOUT, "late")

    assert isinstance(judge(late, "max_tokens", 5.1, 5.0), Ill)
    assert isinstance(judge(late, "max_tokens", 60.0, 5.0), Unclear)
    assert isinstance(judge(late, "max_tokens", 5.1, 5.0, stood_still_s=2.0), Unclear)


@pytest.mark.parametrize(
    "message",
    [
        "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.",
        "the output token limit has been reached",
        "the answer reached the model's output limit",
    ],
)
def test_a_limit_of_output_that_is_reached_is_an_answer(message: str) -> None:
    assert verdict(C.BAD_REQUEST, message) is WELL


@pytest.mark.parametrize(
    ("message", "param", "told"),
    [
        (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
            "max_output_tokens",
            "set probe: {max_tokens: 16} on the model",
        ),
        ("max_tokens must be at least 8", None, "set probe: {max_tokens: 8} on the model"),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "set probe: {param: max_completion_tokens} on the model",
        ),
        (
            "`max_tokens` must be greater than `thinking.budget_tokens`: greater than 1024",
            None,
            "set probe: {max_tokens: 1025} on the model",
        ),
        ("max_tokens is not what we like", None, "give the model's probe another max_tokens or param"),
        ("Unsupported value: 'reasoning_effort' does not support 'none'", None, "give the model's probe another effort, or none"),
        ("no", None, "change the model's probe, or switch it off with probe: {enabled: false}"),
    ],
)
def test_a_refused_parameter_is_told_with_its_remedy(message: str, param: str | None, told: str) -> None:
    found = verdict(C.BAD_REQUEST, message, param=param)

    assert isinstance(found, Misconfigured) and found.remedy == told


def test_a_refused_prompt_is_told_with_its_remedy() -> None:
    assert remedy(Failure(C.CONTENT_POLICY, "no"), "max_tokens") == "give the model's probe another prompt"
    assert "shorter prompt" in remedy(Failure(C.CONTEXT_LENGTH, "no"), "max_tokens")
    assert least_named("nothing") is None


def test_a_probe_is_spared_where_live_traffic_has_just_succeeded() -> None:
    assert is_spared(3.0, 30.0)
    assert not is_spared(30.0, 30.0) and not is_spared(None, 30.0) and not is_spared(-1.0, 30.0)


def sent(**fields: object) -> Sent:
    """A probe on its way."""
    at = endpoint("e", price=priced(2.5, 10))
    known = Sent("att_" + "0" * 24, "prb_1", 1.5, at, at.accounts[0], 7, False, 100, 1)
    return msgspec.structs.replace(known, **fields)


def test_a_probe_has_a_row_of_a_tenant_of_its_own() -> None:
    line, cost = settled_line(sent(), Came(None, 0.25, 0.125, Usage(8, 1), 4))
    rows, refused = read_rows(line)

    assert not refused and cost == 8 * 2_500_000 + 10_000_000
    row = rows[0]
    assert (row.tenant, row.key_id, row.endpoint, row.model, row.state, row.cost_usd) == (TENANT, TENANT, "e", "m", "ok", "0.00003")
    assert (row.prompt_tokens, row.completion_tokens, row.latency_ms, row.ttft_ms, row.started_us) == (8, 1, 250.0, 125.0, 1_500_000)


def test_a_probe_that_failed_costs_nothing_and_one_without_a_price_costs_nobody_knows_what() -> None:
    line, cost = settled_line(sent(), Came(Failure(C.SERVER_ERROR, "no", 500), 0.25))
    assert cost == 0
    assert (read_rows(line)[0][0].state, read_rows(line)[0][0].error_class, read_rows(line)[0][0].status) == ("failed", "server_error", 500)

    line, cost = settled_line(sent(endpoint=endpoint("e")), Came(None, 0.25))
    assert cost is None and read_rows(line)[0][0].cost_usd is None and read_rows(line)[0][0].estimated


def test_a_probe_that_was_cut_short_is_told_so_and_counted_as_read() -> None:
    line, cost = settled_line(sent(), Came(None, 0.25, cancelled=True))

    row = read_rows(line)[0][0]
    assert (row.state, row.status, row.prompt_tokens, row.estimated) == ("cancelled", None, 25, True) and cost == 25 * 2_500_000


@pytest.mark.parametrize("price", [None, priced(2.5, 10)])
def test_a_probe_is_in_the_ledger_before_it_is_sent(price: object) -> None:
    line = dispatched_line(sent(endpoint=endpoint("e", price=price)))

    told = msgspec.json.decode(line[1:], type=Dispatch)
    assert line[:1] == b"D" and told.tenant == TENANT and told.completion_tokens == 1
    assert told.price == (None if price is None else (2_500_000, 10_000_000))
    assert ModelId(told.model) == "m" and PICO
