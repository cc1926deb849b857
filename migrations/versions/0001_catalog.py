"""Catalog versions, and the head of each collection."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    heads = op.create_table(
        "heads",
        sa.Column("collection", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.bulk_insert(heads, [{"collection": "catalog", "version": 0}, {"collection": "access", "version": 0}])
    op.create_table(
        "catalog_versions",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("endpoint_states", JSONB, nullable=False),
        sa.Column("changes", JSONB, nullable=False),
        sa.Column("endpoints", sa.Integer, nullable=False),
    )
