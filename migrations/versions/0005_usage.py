"""The usage ledger, partitioned by day, and its roll-ups by day and by hour."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_SUMS = (
    "attempts", "requests", "failed", "unknown", "unpriced", "estimated", "prompt_tokens", "cached_tokens", "cache_write_tokens",
    "completion_tokens", "reasoning_tokens", "counted_completion_tokens", "compared_completion_tokens",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "usage_ledger",
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt_id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("request_id", "tenant", "key_id", "endpoint", "provider", "account")),
        sa.Column("attempt_no", sa.SmallInteger, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("catalog_version", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error_class", sa.Text),
        sa.Column("status", sa.SmallInteger),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("priority", sa.Text, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                "prompt_tokens",
                "cached_tokens",
                "cache_write_tokens",
                "cache_write_1h_tokens",
                "completion_tokens",
                "reasoning_tokens",
            )
        ),
        sa.Column("counted_prompt_tokens", sa.BigInteger),
        sa.Column("counted_completion_tokens", sa.BigInteger),
        sa.Column("counted_by", sa.Text),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("cost_usd", sa.Numeric),
        sa.Column("latency_ms", sa.Float),
        sa.Column("ttft_ms", sa.Float),
        sa.PrimaryKeyConstraint("started_at", "attempt_id"),
        postgresql_partition_by="RANGE (started_at)",
    )
    unknown = sa.text("state = 'unknown'")  # few, and looked for with every batch
    op.create_index("usage_ledger_unknown", "usage_ledger", ["started_at", "attempt_id"], postgresql_where=unknown)
    _roll_up("usage_by_day", sa.Column("day", sa.Date), "tenant", "key_id", "model", "provider", "endpoint")
    _roll_up("usage_by_hour", sa.Column("hour", sa.DateTime(timezone=True)), "endpoint", "provider", "model")


def _roll_up(name: str, time: sa.Column[object], *groups: str) -> None:
    op.create_table(
        name,
        time,
        *(sa.Column(group, sa.Text, nullable=False) for group in groups),
        *(sa.Column(total, sa.BigInteger, nullable=False) for total in _SUMS),
        sa.Column("cost_usd", sa.Numeric, nullable=False),
        sa.PrimaryKeyConstraint(time.name, *groups),
    )
