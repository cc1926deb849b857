"""The dialects this version speaks, by the name the catalog gives them. An endpoint of any other one is eliminated by `dialect`."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.dialects import Dialect
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.dialects.azure import Azure
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.dialects.gemini import Gemini, Vertex
from n4n.core.dialects.openai import OpenAI
from n4n.core.dialects.responses import Responses

DIALECTS: Mapping[str, Dialect] = {
    "openai": OpenAI(),
    "anthropic": Anthropic(),
    "azure": Azure(),
    "openai_responses": Responses(),
    "gemini": Gemini(),
    "vertex": Vertex({"anthropic": Anthropic(), "mistralai": OpenAI()}),
    "bedrock": Bedrock(),
}
