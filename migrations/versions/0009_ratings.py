"""Periods of the usage ledger at other prices, beside it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SUMS = (
    "attempts", "requests", "failed", "unknown", "unpriced", "estimated", "prompt_tokens", "cached_tokens", "cache_write_tokens",
    "completion_tokens", "reasoning_tokens", "counted_completion_tokens", "compared_completion_tokens",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "usage_ratings",
        sa.Column("label", sa.Text, primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prices", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("rows", "kept", "unpriced")),
        *(sa.Column(name, sa.Numeric, nullable=False) for name in ("before_usd", "cost_usd")),
    )
    op.create_table(
        "usage_rerated",
        sa.Column("label", sa.Text, primary_key=True),
        sa.Column("started_at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("attempt_id", sa.Text, primary_key=True),
        sa.Column("cost_usd", sa.Numeric),
    )
    op.create_table(
        "usage_rerated_by_day",
        sa.Column("day", sa.Date, primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("label", "tenant", "key_id", "model", "provider", "endpoint")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS),
        sa.Column("cost_usd", sa.Numeric, nullable=False),
    )
