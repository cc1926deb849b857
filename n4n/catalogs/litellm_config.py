"""A LiteLLM proxy's config as a catalog document (https://docs.litellm.ai/docs/proxy/config_settings).

Deployments become endpoints, their names models; prices and abilities are those of `model_info`, else of the built-in catalog where
it knows the same model at the same provider. What has no counterpart is told in a line each, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from n4n.catalogs.building import Building
from n4n.catalogs.builtin import whole_document
from n4n.catalogs.litellm_settings import Settings, carry_settings
from n4n.catalogs.places import ENVIRON, Params, Unplaceable, place
from n4n.catalogs.prices import price_of, supports_of, tells_abilities, windows_of
from n4n.catalogs.suppliers import SUPPLIERS, named
from n4n.core.document import Document, Table

Object = Mapping[str, object]
_KINDS = {"embedding": ["embeddings"], "completion": ["text_completions"]}  # a mode ▸ what an endpoint of it says it supports
_CHATS = frozenset(("chat", "responses", "completion", "embedding"))
_PRICES = (
    "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr", "input_cost_per_token_above_200k_tokens", "output_cost_per_token_above_200k_tokens",
)  # fmt: skip
_MEANT_ANYWAY = frozenset(("drop_params", "use_litellm_proxy", "model", "stream", "custom_llm_provider", "litellm_credential_name"))
_DEFAULTS = frozenset(
    ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "presence_penalty", "frequency_penalty", "reasoning_effort",
     "thinking", "stop", "user", "top_k", "n", "response_format", "service_tier")
)  # fmt: skip
_BINDS = "what stands in an endpoint's body binds clients too; write it there if that is meant"
_TEXT_WORDS = ("text-completion-openai", "azure_text")
_DEPLOYMENT = ("rpm", "tpm", "weight")  # may stand beside litellm_params too


def is_config(raw: object) -> bool:
    """Whether a document is a proxy's config."""
    return isinstance(raw, Mapping) and isinstance(raw.get("model_list"), list)


def from_config(raw: object, environ: Mapping[str, str]) -> tuple[Document, list[str]]:
    """The document, and what could not be carried over. `environ`: what os.environ/ references mean where that has to be known."""
    config = cast(Object, raw)
    import_ = _Import(environ, _credentials(config))
    for number, entry in enumerate(cast(list[object], config["model_list"])):
        import_.deployment(f"model_list[{number}]", entry)
    carry_settings(import_.building, Settings(config), import_.timeouts)
    return import_.building.finished()


