"""The request that a model is probed with: as cheap as the model allows, in the shape that every dialect translates from.

One token of output by default. A model that refuses that has a profile in the catalog (`probe` of a model): another number, another name
for the limit, an effort of reasoning, a stream, a prompt. An endpoint that makes embeddings alone is asked for one.
"""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint, Model, ProbePolicy
from n4n.core.chat import ChatRequest, Usage
from n4n.core.chat_request import read_chat
from n4n.core.dialects.kinds import EMBEDDINGS
from n4n.core.pricing import cost_pico
from n4n.core.skins.embeddings import read_embeddings

_ADDED_TOKENS = 64  # what a provider may put around a prompt: its template, a date, a system prompt of its own

_LEAST_OUTPUT = 16  # tokens: OpenAI's Responses take no lower limit


def probe_request(model: Model, endpoint: Endpoint) -> ChatRequest:
    """What the endpoint is asked. MalformedRequest: the profile makes none, as where `param` is a member that must be something else."""
    policy = model.probe
    if endpoint.supports is not None and EMBEDDINGS in endpoint.supports:
        return read_embeddings(json_bytes.encode({"model": model.id, "input": policy.prompt}))
    asked: dict[str, object] = {
        "model": model.id,
        "messages": [{"role": "user", "content": policy.prompt}],
        policy.param: policy.max_tokens,
    }
    if policy.effort is not None:
        asked["reasoning_effort"] = policy.effort
    if policy.stream:
        asked["stream"] = True
    return read_chat(json_bytes.encode(asked))


def most_pico(request: ChatRequest, most_output: int, endpoint: Endpoint) -> int:
    """What it can cost at most, in pico-USD, with a token for each byte; 0 where the endpoint has no price."""
    usage = Usage(prompt_tokens=request.body_bytes + _ADDED_TOKENS, completion_tokens=max(most_output, _LEAST_OUTPUT))
    return cost_pico(usage, endpoint.price) or 0


def is_probed(policy: ProbePolicy, endpoint: Endpoint, budget_pico: int) -> bool:
    """Whether an endpoint is probed at all: its model is, it is not disabled or draining, and there is money for it."""
    return policy.enabled and endpoint.state == "active" and budget_pico > 0
