"""Asking which server is the one to talk to: a cluster's map, a Sentinel's master. Off everybody's way, on connections of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import cycle

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.runtime.stores.dial import Dialer
from n4n.runtime.stores.place import Place, StoreSettings
from n4n.runtime.stores.slots import Share, place_of, shares_of

NO_MAP = "Redis may be a cluster, but the user of N4N_REDIS_URL may not ask: allow it +cluster|slots"
STRANGE_MAP = "Redis told a map of its cluster that cannot be read"
NO_MASTER = "no Sentinel of N4N_REDIS_URL knows a master of that name"

Locate = Callable[[], Awaitable[Place]]


async def cluster_map(dialer: Dialer, place: Place) -> tuple[Share, ...] | None:
    """Who serves which slots; None: it is a server by itself. StoreUnavailable."""
    try:
        return shares_of(await dialer.ask(place, "CLUSTER", "SLOTS"), place)
    except StoreRefused as error:
        if error.reply_code == "ERR":  # "This instance has cluster support disabled", or a service without the command
            return None
        raise StoreUnavailable(NO_MAP if error.reply_code == "NOPERM" else error.message) from error
    except ValueError as error:
        raise StoreUnavailable(STRANGE_MAP) from error


def one_of(places: Sequence[Place]) -> Locate:
    """Each try another of them."""
    following = cycle(places)

    async def locate() -> Place:
        return next(following)

    return locate


def sentinels_of(settings: StoreSettings) -> Dialer:
    """Talks to Sentinels: with the same user and password, or without where they know none."""
    return Dialer(replace(settings, database=0), strangers=True)


def master_by_sentinels(dialer: Dialer, settings: StoreSettings) -> Locate:
    """Where the first Sentinel that knows the master says it is.

    Source: https://redis.io/docs/latest/develop/reference/sentinel-clients/.
    """

    async def locate() -> Place:
        last = StoreUnavailable(NO_MASTER)
        for place in settings.places:
            try:
                found = await dialer.ask(place, "SENTINEL", "get-master-addr-by-name", settings.master)
            except StoreUnavailable as error:
                last = error
                continue
            match found:
                case [bytes() as host, bytes() as port] if port.isdigit():
                    return place_of(host, int(port), place)
        raise last

    return locate
