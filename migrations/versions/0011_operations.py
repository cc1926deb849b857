"""What alerts and service levels are read from, the alerts that stand, and what is to be told of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_LEVELS = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms", "tokens_per_s")


def _at(name: str, *, primary_key: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, primary_key=primary_key)


def _counts(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "traffic_by_minute",
        _at("minute", primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("provider", "model", "endpoint")),
        *_counts("attempts", "first_attempts", "failed", "unpriced"),
        *(sa.Column(name, JSONB, nullable=False) for name in ("latency", "ttft")),
    )
    op.create_table(
        "requests_by_minute", _at("minute", primary_key=True), *_counts("ended", "failed", "fell_back", "changes", "inversions")
    )
    op.create_table(
        "sla_by_hour",
        _at("hour", primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("provider", "model", "region")),
        *_counts("attempts", "failed"),
        *(sa.Column(name, sa.Double) for name in _LEVELS),
    )
    op.create_table("vitals", sa.Column("node", sa.Text, primary_key=True), _at("at"), sa.Column("said", JSONB, nullable=False))
    op.create_table(
        "alerts",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("labels", JSONB, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        _at("since"),
        _at("last_wrong"),
        sa.Column("firing", sa.Boolean, nullable=False),
    )
    op.create_table(
        "alert_notices",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        _at("at"),
        _at("due"),
        sa.Column("told", JSONB, nullable=False),
        sa.Column("pending", JSONB, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    )
