"""The nodes of the fleet and what each has applied."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "nodes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("build", sa.Text, nullable=False),
        sa.Column("connected_to", sa.Text),
        sa.Column("applied_version", sa.BigInteger, nullable=False),
        sa.Column("access_version", sa.BigInteger, nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("last_ack", sa.DateTime(timezone=True)),
        sa.Column("last_nack", sa.Text),
    )
