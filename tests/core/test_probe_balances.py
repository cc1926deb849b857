"""Balances of prepaid accounts: where they are asked for, and what their providers' answers tell."""

from __future__ import annotations

import pytest

from n4n.core.catalog import PICO, Account, Balance, Provider
from n4n.core.probes.balances import Left, api_of, is_low, left, question


def provider(base_url: str) -> Provider:
    """One at this address."""
    return Provider("p", "openai", base_url, headers={"x-title": "n4n"})


OPENROUTER, DEEPSEEK = provider("https://openrouter.ai/api/v1"), provider("https://api.deepseek.com/v1")
MOONSHOT, MOONSHOT_CN = provider("https://api.moonshot.ai/v1"), provider("https://api.moonshot.cn/v1")


def test_the_host_or_the_catalog_says_how_a_balance_is_asked_for() -> None:
    account = Account("a", "p")

    assert [api_of(account, one) for one in (OPENROUTER, DEEPSEEK, MOONSHOT_CN)] == ["openrouter", "deepseek", "moonshot"]
    assert api_of(account, provider("https://api.openai.com/v1")) is None
    assert api_of(Account("a", "p", balance=Balance()), provider("https://api.openai.com/v1")) is None
    assert api_of(Account("a", "p", balance=Balance(0, "openrouter")), provider("https://proxy.example")) == "openrouter"


def test_the_question_goes_where_the_providers_documentation_says() -> None:
    asked = question("openrouter", OPENROUTER, "sk-1")

    assert (asked.method, asked.url, asked.body) == ("GET", "https://openrouter.ai/api/v1/key", b"")
    assert asked.headers == (("accept", "application/json"), ("authorization", "Bearer sk-1"), ("x-title", "n4n"))
    assert question("deepseek", DEEPSEEK, None).url == "https://api.deepseek.com/user/balance"
    assert question("moonshot", MOONSHOT, "k").url == "https://api.moonshot.ai/v1/users/me/balance"


@pytest.mark.parametrize(
    ("api", "at", "body", "told"),
    [
        ("openrouter", OPENROUTER, '{"data": {"limit": 5, "limit_remaining": 4.5, "usage": 0.5}}', Left(9 * PICO // 2, True)),
        ("openrouter", OPENROUTER, '{"data": {"limit": 5, "limit_remaining": 0, "usage": 5}}', Left(0, False)),
        ("openrouter", OPENROUTER, '{"data": {"limit": 5, "limit_remaining": -0.25}}', Left(-PICO // 4, False)),
        ("openrouter", OPENROUTER, '{"data": {"limit": null, "limit_remaining": null}}', Left(None, True)),
        ("openrouter", OPENROUTER, '{"error": {"code": 401}}', None),
        ("openrouter", OPENROUTER, '{"data": {"limit_remaining": 1e300}}', None),
        (
            "deepseek", DEEPSEEK,
            '{"is_available": true, "balance_infos": ['
            '{"currency": "USD", "total_balance": "1.50"}, {"currency": "CNY", "total_balance": "0.00"}]}',
            Left(3 * PICO // 2, True),
        ),
        ("deepseek", DEEPSEEK, '{"is_available": false, "balance_infos": [{"currency": "CNY", "total_balance": "9"}]}', Left(None, False)),
        (
            "deepseek", DEEPSEEK,
            '{"is_available": true, "balance_infos": ['
            '{"currency": "CNY", "total_balance": "9"}, {"currency": "USD", "total_balance": "0"}]}',
            Left(None, True),
        ),
        ("deepseek", DEEPSEEK, '{"is_available": true, "balance_infos": [{"currency": "USD", "total_balance": "much"}]}', None),
        ("moonshot", MOONSHOT, '{"code": 0, "data": {"available_balance": 49.5, "cash_balance": 3.0}}', Left(99 * PICO // 2, True)),
        ("moonshot", MOONSHOT_CN, '{"code": 0, "data": {"available_balance": -1}}', Left(None, False)),
        ("moonshot", MOONSHOT, "<html>", None),
    ],
)  # fmt: skip
def test_answers_are_read_as_their_providers_write_them(api: str, at: Provider, body: str, told: Left | None) -> None:
    assert left(api, at, body.encode()) == told


def test_an_operator_is_told_of_a_balance_below_what_the_catalog_wants() -> None:
    watched, plain = Account("a", "p", balance=Balance(5 * PICO)), Account("b", "p")

    assert is_low(Left(4 * PICO, True), watched) and not is_low(Left(5 * PICO, True), watched)
    assert not is_low(Left(0, True), plain) and is_low(Left(0, False), plain) and not is_low(Left(None, True), watched)
