"""The built-in catalog, cut down to what the keys in an environment can use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import cast

import yaml

from n4n.core.document import Document, Table

# Other names under which providers' own tools know a variable, tried in this order after the name in the catalog.
_ALSO_CALLED = {
    "AWS_REGION": ("AWS_DEFAULT_REGION",),
    "AZURE_FOUNDRY_API_KEY": ("ANTHROPIC_FOUNDRY_API_KEY", "AZURE_AI_API_KEY"),
    "AZURE_FOUNDRY_RESOURCE": ("ANTHROPIC_FOUNDRY_RESOURCE",),
    "GEMINI_API_KEY": ("GOOGLE_API_KEY",),
    "VERTEX_ACCESS_TOKEN": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "VERTEX_LOCATION": ("GOOGLE_CLOUD_LOCATION",),
    "VERTEX_PROJECT": ("GOOGLE_CLOUD_PROJECT",),
}
_ENDPOINT_URL = {"AZURE_OPENAI_RESOURCE": "AZURE_OPENAI_ENDPOINT"}  # the variable of the openai SDK holds a URL around the resource
_RESOURCE_IN_URL = re.compile(r"https://([A-Za-z0-9-]+)\.openai\.azure\.com(/|\Z)")
_VALUE = re.compile(r"[A-Za-z0-9._-]+\Z")
_PLACES = ("aws_region", "location")  # vars that say where a provider works
_RESIDENCE = {"us": "us", "eu": "eu", "europe": "eu"}  # first word of a cloud's region ▸ the catalog's region


@dataclass(slots=True)
class _Enabled:
    """What is usable so far; `places` holds the residence of a provider that works in one place only ('' where it is none of ours)."""

    document: Document
    notes: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)


def builtin_document(environ: Mapping[str, str]) -> tuple[Document, list[str]]:
    """The part of the built-in catalog that the set keys enable, and a line for each provider that lacks only something beside its key.

    Providers and accounts stay whose key variable is set and whose vars can be filled, endpoints that belong to them and
    lie where they work, models that have an endpoint. Keys themselves are not read into it: accounts name the variable.
    """
    whole = whole_document()
    enabled = _Enabled({"providers": {}, "accounts": {}, "models": {}, "endpoints": {}, "tiers": {}})
    for name, account in whole["accounts"].items():
        provider = str(account["provider"])
        variable = _name_that_is_set(str(account["credential"]).removeprefix("env:"), environ)
        if variable is not None and _enable_provider(provider, whole["providers"][provider], variable, environ, enabled):
            enabled.document["accounts"][name] = {**account, "credential": f"env:{variable}"}
    enabled.document["endpoints"] = {name: endpoint for name, endpoint in whole["endpoints"].items() if _is_usable(endpoint, enabled)}
    used = {endpoint["account"] for endpoint in enabled.document["endpoints"].values()}
    idle = [account["provider"] for name, account in enabled.document["accounts"].items() if name not in used]
    enabled.notes += [
        f"{name} is enabled, but the built-in catalog has no endpoint for it: add some with n4n catalog apply" for name in idle
    ]
    served = {endpoint["model"] for endpoint in enabled.document["endpoints"].values()}
    enabled.document["models"] = {name: model for name, model in whole["models"].items() if name in served}
    return enabled.document, enabled.notes


def whole_document() -> Document:
    """The catalog as it is kept: vars hold the names of the environment variables that fill them."""
    text = resources.files("n4n.catalogs").joinpath("builtin.yaml").read_text("utf-8")
    document = cast(Document, yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506  # both are safe
    return {kind: document.get(kind, {}) for kind in ("providers", "accounts", "models", "endpoints", "tiers")}


def _name_that_is_set(variable: str, environ: Mapping[str, str]) -> str | None:
    return next((name for name in (variable, *_ALSO_CALLED.get(variable, ())) if environ.get(name)), None)


def _enable_provider(name: str, provider: Table, key: str, environ: Mapping[str, str], enabled: _Enabled) -> bool:
    """Adds the provider with its vars filled in; a note instead when one cannot be."""
    variables = cast(Mapping[str, str], provider.get("vars", {}))
    values = {var: _value(variable, environ) for var, variable in variables.items()}
    missing = [variables[var] for var, value in values.items() if value is None]
    if missing:
        enabled.notes.append(f"{name} is left out: {key} is set but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not")
        return False
    filled = {var: value for var, value in values.items() if value is not None}
    malformed = [variables[var] for var, value in filled.items() if not _VALUE.match(value)]
    if malformed:
        enabled.notes.append(f"{name} is left out: {malformed[0]} must hold only letters, digits, dots, underscores and hyphens")
        return False
    enabled.document["providers"][name] = {**provider, "vars": filled} if filled else provider
    place = next((filled[var] for var in _PLACES if var in filled), None)
    if place is not None:
        enabled.places[name] = _RESIDENCE.get(place.split("-")[0], "")
    return True


def _value(variable: str, environ: Mapping[str, str]) -> str | None:
    name = _name_that_is_set(variable, environ)
    if name is not None:
        return environ[name]
    within = _RESOURCE_IN_URL.match(environ.get(_ENDPOINT_URL.get(variable, ""), ""))
    return within[1] if within else None


def _is_usable(endpoint: Table, enabled: _Enabled) -> bool:
    account = enabled.document["accounts"].get(str(endpoint["account"]))
    if account is None:
        return False
    region = endpoint["region"]
    return region in ("global", enabled.places.get(str(account["provider"]), region))
