"""Limits of tenants, and the usual priority of keys and tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("limits", JSONB, nullable=False, server_default="{}"))
    op.add_column("tenants", sa.Column("priority", sa.Text))
    op.add_column("keys", sa.Column("priority", sa.Text))
