"""What a LiteLLM config says of all its models: how often is tried again, what stands in for what, how long is waited.

https://docs.litellm.ai/docs/routing, https://docs.litellm.ai/docs/proxy/config_settings
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from n4n.catalogs.building import Building
from n4n.core.document import Table

Object = Mapping[str, object]
_STRATEGIES = {
    "simple-shuffle": "balanced",
    "least-busy": "balanced",
    "usage-based-routing": "balanced",
    "usage-based-routing-v2": "balanced",
    "latency-based-routing": "latency",
    "cost-based-routing": "cost",
}
_RETRIES = {  # an error of LiteLLM's retry_policy ▸ a class of failures
    "TimeoutErrorRetries": "timeout",
    "RateLimitErrorRetries": "rate_limited",
    "InternalServerErrorRetries": "server_error",
    "ServiceUnavailableErrorRetries": "overloaded",
}
_NEVER_AGAIN = frozenset(("BadRequestErrorRetries", "AuthenticationErrorRetries", "ContentPolicyViolationErrorRetries"))
_SECTIONS = ("router_settings", "litellm_settings", "general_settings", "environment_variables")
_CARRIED = frozenset(
    ("num_retries", "timeout", "request_timeout", "allowed_fails", "cooldown_time", "routing_strategy", "fallbacks", "default_fallbacks",
     "context_window_fallbacks", "content_policy_fallbacks", "model_group_alias", "retry_policy", "model_group_retry_policy", "drop_params")
)  # fmt: skip
_MEANT_ANYWAY = frozenset(("set_verbose", "enable_pre_call_checks", "json_logs", "debug_level", "telemetry", "stream_timeout"))
_INSTEAD = {
    "master_key": "keys are made with n4n key create",
    "database_url": "set N4N_DATABASE_URL",
    "cache": "answers are not cached",
    "cache_params": "answers are not cached",
    "callbacks": "traces go out by OTEL_* variables, metrics stand at /metrics",
    "success_callback": "traces go out by OTEL_* variables, metrics stand at /metrics",
    "failure_callback": "traces go out by OTEL_* variables, metrics stand at /metrics",
    "alerting": "alerts are rules on the metrics",
    "max_budget": "budgets belong to keys: n4n key create --budget-usd",
    "provider_budget_config": "an account has a daily_token_budget",
}
_REDIS = "set N4N_REDIS_URL"


@dataclass(frozen=True, slots=True)
class Settings:
    """The sections beside `model_list`."""

    config: Object

    def section(self, name: str) -> Object:
        """One section; empty where it is none."""
        found = self.config.get(name)
        return cast(Object, found) if isinstance(found, Mapping) else {}

    def get(self, name: str) -> object:
        """A setting of the router, or of the library, which the router's overrides."""
        return self.section("router_settings").get(name, self.section("litellm_settings").get(name))


def carry_settings(building: Building, settings: Settings, timeouts: Mapping[str, float]) -> None:
    """Puts them into the models that the building has by now. `timeouts`: what single deployments asked for, in seconds."""
    models = building.document["models"]
    _aliases(building, settings.get("model_group_alias"))
    for name, model in models.items():
        _retries(building, name, model, settings)
        _breaker(model, settings)
        seconds = timeouts.get(name) or settings.get("timeout") or settings.get("request_timeout")
        if _is_number(seconds):
            model["timeouts"] = {"total_ms": max(1, int(cast(float, seconds) * 1000))}
        strategy = settings.get("routing_strategy")
        if isinstance(strategy, str) and _STRATEGIES.get(strategy, "balanced") != "balanced":
            model["strategy"] = _STRATEGIES[strategy]
    strategy = settings.get("routing_strategy")
    if isinstance(strategy, str) and strategy not in _STRATEGIES:
        building.note(f"router_settings.routing_strategy {strategy[:60]} was left out: balanced stands in for it")
    _fallbacks(building, settings)
    for section in _SECTIONS:
        for name in settings.section(section):
            _tell(building, section, name, settings.section(section)[name])
    for name in settings.config:
        if name not in (*_SECTIONS, "model_list", "credential_list"):
            building.note(f"{str(name)[:100]} was left out: it has no counterpart")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _aliases(building: Building, said: object) -> None:
    for alias, target in cast(Object, said).items() if isinstance(said, Mapping) else ():
        name = target.get("model") if isinstance(target, Mapping) else target
        model = building.known(str(name))
        if model is None or not building.alias(str(alias), model):
            building.note(f"model_group_alias.{str(alias)[:100]} was left out: it has to be a free name for a model of model_list")


