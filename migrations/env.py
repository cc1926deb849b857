"""Runs the revisions on the connection that `control_plane.schema` hands in, or, for the alembic command, on N4N_DATABASE_URL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, pool

from control_plane.schema import engine_url
from control_plane.tables import metadata
from n4n.runtime.settings import read_settings


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    _run(handed_in)
else:
    engine = create_engine(engine_url(read_settings().database_url), poolclass=pool.NullPool, hide_parameters=True)
    with engine.connect() as own:
        _run(own)
