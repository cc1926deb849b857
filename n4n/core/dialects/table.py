"""The dialects this version speaks, by the name the catalog gives them. An endpoint of any other one is eliminated by `dialect`."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.dialects import Dialect, completions, embeddings
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.dialects.azure import Azure
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.dialects.gemini import Gemini, Vertex
from n4n.core.dialects.kinds import ByKind, Kind
from n4n.core.dialects.openai import OpenAI
from n4n.core.dialects.origins import Bound
from n4n.core.dialects.responses import Responses

_TEXTS_AND_VECTORS: Mapping[str, Kind] = {completions.SHAPE: completions.Completions(), embeddings.SHAPE: embeddings.Embeddings()}
DIALECTS: Mapping[str, Dialect] = {
    "openai": ByKind(OpenAI(), _TEXTS_AND_VECTORS),
    "anthropic": Anthropic(),
    "azure": ByKind(Azure(), _TEXTS_AND_VECTORS),
    "openai_responses": Bound(Responses(), "account"),
    "gemini": ByKind(Gemini(), {embeddings.SHAPE: embeddings.GeminiEmbeddings()}),
    "vertex": Vertex({"anthropic": Anthropic(), "mistralai": OpenAI()}),
    "bedrock": Bound(Bedrock(), "model"),
}
