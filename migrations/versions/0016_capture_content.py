"""Whether a tenant wants traces of its requests to bear what was said."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("capture_content", sa.Boolean, nullable=False, server_default=sa.false()))
