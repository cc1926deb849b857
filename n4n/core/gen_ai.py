"""Names and bounds of OpenTelemetry's conventions for generative AI, as n4n's traces and metrics use them.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ (1.41). The names of metrics are the conventions' own, as Prometheus spells them.
"""

from __future__ import annotations

from collections.abc import Mapping

OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
PROVIDERS: Mapping[str, str] = {  # dialects to the well-known values of gen_ai.provider.name; an OpenAI-like provider has its own name
    "azure": "azure.ai.openai",
    "anthropic": "anthropic",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
}
NOBODY = "n4n"  # gen_ai.provider.name of what no provider was asked for

DURATIONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)  # seconds
FIRST_TOKENS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(4**power for power in range(14))  # 1 … 67,108,864

METRICS: Mapping[str, tuple[str, str]] = {  # as Prometheus spells them, to their name and unit
    "gen_ai_client_operation_duration_seconds": ("gen_ai.client.operation.duration", "s"),
    "gen_ai_client_token_usage": ("gen_ai.client.token.usage", "{token}"),
    "gen_ai_server_request_duration_seconds": ("gen_ai.server.request.duration", "s"),
    "gen_ai_server_time_per_output_token_seconds": ("gen_ai.server.time_per_output_token", "s"),
    "gen_ai_server_time_to_first_token_seconds": ("gen_ai.server.time_to_first_token", "s"),
}
ATTRIBUTES: Mapping[str, str] = {
    "gen_ai_operation_name": "gen_ai.operation.name",
    "gen_ai_provider_name": "gen_ai.provider.name",
    "gen_ai_request_model": "gen_ai.request.model",
    "gen_ai_token_type": "gen_ai.token.type",
    "error_type": "error.type",
}


def provider_name(provider: str, dialect: str) -> str:
    """`gen_ai.provider.name` of a provider of the catalog."""
    return PROVIDERS.get(dialect, provider)
