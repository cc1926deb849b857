"""Brings a database to the newest revision, one control plane at a time."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

import migrations
from n4n import __version__
from n4n.core.errors import StartFailed

_LOCK = 0x6E346E01  # Postgres advisory lock "n4n migrates"
_CONNECT = {"connect_timeout": "5", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}


class DatabaseAway(StartFailed):
    """The database cannot be reached; one line says why, without the URL."""


def engine_url(database_url: str) -> URL:
    """N4N_DATABASE_URL as a URL of the psycopg 3 driver; StartFailed in one line when it is none."""
    if not database_url:
        raise StartFailed("N4N_DATABASE_URL is empty; give postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or use n4n up")
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError) as error:
        raise StartFailed("N4N_DATABASE_URL must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE") from error
    if "@" in (url.host or ""):  # it would be looked up, and told as a host that there is not
        raise StartFailed("N4N_DATABASE_URL has an @ in its user or password; write it as %40")
    if url.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise StartFailed(f"N4N_DATABASE_URL must begin with postgresql://, not {url.drivername}://")
    known = {name: value for name, value in _CONNECT.items() if name not in url.query}
    return url.set(drivername="postgresql+psycopg").update_query_dict(known)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for the revisions inside the package."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def migrate(database_url: str, *, to: str = "head") -> str:
    """Upgrades to a revision, the newest unless told, and returns its name; a second call changes nothing.

    All revisions run in one transaction under an advisory lock, so two programs starting at once do not collide and a
    failure leaves the database as it was. DatabaseAway when it cannot be reached, StartFailed when it is of a newer n4n.
    """
    engine = create_engine(engine_url(database_url), poolclass=NullPool, hide_parameters=True)
    try:
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '60s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            config = alembic_config(connection)
            _refuse_newer(connection, config)
            command.upgrade(config, to)
            return MigrationContext.configure(connection).get_current_revision() or ""
    except OperationalError as error:
        raise DatabaseAway(f"the database cannot be reached: {one_line(error)}") from error
    except DBAPIError as error:
        raise StartFailed(f"the database schema cannot be brought to its newest revision: {one_line(error)}") from error
    finally:
        engine.dispose()


def _refuse_newer(connection: Connection, config: Config) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    for revision in MigrationContext.configure(connection).get_current_heads():
        if revision not in known:
            raise StartFailed(
                f"the database is at schema revision {revision}, which n4n {__version__} does not know; start a newer n4n on it"
            )


def one_line(error: DBAPIError) -> str:
    """What the driver said, as one line."""
    return " ".join(str(error.orig).split())[:300] or type(error.orig).__name__
