"""Where a deployment of a LiteLLM config is, and with whose key: its provider, its account, its region."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from n4n.catalogs.building import Building
from n4n.catalogs.suppliers import Named, Supplier
from n4n.core.document import Table
from n4n.core.schema import decimal_of

ENVIRON = "os.environ/"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ENDS = re.compile(r"(?:/chat/completions|/completions|/embeddings|/responses|/v1/messages|/messages)?/*\Z")
_AWS_NAMES = ("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION")
_AWS_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
_KEYLESS = frozenset(("", "none", "null", "empty", "fake", "fake-key", "dummy", "anything", "not-needed", "no-key"))


class Unplaceable(Exception):
    """Nothing can be said of where it is; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """An account in the document, the dialect spoken there, and the region, where one is told."""

    account: str
    dialect: str
    provider: str
    region: str | None = None


@dataclass(slots=True)
class Params:
    """`litellm_params`: what is asked for is taken out, what is left has no counterpart. `environ`: what references mean here."""

    path: str
    said: dict[str, object]
    environ: Mapping[str, str]

    def take(self, name: str) -> object:
        """A member, None where it is not there."""
        return self.said.pop(name, None)

    def text(self, name: str) -> str | None:
        """A text, as it stands or as a reference says; Unplaceable where it refers to what is not set here."""
        said = self.take(name)
        if said is None:
            return None
        if not isinstance(said, str):
            said = str(said)
        if not said.startswith(ENVIRON):
            return said
        variable = said.removeprefix(ENVIRON)
        if not self.environ.get(variable):
            raise Unplaceable(f"{name} stands in the environment variable {variable[:100]}, which is not set here: set it and import again")
        return self.environ[variable]

    def reference(self, name: str) -> str | None:
        """The variable that a member refers to; None where it does not."""
        said = self.said.get(name)
        variable = said.removeprefix(ENVIRON) if isinstance(said, str) and said.startswith(ENVIRON) else ""
        return variable if _VARIABLE.match(variable) else None

    def count(self, name: str) -> int | None:
        """A whole number from 1."""
        amount = decimal_of(self.take(name))
        return int(amount) if amount is not None and amount >= 1 else None


def place(building: Building, params: Params, name: Named, supplier: Supplier, *, responses: bool) -> Place:
    """Where a deployment is. Raises Unplaceable."""
    match supplier.dialect:
        case "azure":
            table, region = _azure(params), name.region
        case "bedrock":
            table, region = _bedrock(params, name)
        case "vertex":
            table, region = _vertex(params)
        case _:
            table, region = _plain(params, name, supplier), None
    headers = _headers(building, params)
    if headers:
        table["headers"] = headers
    if responses and table["dialect"] == "openai":
        table["dialect"] = "openai_responses"
    suffix = "-responses" if table["dialect"] == "openai_responses" else ""
    provider = building.provider(supplier.name + suffix, table)
    credential = _credential(building, params, supplier)
    limits: Table = {}
    for ours, theirs in (("rpm", "rpm"), ("tpm", "tpm"), ("concurrency", "max_parallel_requests")):
        count = params.count(theirs)
        if count is not None:
            limits[ours] = count
    told = params.take("region_name")
    region = _region(told) if isinstance(told, str) else region
    return Place(building.account(provider, credential, limits), str(table["dialect"]), provider, region)


def _plain(params: Params, name: Named, supplier: Supplier) -> Table:
    base = params.text("api_base") or params.text("base_url") or supplier.base_url
    if not base and supplier.name == "azure-foundry":
        base = params.environ.get("AZURE_AI_API_BASE", "")
    if not base:
        raise Unplaceable(f"{name.word} has no address of its own, and api_base names none: give one")
    base, dialect = _ENDS.sub("", base), supplier.dialect
    if supplier.name == "ollama" and not base.endswith("/v1"):
        base += "/v1"  # where it speaks like OpenAI
    if supplier.name == "azure-foundry":
        dialect, base = _foundry(base, name)
    if dialect == "anthropic":
        base = base.removesuffix("/v1")
    return {"dialect": dialect, "base_url": base}


def _foundry(base: str, name: Named) -> tuple[str, str]:
    root = base.split("/openai")[0].split("/anthropic")[0].split("/models")[0].rstrip("/")
    return ("anthropic", f"{root}/anthropic") if name.model.startswith("claude") else ("openai", f"{root}/openai/v1")


def _azure(params: Params) -> Table:
    base = params.text("api_base") or params.text("base_url") or params.environ.get("AZURE_API_BASE")
    if not base:
        raise Unplaceable("api_base is missing: give the resource's address (https://NAME.openai.azure.com), there or in AZURE_API_BASE")
    version = params.text("api_version")
    root = base.split("/openai")[0].rstrip("/")
    table: Table = {"dialect": "azure", "base_url": f"{root}/openai"}
    if version in ("v1", "latest", "preview") or base.rstrip("/").endswith("/openai/v1"):
        table["base_url"] = f"{root}/openai/v1"
        return {**table, "vars": {"api_version": "preview"}} if version == "preview" else table
    return {**table, "vars": {"api_version": version}} if version else table


