"""Names of the conventions for generative AI, compared with those of OpenTelemetry's own package."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as known
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from n4n.core.dialects.table import DIALECTS
from n4n.core.gen_ai import ATTRIBUTES, METRICS, OPERATIONS, PROVIDERS, provider_name


def test_providers_and_operations_are_well_known_values() -> None:
    assert set(PROVIDERS.values()) <= {one.value for one in known.GenAiProviderNameValues}
    assert set(OPERATIONS.values()) <= {one.value for one in known.GenAiOperationNameValues}
    assert PROVIDERS.keys() <= DIALECTS.keys()


@pytest.mark.parametrize(("dialect", "told"), [("anthropic", "anthropic"), ("vertex", "gcp.vertex_ai"), ("openai", "acme")])
def test_a_provider_of_a_dialect_of_its_own_is_told_by_the_conventions_name(dialect: str, told: str) -> None:
    assert provider_name("acme", dialect) == told


def test_metrics_and_attributes_are_spelled_as_the_conventions_spell_them() -> None:
    spelled = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    assert {name for name, _ in METRICS.values()} <= spelled
    attributes = {value for name, value in vars(known).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    assert set(ATTRIBUTES.values()) <= attributes | {"error.type"}
