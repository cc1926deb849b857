"""The trace that a catalog version was committed in, for what is published of it to link to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("catalog_versions", sa.Column("traceparent", sa.Text))
