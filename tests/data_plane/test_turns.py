"""What data_plane/turns.py knows of aiohttp's inside, held against the aiohttp that is installed."""

from __future__ import annotations

import hashlib
import inspect
import re

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol

from data_plane import turns

READ = {  # what turns.py follows; when one of them changes, read it again, follow it, and write the new sum here
    "start": "2e565fd40c8e",
    "close": "84518f965e19",
    "force_close": "38d0e1e798e4",
    "shutdown": "5eb4bd473db6",
    "connection_lost": "df2fe6e95fd0",
    "data_received": "1ee57ebe052e",
}


def test_turns_uses_no_private_name_of_aiohttp_but_those_it_lists() -> None:
    """Given its source, when its private names are looked up, then they are its own or in the list, and the list holds no more."""
    used = set(re.findall(r"self\.(_[a-z_]+)", inspect.getsource(turns.Turns)))
    own = {name for name in vars(turns.Turns) if name.startswith("_")}
    assert used - own == turns.PRIVATE


def test_aiohttp_has_the_private_names_that_turns_uses() -> None:
    """Given aiohttp's protocol, when its slots are listed, then each name is there."""
    slots = {name for one in (web.RequestHandler, BaseProtocol) for name in one.__slots__}
    assert slots >= turns.PRIVATE


def test_what_turns_follows_in_aiohttp_is_as_it_was_read() -> None:
    """Given the methods that turns.py stands in for or relies on, when they are summed up, then they are those that were read."""
    sums = {name: hashlib.sha256(inspect.getsource(getattr(web.RequestHandler, name)).encode()).hexdigest()[:12] for name in READ}
    assert sums == READ