def _retries(building: Building, name: str, model: Table, settings: Settings) -> None:
    most = settings.get("num_retries")
    retry = cast(Table, model.get("retry", {}))
    if _is_number(most) or most == 0:
        retry.setdefault("max_retries", min(int(cast(int, most)), 20))
    own = settings.get("model_group_retry_policy")
    policies = cast(Object, own) if isinstance(own, Mapping) else {}
    mine = next((policy for group, policy in policies.items() if building.known(str(group)) == name), settings.get("retry_policy"))
    by_class: Table = {}
    for error, count in cast(Object, mine).items() if isinstance(mine, Mapping) else ():
        if error in _RETRIES and isinstance(count, int):
            by_class[_RETRIES[error]] = {"max_retries": min(max(count, 0), 20)}
        elif error in _NEVER_AGAIN:
            building.note(f"retry_policy.{error} was left out: such an answer is the same at every try")
        else:
            building.note(f"retry_policy.{str(error)[:60]} was left out: it has no counterpart")
    if by_class:
        retry["by_class"] = by_class
    if retry:
        model["retry"] = retry


def _breaker(model: Table, settings: Settings) -> None:
    fails, seconds = settings.get("allowed_fails"), settings.get("cooldown_time")
    breaker: Table = {}
    if isinstance(fails, int) and not isinstance(fails, bool) and fails >= 0:
        breaker = {"failure_threshold": fails + 1, "window_sec": 60}  # the first failure beyond those allowed in a minute
    if _is_number(seconds):
        breaker["recovery_timeout_sec"] = seconds
    if breaker:
        model["circuit_breaker"] = breaker


def _fallbacks(building: Building, settings: Settings) -> None:
    """A model's fallbacks are its substitutes, and a tier that begins with it."""
    models = building.document["models"]
    chains: dict[str, list[str]] = {}
    for kind in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"):
        for said, others in _pairs(settings.get(kind)):
            if said == "*":
                chains |= {name: [*chains.get(name, []), *_known(building, kind, others, name)] for name in models}
            elif (name := building.known(said)) is None:
                building.note(f"{kind}: {said[:100]} was left out: model_list has no such model")
            else:
                chains[name] = [*chains.get(name, []), *_known(building, kind, others, name)]
        if kind == "content_policy_fallbacks" and settings.get(kind):
            building.note(f"{kind}: they stand in where a model fails, but what a provider's policy refused is not sent elsewhere")
    default = settings.get("default_fallbacks")
    for name in models if isinstance(default, list) else ():
        chains[name] = [*chains.get(name, []), *_known(building, "default_fallbacks", cast(list[object], default), name)]
    for name, chain in chains.items():
        alike = [other for other in dict.fromkeys(chain) if _embeds(building, other) == _embeds(building, name)]
        if alike:
            models[name]["substitutes"] = alike
            building.document["tiers"][name] = {"chain": [name, *alike]}
    if building.document["tiers"]:
        example = next(iter(building.document["tiers"]))
        building.note(
            "fallbacks: another model stands in only for who asks so: for the model tier/NAME"
            f" (such as tier/{example}), or with the directive consistency=available, which a key can hold:"
            " n4n key create --directive consistency=available"
        )


def _embeds(building: Building, model: str) -> bool:
    """Whether a model makes embeddings, for which no chat stands in."""
    return any(one["model"] == model and one.get("supports") == ["embeddings"] for one in building.document["endpoints"].values())


def _pairs(said: object) -> Iterator[tuple[str, list[object]]]:
    for entry in said if isinstance(said, list) else ():
        for name, others in entry.items() if isinstance(entry, Mapping) else ():
            yield str(name), others if isinstance(others, list) else [others]


def _known(building: Building, kind: str, others: list[object], name: str) -> list[str]:
    found = [(str(other), building.known(str(other))) for other in others]
    for said, model in found:
        if model is None:
            building.note(f"{kind}: {said[:100]} was left out: model_list has no such model")
    return [model for _, model in found if model is not None and model != name]


def _tell(building: Building, section: str, name: object, value: object) -> None:
    said = str(name)
    if said in _CARRIED or said in _MEANT_ANYWAY or value in (None, False, [], {}):
        return
    if section == "environment_variables":
        building.note(f"{section}.{said[:100]} was left out: set it in the environment of the router")
        return
    instead = _REDIS if said.startswith("redis_") else _INSTEAD.get(said, "it has no counterpart")
    building.note(f"{section}.{said[:100]} was left out: {instead}")
