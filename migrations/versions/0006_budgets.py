"""Several budgets for each key and tenant, caps by provider, and which levels were told of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# What was stored and never kept is kept from now on, and its window begins now.
_FROM_ONE = """
    UPDATE keys SET budgets = jsonb_build_array(jsonb_build_object(
        'usd', CAST(trim_scale(budget_usd) AS text), 'window', coalesce(budget_window, 'month'),
        'since_ms', CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)))
    WHERE budget_usd > 0"""


def upgrade() -> None:
    op.add_column("keys", sa.Column("budgets", JSONB, nullable=False, server_default="[]"))
    op.execute(_FROM_ONE)
    op.add_column("tenants", sa.Column("budgets", JSONB, nullable=False, server_default="[]"))
    op.add_column("tenants", sa.Column("provider_caps", JSONB, nullable=False, server_default="{}"))
    op.add_column("tenants", sa.Column("access_version", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_tenants_access_version", "tenants", ["access_version"])
    op.create_table(
        "budget_alerts",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("tenant", "public_id", "provider", "budget")),
        sa.Column("begins_at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("level", sa.SmallInteger, nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
    )
