"""Tenants, keys and the version line of both."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("public_id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False, index=True),
        sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
        sa.Column("previous_sha256", sa.LargeBinary),
        sa.Column("previous_expires_at", sa.DateTime(timezone=True)),
        sa.Column("limits", JSONB, nullable=False),
        sa.Column("budget_usd", sa.Numeric(20, 6)),
        sa.Column("budget_window", sa.Text),
        sa.Column("directives", ARRAY(sa.Text), nullable=False),
        sa.Column("require_directives", ARRAY(sa.Text), nullable=False),
        sa.Column("models", ARRAY(sa.Text), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("access_version", sa.BigInteger, nullable=False),
        sa.CheckConstraint("octet_length(secret_sha256) = 32", name="keys_secret_is_a_sha256"),
    )
    op.create_table(
        "access_versions",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("change", sa.Text, nullable=False),
    )
