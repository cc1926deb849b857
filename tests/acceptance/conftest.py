"""One simulated house for all tests that do not break it."""

from collections.abc import Iterator

import pytest

from tests.support.house import House, running_house


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """`n4n up --sim`, two workers."""
    with running_house(tmp_path_factory.mktemp("house"), "--sim", "--workers", "2") as running:
        yield running
