"""Records of idempotency keys in Redis: claimed by one router at a time, whose lease is renewed while it executes, and then the answer.

Every step is one script call on the shared connection. Whatever Redis does, a step ends within the store's deadline; StoreUnavailable
means that nobody knows whether it was carried out, and no harm comes of it: a record that is nobody's expires.
"""

from __future__ import annotations

import asyncio
import hmac
from importlib.resources import files

import msgspec

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.core.idempotency import (
    KEPT_MS,
    LEASE_MS,
    MOST_SEALED,
    Claim,
    Different,
    Done,
    Kept,
    Known,
    Mine,
    Running,
    known_by,
    packed,
    unpacked,
)
from n4n.runtime.sealing import Seal, Unreadable
from n4n.runtime.stores import Command, Script, Store, Word

_STEP = Script("idempotency", files("n4n.runtime").joinpath("lua", "idempotency.lua").read_text())
_AT_ONCE = 64 << 10  # bytes that are packed and sealed without leaving the loop
_MOST_STORED_AT_ONCE = 4  # large answers must not fill the connection that limits go over
_NOT_CONFIGURED = "this router has no Redis"


class Owned(msgspec.Struct, frozen=True):
    """A record that this router executes for."""

    known: Known
    owner: str


class Records:
    """One per worker. `store` None: there is none, and every claim is StoreUnavailable. `lease_ms`: see the core."""

    def __init__(self, store: Store | None, secret: bytes, lease_ms: float = LEASE_MS) -> None:
        self._store, self._seal, self._lease_ms = store, Seal(secret, "idempotency"), lease_ms
        self._names = hmac.digest(secret, b"n4n names: idempotency", "sha256")
        self._held: dict[str, Owned] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._turns = asyncio.Semaphore(_MOST_STORED_AT_ONCE)

    def __repr__(self) -> str:
        return f"<Records {len(self._held)} held>"

    def known(self, tenant: str, key: str, path: str, body: bytes) -> Known:
        """By what all routers with this secret know a request. `body`: as it was sent, decompressed."""
        return known_by(self._names, tenant, key, path, body)

    async def claim(self, owned: Owned) -> Claim:
        """Whose turn it is; from `Mine` on the record is held until `release` or `complete`. StoreUnavailable: Redis does not say."""
        try:
            reply = await self._asked().command(self._step("claim", owned))
        except asyncio.CancelledError:
            self._post("release", owned)  # nobody is left to hold what was granted
            raise
        match reply:
            case 1:
                return Mine()
            case 2:
                return Running()
            case 3:
                return Different()
            case bytes():
                return Done(reply)
            case _:
                raise StoreRefused("CROSSED", "claim")

    def hold(self, owned: Owned) -> None:
        """Its lease is renewed from now on."""
        self._held[owned.known.name] = owned
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._lease_ms / 3000, self._renew)

    def release(self, owned: Owned) -> None:
        """It was not answered, or it was and is held no longer: the next that asks executes, or has the answer."""
        self._held.pop(owned.known.name, None)
        self._post("release", owned)

    async def complete(self, owned: Owned, answer: Kept) -> bool:
        """The answer, for everybody who asks from now on. False: it is too large, or Redis did not take it."""
        content = packed(answer) if len(answer.body) <= _AT_ONCE else await asyncio.to_thread(packed, answer)
        if len(content) > MOST_SEALED:
            return False
        sealed = self._seal.seal(content, owned.known.fingerprint)
        async with self._turns:
            try:
                reply = await self._asked().command(self._step("complete", owned, sealed))
            except StoreUnavailable:
                return False
        if reply != 1:
            return False  # another router took over while this one stood still
        self._held.pop(owned.known.name, None)
        return True

    def answer(self, known: Known, done: Done) -> Kept:
        """What was kept. StoreUnavailable: it cannot be read."""
        try:
            return unpacked(self._seal.unseal(done.sealed, known.fingerprint))
        except (Unreadable, ValueError) as error:
            raise StoreUnavailable("an answer in Redis cannot be unsealed") from error

    def _renew(self) -> None:
        self._timer = None
        for owned in self._held.values():
            self._post("renew", owned)
        if self._held:
            self._timer = asyncio.get_running_loop().call_later(self._lease_ms / 3000, self._renew)

    def _step(self, step: str, owned: Owned, *more: bytes) -> Command:
        lasts = KEPT_MS if step == "complete" else int(self._lease_ms)
        args: list[Word] = [step, owned.owner, owned.known.fingerprint, lasts, *more]
        return _STEP.call((owned.known.name,), args)

    def _post(self, step: str, owned: Owned) -> None:
        if self._store is not None:
            self._store.post(self._step(step, owned))

    def _asked(self) -> Store:
        if self._store is None:
            raise StoreUnavailable(_NOT_CONFIGURED)
        return self._store
