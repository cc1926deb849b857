"""One simulated house for all tests that do not break it, simulated companies in this process, and no way out of this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.support.house import House, running_house
from tests.support.simulated import Simulated, simulated


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """`n4n up --sim`, two workers."""
    with running_house(tmp_path_factory.mktemp("house"), "--sim", "--workers", "2") as running:
        yield running


@pytest.fixture(scope="session")
def companies() -> Iterator[tuple[Simulated, Simulated]]:
    """Two llmock servers for the whole run."""
    with simulated() as one, simulated() as other:
        yield one, other


@pytest.fixture
def company(companies: tuple[Simulated, Simulated]) -> Simulated:
    """A server on which nothing has happened yet."""
    companies[0].reset()
    return companies[0]


@pytest.fixture
def rival(companies: tuple[Simulated, Simulated]) -> Simulated:
    """Another one, which sees nothing of what goes to the first."""
    companies[1].reset()
    return companies[1]


@pytest.fixture(autouse=True)
def within_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients keep to this machine: what they trace and report is off, and who tries to get out fails the test."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    strays: list[object] = []

    def guarded(connect: Callable[[socket.socket, object], object]) -> Callable[[socket.socket, object], object]:
        def within(sock: socket.socket, address: object) -> object:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
                strays.append(address)
                raise OSError("tests stay within this machine")
            return connect(sock, address)

        return within

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    yield
    assert strays == []


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
