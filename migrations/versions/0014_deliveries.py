"""Each receiver of an alert is told by itself; tokens that were counted exactly, by the minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COMPARED = ("reported_input", "counted_input", "reported_output", "counted_output")


def upgrade() -> None:
    op.create_table(
        "alert_deliveries",
        sa.Column("notice", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("receiver", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Index("alert_deliveries_in_order", "receiver", "key", "notice"),
    )
    op.execute(
        "INSERT INTO alert_deliveries (notice, receiver, key, due, tries) "
        "SELECT id, receiver, coalesce(told ->> 'key', ''), due, tries FROM alert_notices, jsonb_array_elements_text(pending) AS receiver"
    )
    op.execute("UPDATE alert_notices SET pending = '[]' WHERE pending <> '[]'")
    for name in _COMPARED:
        op.add_column("traffic_by_minute", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
