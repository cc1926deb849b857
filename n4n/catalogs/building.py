"""A catalog document while it is put together from what another gateway knew: names made fit, doubles made one, losses told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from n4n.core.addresses import url_problem
from n4n.core.document import KINDS, Document, Table, parse_document

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_ALIAS = re.compile(r"[A-Za-z0-9._/:@-]+\Z")
_MOST_TRIES = 10_000


class Building:
    """The document so far, and what could not be carried over: a line each, in `notes`."""

    def __init__(self) -> None:
        self.document: Document = {kind: {} for kind in KINDS}
        self.notes: list[str] = []
        self.keys: dict[str, str] = {}  # a key that stood in the source ▸ the variable it is told to be put into; for nobody's eyes
        self._models: dict[str, str] = {}  # the name a client used ▸ the model's id
        self._counted: Counter[str] = Counter()

    def note(self, line: str) -> None:
        """Something that was lost or changed; the same line once."""
        if line not in self.notes:
            self.notes.append(line)

    def count(self, what: str) -> None:
        """One more of what would be the same note too many times; told together by `finished`."""
        self._counted[what] += 1

    def provider(self, name: str, table: Table) -> str:
        """The name of a provider like this, which there is once."""
        if "allow_private" not in table and _is_inside(str(table["base_url"])):
            table = {**table, "allow_private": True}
        return self._once("providers", name, table)

    def account(self, provider: str, credential: str | None, limits: Table | None = None) -> str:
        """The name of an account like this, which there is once."""
        table: Table = {"provider": provider}
        if credential is not None:
            table["credential"] = credential
        if limits:
            table["limits"] = {"scope": "per_model", **limits}
        return self._once("accounts", f"{provider}-main", table)

    def model(self, said: str) -> str:
        """The id of the model that clients called so; where the name is not one, it is the model's alias."""
        if said in self._models:
            return self._models[said]
        name = self._free(fit(said), lambda one: one in self.document["models"])
        self._models[said] = name
        self.document["models"][name] = {}
        if name != said and not self.alias(said, name):
            self.note(f"model {said[:100]!r} is now {name}: its old name cannot be one here")
        return name

    def alias(self, said: str, model: str) -> bool:
        """Lets clients call a model so too; False where that name is none, or means something already."""
        if not _ALIAS.match(said) or said.startswith("tier/") or said in self.document["models"] or self._models.get(said, model) != model:
            return False
        aliases = self.document["models"][model].setdefault("aliases", [])
        assert isinstance(aliases, list)
        aliases.append(said)
        self._models[said] = model
        return True

    def known(self, said: str) -> str | None:
        """The id of a model that is there already."""
        return self._models.get(said)

    def endpoint(self, name: str, table: Table) -> str:
        """A new endpoint, under this name if it is free."""
        taken = (self.document["endpoints"], self.document["providers"])
        free = self._free(fit(name), lambda one: any(one in names for names in taken))
        self.document["endpoints"][free] = table
        return free

    def finished(self) -> tuple[Document, list[str]]:
        """The document, valid, and the notes. What would make it invalid is left out, and told."""
        document = self.document
        for name in [name for name in document["providers"] if name in document["endpoints"]]:
            table = document["endpoints"].pop(name)
            self.endpoint(f"{name}-endpoint", table)
        while problems := parse_document(document)[1]:
            for problem in problems:
                kind, name = _entry(document, problem.field)
                document[kind].pop(name, None)
                self.note(f"{kind}.{name} was left out: {problem}")
            self._drop_orphans()
        self._drop_idle()
        self.notes += [f"{what}: {number}" for what, number in self._counted.items()]
        return document, self.notes

    def _drop_orphans(self) -> None:
        document = self.document
        for name, account in list(document["accounts"].items()):
            if account["provider"] not in document["providers"]:
                del document["accounts"][name]
        for name, endpoint in list(document["endpoints"].items()):
            if endpoint["account"] not in document["accounts"] or endpoint["model"] not in document["models"]:
                del document["endpoints"][name]

    def _drop_idle(self) -> None:
        """What nothing refers to any more: models without an endpoint, accounts and providers of none."""
        document = self.document
        served = {endpoint["model"] for endpoint in document["endpoints"].values()}
        _keep(document, "models", served)
        for model in document["models"].values():
            if "substitutes" in model:
                model["substitutes"] = [name for name in _list(model["substitutes"]) if name in document["models"]]
                if not model["substitutes"]:
                    del model["substitutes"]
        for name, tier in list(document["tiers"].items()):
            tier["chain"] = [link for link in _list(tier["chain"]) if link in document["models"]]
            if len(_list(tier["chain"])) < 2:
                del document["tiers"][name]
        _keep(document, "accounts", {endpoint["account"] for endpoint in document["endpoints"].values()})
        _keep(document, "providers", {account["provider"] for account in document["accounts"].values()})

    def _once(self, kind: str, name: str, table: Table) -> str:
        tables = self.document[kind]
        same = next((known for known, other in tables.items() if other == table), None)
        if same is not None:
            return same
        free = self._free(fit(name), lambda one: one in tables)
        tables[free] = table
        return free

    @staticmethod
    def _free(name: str, taken: Callable[[str], bool]) -> str:
        tries = (name, *(f"{name}-{number}" for number in range(2, _MOST_TRIES)))
        return next(one for one in tries if not taken(one))


def fit(name: str) -> str:
    """A name of the catalog's kind that is like this one."""
    return _UNFIT.sub("-", name).strip("-") or "unnamed"


def _is_inside(url: str) -> bool:
    return url_problem(url, allow_private=False) is not None and url_problem(url, allow_private=True) is None


def _entry(document: Document, field: str) -> tuple[str, str]:
    """The entry that a problem's path is in. A name may hold dots: the longest that fits is meant."""
    kind, _, rest = field.partition(".")
    fitting = [name for name in document[kind] if f"{rest}.".startswith((f"{name}.", f"{name}["))]
    return kind, max(fitting, key=len, default=rest)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _keep(document: Mapping[str, dict[str, Table]], kind: str, used: set[object]) -> None:
    for name in [name for name in document[kind] if name not in used]:
        del document[kind][name]
