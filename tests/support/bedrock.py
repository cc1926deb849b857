"""What a chat becomes on its way to Bedrock: the helpers that its tests share."""

from __future__ import annotations

import json
from typing import Any

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.bedrock import Bedrock

BEDROCK = Bedrock()
SONNET = "us.anthropic.claude-sonnet-4-6"
OLDER = "anthropic.claude-sonnet-4-5-20250929-v1:0"
OPUS = "global.anthropic.claude-opus-4-8"
NOVA = "amazon.nova-pro-v1:0"
NOVA_2 = "us.amazon.nova-2-lite-v1:0"
GPT = "us.openai.gpt-5.6-sol"
OSS = "openai.gpt-oss-120b-1:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
PROFILE = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123"
POINT = {"cachePoint": {"type": "default"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SPEC = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def request(messages: Any = None, **fields: object) -> ChatRequest:
    """A chat as its client writes it."""
    said = [{"role": "user", "content": "hi"}] if messages is None else messages
    return read_chat(json.dumps({"model": "asked", "messages": said, **fields}).encode())


def endpoint(upstream_model: str = SONNET, **fields: Any) -> Endpoint:
    """An endpoint of one model."""
    url = fields.pop("base_url", "https://bedrock-runtime.us-east-1.amazonaws.com")
    provider = Provider("p", "bedrock", url, headers=fields.pop("headers", {}))
    return Endpoint(EndpointId("e1"), ModelId(fields.pop("model", "asked")), provider, (), upstream_model, **fields)


def sent(asked: ChatRequest, upstream_model: str = SONNET, **fields: Any) -> UpstreamRequest:
    """The whole request, sent with a key."""
    return BEDROCK.encode(asked, endpoint(upstream_model, **fields), "key")


def body(asked: ChatRequest, upstream_model: str = SONNET, **fields: Any) -> dict[str, Any]:
    """Its body, parsed."""
    found: dict[str, Any] = json.loads(sent(asked, upstream_model, **fields).body)
    return found


def turns(messages: list[Any], upstream_model: str = SONNET, **fields: object) -> list[Any]:
    """The body's messages."""
    found: list[Any] = body(request(messages, **fields), upstream_model)["messages"]
    return found


def warned(asked: ChatRequest, upstream_model: str = SONNET, **fields: Any) -> tuple[str, ...]:
    """What was left out or changed."""
    return sent(asked, upstream_model, **fields).warnings
