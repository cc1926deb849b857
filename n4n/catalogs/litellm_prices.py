"""LiteLLM's price map as a catalog document: every model at a provider that can be spoken to.

https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.catalogs.building import Building
from n4n.catalogs.places import Params, Place, Unplaceable, place
from n4n.catalogs.prices import has_other_prices, price_of, supports_of, windows_of
from n4n.catalogs.suppliers import SUPPLIERS, Named, named
from n4n.core.document import Document, Table

Object = Mapping[str, object]
_Places = dict[tuple[str, bool, bool], Place | None]
_KINDS = {"embedding": ["embeddings"], "completion": ["text_completions"]}
_MODES = frozenset(("chat", "responses", "completion", "embedding"))
_PROFILES = {"us": "us-", "us-gov": "us-gov-", "eu": "eu-", "apac": "ap-", "au": "ap-southeast-", "jp": "ap-northeast-", "ca": "ca-"}
_SAMPLE = "sample_spec"


def is_price_map(raw: object) -> bool:
    """Whether a document is a price map."""
    return isinstance(raw, Mapping) and any(isinstance(entry, Mapping) and "litellm_provider" in entry for entry in raw.values())


def from_price_map(raw: object, environ: Mapping[str, str]) -> tuple[Document, list[str]]:
    """The document, and what could not be carried over. `environ`: where resources, projects and regions are told, which no map knows."""
    building = Building()
    places: _Places = {}
    for said, entry in cast(Object, raw).items():
        if isinstance(entry, Mapping) and said != _SAMPLE:
            _entry(building, places, str(said), cast(Object, entry), environ)
    return building.finished()


def _entry(building: Building, places: _Places, said: str, info: Object, environ: Mapping[str, str]) -> None:
    word, mode = str(info.get("litellm_provider", "")), str(info.get("mode", "chat"))
    word = "vertex_ai" if word.startswith("vertex_ai") else word
    if mode not in _MODES:
        building.count(f"entries left out, for their mode is {mode[:40]}, and only chat, responses, completion and embedding are served")
        return
    if word not in SUPPLIERS:
        building.count("entries left out, for their providers cannot be spoken to")
        return
    name = named(said, word)
    if name is None or said.startswith("ft:") or not _is_there(name, environ.get("AWS_REGION", "")):
        building.count("entries left out, for they are of a single region, or of a model to be tuned first")
        return
    at = _at(building, places, name, mode == "responses", environ)
    if at is None:
        return
    _endpoint(building, at, name, info, mode)


def _is_there(name: Named, region: str) -> bool:
    """Whether it can be reached from the region; profiles of Bedrock bear their continent's name in front."""
    if name.word not in ("bedrock", "bedrock_converse"):
        return name.region in (None, "us", "eu", "global")
    start = _PROFILES.get(name.model.partition(".")[0])
    return name.region in (None, region) and (start is None or region.startswith(start))


def _at(building: Building, places: _Places, name: Named, responses: bool, environ: Mapping[str, str]) -> Place | None:
    """The one account of a provider; None where nothing tells where that is."""
    key = (name.word, responses, name.model.startswith("claude"))
    if key not in places:
        try:
            places[key] = place(building, Params(name.word, {}, environ), name, SUPPLIERS[name.word], responses=responses)
        except Unplaceable as error:
            building.note(f"models of {name.word} were left out: {error}")
            places[key] = None
    return places[key]


def _endpoint(building: Building, at: Place, name: Named, info: Object, mode: str) -> None:
    model = building.model(name.model.rpartition("/")[2])
    table = building.document["models"][model]
    for field, value in windows_of(info).items():
        table[field] = max(cast(int, value), cast(int, table.get(field, 0)))
    endpoint: Table = {"model": model, "account": at.account, "upstream_model": name.model}
    region = name.region or at.region
    if region:
        endpoint["region"] = region
    price = price_of(info)
    if price:
        endpoint["price"] = price
    if has_other_prices(info):
        building.count("entries billed for more than tokens (images, searches, seconds, sound), of which the rest has no price here")
    endpoint |= windows_of(info)
    endpoint["supports"] = _KINDS.get(mode) or supports_of(info, at.dialect)
    building.endpoint(f"{at.provider}-{model}", endpoint)
