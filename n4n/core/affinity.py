"""Which account a conversation keeps to where cached input is cheaper there: the same for the same beginning, by rendezvous hashing.

Nothing is remembered. A request's lot at an endpoint is drawn from a hash of its beginning and the endpoint instead of by chance, so the
order that comes of it is as weighted as ever over many conversations, and the same for the turns of one. What lowers an endpoint's weight
(health, what is left of a quota) takes conversations from it, each for as long as the weight is down. A beginning that everybody shares
would lead everybody to one account: who has clearly more under way than the others comes after them (consistent hashing with bounded
loads, Mirrokni, Thorup and Zadimoghaddam 2016, https://arxiv.org/abs/1608.01350).

Providers cache prompts from 1,024 tokens on (https://platform.openai.com/docs/guides/prompt-caching), so what is shorter keeps to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import log

import msgspec

from n4n.core.candidates import World
from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.dialects.origins import origin_of

LEAST_BYTES = 4_096  # of a body, without a `prompt_cache_key`
FEW, SHARE = 8, 1.5  # attempts under way that are never too many; and how many times the mean of all accounts
_LONG = 256 << 10  # a body from which on the beginning is its first bytes, for reading it all would take too long
_HEAD = 16 << 10
_POOR = 2.0**-20
_NOTHING = (b"", b"null", b'""')
_ASKING = frozenset(("system", "developer"))
Draw = Callable[[], float]


class _Said(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")


_MESSAGES = msgspec.json.Decoder(list[_Said])


class Kept(msgspec.Struct, frozen=True):
    """What a request keeps to. `most`: attempts under way above which an account is crowded."""

    beginning: bytes
    busy: Mapping[str, int]
    most: float

    def draw(self, endpoint: Endpoint, chance: Draw) -> Draw:
        """How this request's lot at an endpoint is drawn: as in all other turns of it, where that saves something; a poor one where it is
        crowded."""
        if not saves(endpoint):
            return chance
        drawn = self._hashed(endpoint.id)
        if all(map(self._is_crowded, endpoint.accounts)):
            drawn = 1.0 - (1.0 - drawn) * _POOR
        return lambda: drawn

    def drawn(self, endpoint: Endpoint, pool: Sequence[Account], world: World) -> Account | None:
        """The account of the endpoint's pool to go through; None: any."""
        shares = [(world.factor(endpoint, account), account) for account in pool if not self._is_crowded(account)]
        able = [(-log(1.0 - self._hashed(account.name)) / share, account) for share, account in shares if share > 0]
        return min(able, key=lambda one: one[0])[1] if able and saves(endpoint) else None

    def _is_crowded(self, account: Account) -> bool:
        return self.busy.get(account.name, 0) > self.most

    def _hashed(self, name: str) -> float:
        """In [0, 1), as evenly as chance."""
        return int.from_bytes(blake2b(name.encode(), digest_size=6, key=self.beginning).digest()) / (1 << 48)


def saves(endpoint: Endpoint) -> bool:
    """Whether input that it has cached is cheaper there."""
    price = None if endpoint.price is None else endpoint.price.base
    return price is not None and price.cached_input is not None and price.input is not None and price.cached_input < price.input


class Ties(msgspec.Struct, frozen=True):
    """What draws one request to endpoints and accounts, beside their weights."""

    kept: Kept | None
    made_by: frozenset[str]
    world: World

    def is_strange(self, endpoint: Endpoint, accounts: Iterable[Account], *, well: bool) -> bool:
        """Whether sealed reasoning of the conversation was made elsewhere, and others go first; who is not well has no claim."""
        return bool(self.made_by) and not (well and any(self._made(endpoint, account) for account in accounts))

    def draw(self, endpoint: Endpoint, chance: Draw) -> Draw:
        """How its lot at an endpoint is drawn."""
        return chance if self.kept is None else self.kept.draw(endpoint, chance)

    def drawn(self, endpoint: Endpoint, pool: tuple[Account, ...], chance: Draw) -> tuple[Account, tuple[Account, ...]]:
        """The account of the pool to go through, and the others; what nothing ties is drawn as everybody's."""
        home = next((account for account in pool if self._made(endpoint, account)), None) if self.made_by else None
        if home is None and self.kept is not None and len(pool) > 1:
            home = self.kept.drawn(endpoint, pool, self.world)
        return self.world.drawn(endpoint, pool, chance) if home is None else (home, tuple(one for one in pool if one is not home))

    def _made(self, endpoint: Endpoint, account: Account) -> bool:
        return origin_of(self.world.speech(endpoint), endpoint, account) in self.made_by


def ties_of(request: ChatRequest, tenant: str, endpoints: Sequence[Endpoint], world: World) -> Ties | None:
    """The ties of a request among these endpoints; None: chance decides alone."""
    found = kept(request, tenant, endpoints, world.busy)
    return Ties(found, request.made_by, world) if found is not None or request.made_by else None


def kept(request: ChatRequest, tenant: str, endpoints: Sequence[Endpoint], busy: Mapping[str, int]) -> Kept | None:
    """What the request keeps to among these endpoints; None: there is nothing to gain by it."""
    fields = request.fields if request.native is None else request.native.fields
    key = bytes(fields.get("prompt_cache_key", b""))
    if request.body_bytes < LEAST_BYTES and key in _NOTHING:
        return None
    accounts = {account.name for endpoint in endpoints for account in endpoint.accounts}
    if len(accounts) < 2 or not any(map(saves, endpoints)):
        return None
    told = key if key not in _NOTHING else _beginning(fields, long=request.body_bytes >= _LONG)
    if not told:
        return None
    beginning = blake2b(b"\0".join((tenant.encode(), request.model.encode(), told)), digest_size=16).digest()
    mean = sum(busy.get(name, 0) for name in accounts) / len(accounts)
    return Kept(beginning, busy, max(FEW, SHARE * mean))


def _beginning(fields: Mapping[str, msgspec.Raw], *, long: bool) -> bytes:
    """The instructions and the first thing that the user says, as JSON; b'' where that cannot be told."""
    said = fields.get("messages", fields.get("input", fields.get("prompt", msgspec.Raw(b""))))
    before = [bytes(memoryview(fields[name])[:_HEAD]) for name in ("system", "instructions") if name in fields]
    head = bytes(memoryview(said)[:1])
    if long or head != b"[":
        return b"\0".join((*before, bytes(memoryview(said)[:_HEAD])))
    try:
        messages = _MESSAGES.decode(said)
    except (msgspec.DecodeError, RecursionError):
        return b""
    first = next((one for one in messages if one.role in _ASKING), _Said())
    asked = next((one for one in messages if one.role == "user"), _Said())
    return b"\0".join((*before, bytes(first.content), bytes(asked.content)))