def _bedrock(params: Params, name: Named) -> tuple[Table, str]:
    told = params.text("aws_region_name") or name.region
    region = told or next((params.environ[one] for one in _AWS_NAMES if params.environ.get(one)), None)
    if region is None:
        raise Unplaceable("aws_region_name is missing: give the region, such as us-east-1, there or in AWS_REGION")
    base = params.text("aws_bedrock_runtime_endpoint") or params.text("api_base")
    if base:
        return {"dialect": "bedrock", "base_url": base.rstrip("/")}, region
    return {"dialect": "bedrock", "base_url": "https://bedrock-runtime.{aws_region}.amazonaws.com", "vars": {"aws_region": region}}, region


def _vertex(params: Params) -> tuple[Table, str]:
    project = params.text("vertex_project") or params.environ.get("VERTEXAI_PROJECT")
    location = params.text("vertex_location") or params.environ.get("VERTEXAI_LOCATION") or "global"
    if not project:
        raise Unplaceable("vertex_project is missing: give the project's id, there or in VERTEXAI_PROJECT")
    host = "aiplatform.googleapis.com" if location == "global" else "{location}-aiplatform.googleapis.com"
    base = f"https://{host}/v1/projects/{{project}}/locations/{{location}}"
    return {"dialect": "vertex", "base_url": base, "vars": {"project": project, "location": location}}, location


def _region(said: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", said.lower()).strip("-")


def _headers(building: Building, params: Params) -> dict[str, str]:
    found: dict[str, str] = {}
    organization = params.take("organization")
    extra = params.take("extra_headers") or params.take("headers")
    told = {**(extra if isinstance(extra, dict) else {}), **({"OpenAI-Organization": organization} if organization else {})}
    for name, value in told.items():
        if isinstance(value, str) and not value.startswith(ENVIRON):
            found[str(name)] = value
        else:
            building.note(f"{params.path}: the header {str(name)[:100]} was left out: write its value into the provider's headers")
    return found


def _credential(building: Building, params: Params, supplier: Supplier) -> str | None:
    """`env:NAME`: keys themselves never stand in a catalog, so one that stands in the config is told to be put elsewhere."""
    variable, key = params.reference("api_key"), params.take("api_key")
    if supplier.dialect == "bedrock":
        return _aws_credential(building, params, variable)
    if supplier.dialect == "vertex":
        return _google_credential(building, params)
    if variable is not None:
        return f"env:{variable}"
    if isinstance(key, str) and key.lower() not in _KEYLESS:
        variable = _variable_for(building, supplier, key)
        building.note(f"{params.path}: api_key is a key itself, which no catalog holds: put it into the environment variable {variable}")
        return f"env:{variable}"
    return None if key is not None or supplier.key is None else f"env:{supplier.key}"


def _variable_for(building: Building, supplier: Supplier, key: str) -> str:
    """One variable for each key; the keys themselves go no further than this."""
    known = building.keys
    if key not in known:
        base = supplier.key or f"{supplier.name.upper().replace('-', '_')}_API_KEY"
        known[key] = f"{base}_{1 + sum(name.startswith(f'{base}_') for name in known.values())}"  # the plain one may hold another key
    return known[key]


def _aws_credential(building: Building, params: Params, variable: str | None) -> str | None:
    """None: whoever the process is on its machine, which is what LiteLLM means where it is told nothing or the usual names."""
    if variable is not None:
        return f"env:{variable}"
    unusual = [name for name, usual in _AWS_KEYS.items() if name in params.said and params.reference(name) != usual]
    for name in _AWS_KEYS:
        params.take(name)
    profile = params.take("aws_profile_name")
    if unusual or profile:
        what = "aws_profile_name" if profile else unusual[0]
        example = "profile:NAME" if profile else "ID:SECRET"
        building.note(f"{params.path}: {what} was left out: put {example} into the environment variable AWS_CREDENTIAL_OF_N4N")
        return "env:AWS_CREDENTIAL_OF_N4N"
    return None


def _google_credential(building: Building, params: Params) -> str | None:
    variable, said = params.reference("vertex_credentials"), params.take("vertex_credentials")
    if variable is not None:
        return f"env:{variable}"
    if isinstance(said, str) and not said.lstrip().startswith("{"):
        return f"file:{said}"
    if said is not None:
        building.note(f"{params.path}: vertex_credentials is a key itself, which no catalog holds: put it into a file and name that")
        return "env:GOOGLE_APPLICATION_CREDENTIALS"
    return None
