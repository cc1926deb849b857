"""The audit trail's triggers fire for replicas too: a connection that calls itself one could have altered entries."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for trigger in ("audit_stays", "audit_stays_whole"):
        op.execute(f"ALTER TABLE audit ENABLE ALWAYS TRIGGER {trigger}")
