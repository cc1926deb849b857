"""Malformed settings and documents are one line, whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from n4n.cli.documents import read_document
from n4n.cli.output import Refused
from n4n.core.errors import StartFailed
from n4n.runtime.settings import read_settings


@pytest.mark.parametrize("name", ["N4N_PORT", "N4N_ADMIN_PORT", "N4N_METRICS_PORT"])
def test_a_port_that_is_none_stops_the_start(name):
    with pytest.raises(StartFailed, match=f"{name} must be a port, 0 to 65535"):
        read_settings({name: "99999"})


def test_a_document_without_end_is_refused_in_one_line(tmp_path: Path):
    path = tmp_path / "deep.json"
    path.write_text('{"models":' * 100_000)
    with pytest.raises(Refused, match="nests too deep to be a catalog"):
        read_document(str(path))
