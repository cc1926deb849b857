"""What is left on prepaid accounts, as their providers tell it: a table of a few interfaces, each an address and how its answer is read.

    openrouter   GET …/key                 https://openrouter.ai/docs/api/api-reference/api-keys/get-current-key
    deepseek     GET /user/balance         https://api-docs.deepseek.com/api/get-user-balance
    moonshot     GET …/users/me/balance    https://platform.moonshot.ai/docs/api/balance

Amounts are US dollars; a balance in another currency tells only whether anything is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec

from n4n.core.catalog import PICO, Account, Provider
from n4n.core.chat import UpstreamRequest

EVERY_S = 300.0
OUT_S = 900.0  # for how long an account without money is out; the next look renews it


class Left(msgspec.Struct, frozen=True):
    """`pico`: pico-USD, None: in no currency we can compare, or without a bound. `usable`: whether calls are still served."""

    pico: int | None
    usable: bool


class _Key(msgspec.Struct):
    limit_remaining: float | None = None  # null: the key has no limit of its own


class _OpenRouter(msgspec.Struct):
    data: _Key


class _Amount(msgspec.Struct):
    currency: str
    total_balance: str


class _DeepSeek(msgspec.Struct):
    is_available: bool
    balance_infos: list[_Amount] = []


class _Available(msgspec.Struct):
    available_balance: float


class _Moonshot(msgspec.Struct):
    data: _Available


_READ_OPENROUTER = msgspec.json.Decoder(_OpenRouter).decode
_READ_DEEPSEEK = msgspec.json.Decoder(_DeepSeek).decode
_READ_MOONSHOT = msgspec.json.Decoder(_Moonshot).decode


def _openrouter(body: bytes, _: str) -> Left:
    left = _READ_OPENROUTER(body).data.limit_remaining
    return Left(None, True) if left is None else Left(_pico(left), left > 0)


def _deepseek(body: bytes, _: str) -> Left:
    told = _READ_DEEPSEEK(body)
    dollars = [Decimal(one.total_balance) for one in told.balance_infos if one.currency == "USD"]
    others = any(Decimal(one.total_balance) > 0 for one in told.balance_infos if one.currency != "USD")
    return Left(_pico(sum(dollars)) if dollars and not others else None, told.is_available)


def _moonshot(body: bytes, host: str) -> Left:
    left = _READ_MOONSHOT(body).data.available_balance
    return Left(None if host.endswith(".cn") else _pico(left), left > 0)


class _Api(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    path: str
    from_root: bool  # of the host, else of the base URL
    read: Callable[[bytes, str], Left]


_APIS: Mapping[str, _Api] = MappingProxyType({
    "openrouter": _Api(("openrouter.ai",), "/key", False, _openrouter),
    "deepseek": _Api(("api.deepseek.com",), "/user/balance", True, _deepseek),
    "moonshot": _Api(("api.moonshot.ai", "api.moonshot.cn"), "/users/me/balance", False, _moonshot),
})  # fmt: skip


def api_of(account: Account, provider: Provider) -> str | None:
    """The interface that tells this account's balance: the one its catalog entry names, else the one at its provider's host."""
    if account.balance is not None and account.balance.api is not None:
        return account.balance.api
    host = _host(provider)
    return next((name for name, api in _APIS.items() if host in api.hosts), None)


def question(api: str, provider: Provider, secret: str | None) -> UpstreamRequest:
    """What is asked, as a GET."""
    known = _APIS[api]
    base = provider.base_url
    if known.from_root:
        parts = urlsplit(base)
        base = f"{parts.scheme}://{parts.netloc}"
    key = (("authorization", f"Bearer {secret}"),) if secret else ()
    headers = (("accept", "application/json"), *key, *provider.headers.items())
    return UpstreamRequest(base + known.path, headers, b"", allow_private=provider.allow_private, method="GET")


def left(api: str, provider: Provider, body: bytes) -> Left | None:
    """What an answer with status 200 tells; None: it cannot be read."""
    try:
        return _APIS[api].read(body, _host(provider))
    except (msgspec.DecodeError, ArithmeticError, ValueError):
        return None


def is_low(told: Left, account: Account) -> bool:
    """Whether an operator should know: less is left than the catalog wants, or nothing."""
    below = 0 if account.balance is None else account.balance.below_pico
    return not told.usable or (told.pico is not None and told.pico < below)


def _host(provider: Provider) -> str:
    return urlsplit(provider.base_url).hostname or ""


def _pico(usd: float | Decimal) -> int:
    amount = Decimal(str(usd))
    if not math.isfinite(amount) or abs(amount) > 10**12:
        raise ValueError("no amount of money")
    return int(amount * PICO)