def _credentials(config: Object) -> dict[str, Object]:
    found = config.get("credential_list")
    entries = [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []
    return {str(entry.get("credential_name")): _object(entry.get("credential_values")) for entry in entries}


def _object(value: object) -> Object:
    return cast(Object, value) if isinstance(value, Mapping) else {}


@lru_cache(1)
def _builtin() -> tuple[Mapping[str, Object], Mapping[tuple[str, object], Object]]:
    """The built-in catalog's models, and its endpoints by provider and the provider's name for the model. Not to be changed."""
    builtin = whole_document()
    providers = {name: str(account["provider"]) for name, account in builtin["accounts"].items()}
    return builtin["models"], {(providers[str(one["account"])], one["upstream_model"]): one for one in builtin["endpoints"].values()}


class _Import:
    """One config on its way."""

    def __init__(self, environ: Mapping[str, str], credentials: Mapping[str, Object]) -> None:
        self.building = Building()
        self.timeouts: dict[str, float] = {}  # of models whose deployments set one, in seconds
        self._environ, self._credentials = environ, credentials
        self._models, self._known = _builtin()

    def deployment(self, path: str, raw: object) -> None:
        """One entry of `model_list`."""
        entry = _object(raw)
        said, given = entry.get("model_name"), dict(_object(entry.get("litellm_params")))
        stored = self._credentials.get(str(given.get("litellm_credential_name")), {})
        params = Params(path, {**stored, **given}, self._environ)
        params.said |= {name: entry[name] for name in _DEPLOYMENT if name in entry and name not in params.said}
        if not isinstance(said, str) or not isinstance(params.said.get("model"), str):
            self.building.note(f"{path} was left out: it needs a model_name and litellm_params.model, both texts")
            return
        params.path = f"{path} ({said[:100]})"
        try:
            self._endpoint(said, params, _object(entry.get("model_info")))
        except Unplaceable as error:
            self.building.note(f"{params.path} was left out: {error}")

    def _endpoint(self, said: str, params: Params, info: Object) -> None:
        model, word = str(params.said["model"]), params.take("custom_llm_provider")
        if "*" in said or "*" in model:
            raise Unplaceable("a catalog names each model: write an entry for every model behind the wildcard")
        name = named(model, word if isinstance(word, str) else None)
        if name is None:
            raise Unplaceable(f"nothing tells whose model {model[:100]!r} is: write it as provider/model")
        supplier = SUPPLIERS.get(name.word)
        if supplier is None:
            likely = f"if it speaks like OpenAI, write openai/{name.model[:60]} with its api_base"
            raise Unplaceable(f"{name.word[:60]} is no provider that can be spoken to; {likely}")
        mode = str(info.get("mode", "completion" if name.word in _TEXT_WORDS else "chat"))
        if mode not in _CHATS:
            raise Unplaceable(f"mode {mode[:40]} is none that is served: chat, responses, completion and embedding are")
        at = place(self.building, params, name, supplier, responses=mode == "responses")
        known = self._known.get((supplier.name, _base(info) or name.model), {})
        endpoint: Table = {"model": self.building.model(said), "account": at.account, "upstream_model": name.model}
        if at.region:
            endpoint["region"] = at.region.lower()
        weight = params.take("weight")
        if isinstance(weight, int | float) and weight >= 0:
            endpoint["weight"] = weight
        endpoint |= self._worth(params, info, known)
        supports = _KINDS.get(mode) or (supports_of(info, at.dialect) if tells_abilities(info) else known.get("supports"))
        if supports:
            endpoint["supports"] = supports
        extra = params.take("extra_body")
        if isinstance(extra, Mapping) and extra:
            endpoint["body"] = dict(extra)
        self._tell_model(str(endpoint["model"]), info, known)
        self._tell_rest(str(endpoint["model"]), params, info)
        told = info.get("id")
        self.building.endpoint(told if isinstance(told, str) else f"{at.provider}-{endpoint['model']}", endpoint)

    def _worth(self, params: Params, info: Object, known: Object) -> Table:
        told = {**info, **{name: params.take(name) for name in _PRICES if name in params.said}}
        price = price_of(told)
        if price:
            return {"price": price}
        if known:
            self.building.count("endpoints whose price and abilities are those of the built-in catalog, for the config tells none")
            return {"price": known["price"]} if "price" in known else {}
        self.building.note(f"{params.path} has no price: its cost is null until its endpoint gets one")
        return {}

    def _tell_model(self, model: str, info: Object, known: Object) -> None:
        table = self.building.document["models"][model]
        builtin: Object = self._models.get(str(known.get("model")), {})
        told: Table = {name: builtin[name] for name in ("context_window", "max_output_tokens", "capabilities") if name in builtin}
        for name, value in {**told, **windows_of(info)}.items():
            table.setdefault(name, value)

    def _tell_rest(self, model: str, params: Params, info: Object) -> None:
        building, path = self.building, params.path
        for name in ("timeout", "request_timeout"):
            seconds = params.take(name)
            if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
                self.timeouts[model] = max(float(seconds), self.timeouts.get(model, 0.0))
        retries = params.take("max_retries")
        retries = params.take("num_retries") if retries is None else retries
        if isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0:
            building.document["models"][model].setdefault("retry", {"max_retries": min(retries, 20)})
        for name, value in params.said.items():
            if name in _MEANT_ANYWAY or value in (None, False, "", [], {}):
                continue
            why = _BINDS if name in _DEFAULTS else "it has no counterpart"
            building.note(f"{path}: {name[:100]} was left out: {why}")
        for name in ("access_groups", "team_id", "tier"):
            if info.get(name):
                building.note(f"{path}: model_info.{name} was left out: give keys the models they may use, with n4n key create --model")


def _base(info: Object) -> str | None:
    """The model behind a deployment's own name."""
    base = info.get("base_model")
    return base.rpartition("/")[2] if isinstance(base, str) and not base.startswith(ENVIRON) else None
