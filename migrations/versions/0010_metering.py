"""What finance asks of a row beside its tokens: tier of service, doubt, tags, sounds and pictures, revisions; of a key: prices, tags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_MEDIA = ("audio_input_tokens", "audio_output_tokens", "image_input_tokens", "image_output_tokens")


def upgrade() -> None:
    op.add_column("usage_ledger", sa.Column("service_tier", sa.Text, nullable=False, server_default=""))
    op.add_column("usage_ledger", sa.Column("doubt", sa.Text))
    op.add_column("usage_ledger", sa.Column("tags", JSONB, nullable=False, server_default="{}"))
    for name in _MEDIA:
        op.add_column("usage_ledger", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("usage_ledger", sa.Column("revision", sa.SmallInteger, nullable=False, server_default="0"))
    for table in ("usage_by_day", "usage_by_hour", "usage_rerated_by_day"):
        for name in ("counted_prompt_tokens", "compared_prompt_tokens"):
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("keys", sa.Column("require_pricing", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("keys", sa.Column("tags", JSONB, nullable=False, server_default="{}"))
