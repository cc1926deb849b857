"""The audit trail: append only, also for those who have the password."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_REFUSE = """
    CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'the audit trail is append only'; END $$
"""


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, index=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("author", "source", "action", "kind", "name")),
        sa.Column("before", JSONB),
        sa.Column("after", JSONB),
        sa.Index("audit_of_a_thing", "kind", "name"),
    )
    op.execute(_REFUSE)
    op.execute("CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_is_append_only()")
    op.execute("CREATE TRIGGER audit_stays_whole BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()")


def downgrade() -> None:
    op.drop_table("audit")
    op.execute("DROP FUNCTION audit_is_append_only()")
