"""Indexes by which a control plane finds the keys that changed since a version, among 100,000."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in ("access_version", "expires_at", "previous_expires_at"):
        op.create_index(f"ix_keys_{column}", "keys", [column])
