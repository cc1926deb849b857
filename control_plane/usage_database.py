"""Connections to the usage tables: transactions that end in time, and Postgres' absence as one error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import psycopg
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from control_plane.schema import DatabaseAway, engine_url, one_line


class UsageDatabase:
    """At most twice `connections` at once. DatabaseAway when Postgres cannot be reached, or not in time."""

    def __init__(self, database_url: str, *, connections: int, timeout_s: float) -> None:
        self._engine: AsyncEngine = create_async_engine(
            engine_url(database_url),
            pool_size=connections,
            max_overflow=connections,
            pool_timeout=5,
            pool_pre_ping=True,
            hide_parameters=True,
        )
        self._timeout_s = timeout_s

    async def close(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self, timeout_s: float | None = None) -> AsyncIterator[AsyncConnection]:
        """Committed at the end, unless something is raised."""
        within = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(within), self._engine.begin() as connection:
                yield connection
        except (OperationalError, InterfaceError) as error:
            raise DatabaseAway(f"the database cannot be reached: {one_line(error)}") from error
        except psycopg.Error as error:  # of COPY, which goes by SQLAlchemy
            raise DatabaseAway(f"the database took or gave no usage: {' '.join(str(error).split())[:200]}") from error
        except (TimeoutError, PoolExhausted) as error:
            raise DatabaseAway(f"the database did not answer within {within:g} s") from error


async def driver_of(connection: AsyncConnection) -> psycopg.AsyncConnection:
    """psycopg's own connection below, for COPY and cursors; in the same transaction."""
    return cast(psycopg.AsyncConnection, (await connection.get_raw_connection()).driver_connection)
