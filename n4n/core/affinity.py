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
from functools import lru_cache
from hashlib import blake2b
from math import log

import msgspec

from n4n.core.candidates import World
from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import ChatRequest
from n4n.core.dialects.origins import origin_of

LEAST_BYTES = 4_096  # of a body, without a `prompt_cache_key`
FEW, SHARE = 8, 1.5  # attempts under way that are never too many; and how many times the mean of all accounts
_FAR, _HEAD, _END = 64 << 10, 2 << 10, 1 << 10  # bytes of a conversation that are looked at, and that count
_USER, _ROLE, _CONTENT, _BETWEEN = b'"user"', b'"role"', b'"content"', b'{}[], \t\r\n"'
_ALL = (1 << 64) - 1
_POOR = 2.0**-20
_NOTHING = (b"", b"null", b'""')
Draw = Callable[[], float]


class Kept(msgspec.Struct):
    """What a request keeps to: `beginning` is 64 bits of it."""

    beginning: int
    busy: Mapping[str, int]
    endpoints: Sequence[Endpoint]
    most: float | None = None  # attempts under way above which an account is crowded; None: not asked for yet

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
        under_way = self.busy.get(account.name, 0)
        if under_way <= FEW:
            return False
        if self.most is None:
            accounts = {account.name for endpoint in self.endpoints for account in endpoint.accounts}
            self.most = max(FEW, SHARE * sum(self.busy.get(name, 0) for name in accounts) / len(accounts))
        return under_way > self.most

    def _hashed(self, name: str) -> float:
        """In [0, 1), as evenly as chance: the last steps of splitmix64 (Steele, Lea and Flood 2014)."""
        mixed = self.beginning ^ _bits(name.encode())
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _ALL
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _ALL
        return ((mixed ^ mixed >> 31) >> 11) / (1 << 53)


@lru_cache(4096)
def _bits(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest())


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
    if (len(endpoints) == 1 and len(endpoints[0].accounts) == 1) or not any(map(saves, endpoints)):
        return None
    told = [key] if key not in _NOTHING else _beginning(fields)
    return Kept(_bits(b"\0".join((tenant.encode(), request.model.encode(), *told))), busy, endpoints) if any(told) else None


def _beginning(fields: Mapping[str, msgspec.Raw]) -> list[bytes]:
    """The instructions, and all up to the end of the first thing that the user says, as the JSON that it came as: what is long by its head
    and its end. Nothing is parsed, for it may be long: an unescaped `"role"` stands nowhere but before a role."""
    said = fields.get("messages", fields.get("input", fields.get("prompt", msgspec.Raw(b""))))
    raw = bytes(memoryview(said)[:_FAR])
    at = raw.find(_USER)
    end = len(raw) if at < 0 else at if raw.find(_CONTENT) < raw.find(_ROLE) else raw.find(_ROLE, at)
    raw = raw[: end if end >= 0 else len(raw)].rstrip(_BETWEEN)
    before = [bytes(memoryview(fields[name])[:_HEAD]) for name in ("system", "instructions") if name in fields]
    return [*before, raw[:_HEAD], raw[_HEAD:][-_END:]]
