"""The tables of the control plane's database, as the newest revision in `migrations/` leaves them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

# One row per collection. Whoever commits a version locks its row first: versions come without gaps and in order.
heads = Table(
    "heads",
    metadata,
    Column("collection", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("committed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

catalog_versions = Table(
    "catalog_versions",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("author", Text, nullable=False),
    Column("committed_at", DateTime(timezone=True), nullable=False),
    Column("message", Text, nullable=False),
    Column("checksum", Text, nullable=False),  # of the catalog collection as it travels
    Column("document", Text, nullable=False),  # normal form, canonical JSON
    Column("endpoint_states", JSONB, nullable=False),  # {endpoint: draining | disabled}
    Column("changes", JSONB, nullable=False),  # [[path, before, after], …] against the version before
    Column("endpoints", Integer, nullable=False),
    Column("traceparent", Text),  # of the call that committed it, where that was traced: what is published links to it
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("author", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("budgets", JSONB, nullable=False, server_default="[]"),  # as in control_plane.budget_rules
    Column("provider_caps", JSONB, nullable=False, server_default="{}"),  # {provider: budget}
    Column("limits", JSONB, nullable=False, server_default="{}"),  # of all its keys together, as those of a key
    Column("priority", Text),  # of its keys' requests that name none
    Column("capture_content", Boolean, nullable=False, server_default="false"),  # traces of its requests bear what was said
    Column("access_version", BigInteger, nullable=False, server_default="0", index=True),  # the version that last touched its rules
)

keys = Table(
    "keys",
    metadata,
    Column("public_id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False, index=True),
    Column("secret_sha256", LargeBinary, nullable=False),  # of the secret part alone; the secret itself is never stored
    Column("previous_sha256", LargeBinary),  # the secret before a rotation, valid until the next column
    Column("previous_expires_at", DateTime(timezone=True), index=True),
    Column("limits", JSONB, nullable=False),  # {rpm, tpm, rpd, tpd, burst, concurrency, streams}
    Column("priority", Text),  # of requests that name none
    Column("budget_usd", Numeric(20, 6)),  # before there were `budgets`; not used
    Column("budget_window", Text),
    Column("budgets", JSONB, nullable=False, server_default="[]"),  # as in control_plane.budget_rules
    Column("directives", ARRAY(Text), nullable=False),
    Column("require_directives", ARRAY(Text), nullable=False),
    Column("models", ARRAY(Text), nullable=False),
    Column("require_pricing", Boolean, nullable=False, server_default="false"),
    Column("tags", JSONB, nullable=False, server_default="{}"),
    Column("author", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("revoked_at", DateTime(timezone=True)),
    Column("access_version", BigInteger, nullable=False, index=True),  # the version that last touched this key
    CheckConstraint("octet_length(secret_sha256) = 32", name="keys_secret_is_a_sha256"),
)

# Written with the change itself. Triggers refuse to alter or delete an entry.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("author", Text, nullable=False),  # as the caller said
    Column("source", Text, nullable=False),  # the caller's address
    Column("action", Text, nullable=False),
    Column("kind", Text, nullable=False),  # catalog, endpoint, key, tenant, budget
    Column("name", Text, nullable=False),
    Column("before", JSONB(none_as_null=True)),
    Column("after", JSONB(none_as_null=True)),
    Index("audit_of_a_thing", "kind", "name"),
)

# What alerts and service levels are read from; added up by a control plane from the ledger, and from what routers say of themselves.
traffic_by_minute = Table(
    "traffic_by_minute",
    metadata,
    Column("minute", DateTime(timezone=True), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("provider", "model", "endpoint")),
    *(Column(name, BigInteger, nullable=False) for name in ("attempts", "first_attempts", "failed", "unpriced")),
    Column("latency", JSONB, nullable=False),  # counts by size
    Column("ttft", JSONB, nullable=False),
    *(
        Column(name, BigInteger, nullable=False, server_default="0")
        for name in ("reported_input", "counted_input", "reported_output", "counted_output")
    ),  # tokens that were both reported and counted exactly
)
requests_by_minute = Table(
    "requests_by_minute",
    metadata,
    Column("minute", DateTime(timezone=True), primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in ("ended", "failed", "fell_back", "changes", "inversions")),
)
sla_by_hour = Table(
    "sla_by_hour",
    metadata,
    Column("hour", DateTime(timezone=True), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("provider", "model", "region")),
    *(Column(name, BigInteger, nullable=False) for name in ("attempts", "failed")),
    *(
        Column(name, Double)
        for name in (
            "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms", "tokens_per_s",
        )
    ),
)  # fmt: skip
sla_late_hours = Table(  # hours of sla_by_hour that got rows after they were over; one entry for each time
    "sla_late_hours",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("hour", DateTime(timezone=True), nullable=False),
)
vitals = Table(
    "vitals",
    metadata,
    Column("node", Text, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("said", JSONB, nullable=False),
)
alerts = Table(
    "alerts",
    metadata,
    Column("key", Text, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Double, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("last_wrong", DateTime(timezone=True), nullable=False),
    Column("firing", Boolean, nullable=False),
)
alert_notices = Table(
    "alert_notices",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("told", JSONB, nullable=False),
    Column("due", DateTime(timezone=True), nullable=False),  # this and the next two: as they were used before revision 0014
    Column("pending", JSONB, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
)
alert_deliveries = Table(  # receivers that have not taken a notice yet
    "alert_deliveries",
    metadata,
    Column("notice", BigInteger, primary_key=True, autoincrement=False),
    Column("receiver", Text, primary_key=True),  # by the name that does not tell who it is
    Column("key", Text, nullable=False),  # of the trouble: it is told in order
    Column("due", DateTime(timezone=True), nullable=False),  # when it is tried next
    Column("tries", Integer, nullable=False, server_default="0"),
    Index("alert_deliveries_in_order", "receiver", "key", "notice"),
)

access_versions = Table(
    "access_versions",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("author", Text, nullable=False),
    Column("committed_at", DateTime(timezone=True), nullable=False),
    Column("change", Text, nullable=False),  # "create k1…", "rotate k1…"
)

# Which levels of which budget were told of, so that each is told once in a window.
budget_alerts = Table(
    "budget_alerts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("public_id", Text, primary_key=True),  # empty: the tenant's own
    Column("provider", Text, primary_key=True),  # of a cap; empty: of a budget
    Column("budget", Text, primary_key=True),  # usd/month
    Column("begins_at", DateTime(timezone=True), primary_key=True),  # the window; of a rolling one since when it counts
    Column("level", SmallInteger, nullable=False),  # the highest told of: 50, 80 or 100
    Column("told_at", DateTime(timezone=True), nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("build", Text, nullable=False),
    Column("connected_to", Text),  # the control plane that holds its stream; NULL: none
    Column("applied_version", BigInteger, nullable=False),
    Column("access_version", BigInteger, nullable=False),
    Column("last_seen", DateTime(timezone=True), nullable=False, index=True),
    Column("last_ack", DateTime(timezone=True)),
    Column("last_nack", Text),  # "version 7: endpoints.x: …"; empty: none since the last ACK
)

# One row for every attempt that was dispatched to a provider, in its last state. Partitions, one a day, are made in control_plane.ledger.
usage_ledger = Table(
    "usage_ledger",
    metadata,
    Column("started_at", DateTime(timezone=True), primary_key=True),  # fixed at dispatch
    Column("attempt_id", Text, primary_key=True),  # the gateway's own
    Column("request_id", Text, nullable=False),
    Column("attempt_no", SmallInteger, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("catalog_version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # ok, partial, failed, cancelled, unknown; a later row replaces an unknown one
    Column("error_class", Text),
    Column("status", SmallInteger),  # the provider's
    Column("stream", Boolean, nullable=False),
    Column("priority", Text, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),  # all input
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("cache_write_1h_tokens", BigInteger, nullable=False),  # of cache_write_tokens
    Column("completion_tokens", BigInteger, nullable=False),  # all output
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("counted_prompt_tokens", BigInteger),
    Column("counted_completion_tokens", BigInteger),
    Column("counted_by", Text),
    Column("estimated", Boolean, nullable=False),  # the tokens are our own count, or cut to fit together
    Column("cost_usd", Numeric),  # NULL: unpriced
    Column("latency_ms", Double),
    Column("ttft_ms", Double),
    Column("service_tier", Text, nullable=False, server_default=""),  # the answer's own; empty: the usual one
    Column("doubt", Text),  # why it is estimated: missing, zero, negative, not_a_number, absurd, inconsistent
    Column("tags", JSONB, nullable=False, server_default="{}"),  # {team: search}
    Column("audio_input_tokens", BigInteger, nullable=False, server_default="0"),  # of prompt_tokens, neither cached nor written
    Column("audio_output_tokens", BigInteger, nullable=False, server_default="0"),  # of completion_tokens
    Column("image_input_tokens", BigInteger, nullable=False, server_default="0"),
    Column("image_output_tokens", BigInteger, nullable=False, server_default="0"),
    Column("revision", SmallInteger, nullable=False, server_default="0"),  # a row of a higher one replaces it
    Index("usage_ledger_unknown", "started_at", "attempt_id", postgresql_where=text("state = 'unknown'")),
    postgresql_partition_by="RANGE (started_at)",
)


def _roll_up(name: str, time: Column[Any], *groups: str) -> Table:
    """Sums of the ledger, kept in the transactions that change it."""
    sums = (
        "attempts", "requests", "failed", "unknown", "unpriced", "estimated", "prompt_tokens", "cached_tokens", "cache_write_tokens",
        "completion_tokens", "reasoning_tokens", "counted_completion_tokens", "compared_completion_tokens",
    )  # fmt: skip
    return Table(
        name,
        metadata,
        time,
        *(Column(group, Text, primary_key=True) for group in groups),
        *(Column(total, BigInteger, nullable=False) for total in sums),
        *(Column(total, BigInteger, nullable=False, server_default="0") for total in ("counted_prompt_tokens", "compared_prompt_tokens")),
        Column("cost_usd", Numeric, nullable=False),
    )


usage_by_day = _roll_up("usage_by_day", Column("day", Date, primary_key=True), "tenant", "key_id", "model", "provider", "endpoint")
usage_by_hour = _roll_up("usage_by_hour", Column("hour", DateTime(timezone=True), primary_key=True), "endpoint", "provider", "model")

# Periods at other prices. A rating has a row for every attempt of its period: what it costs then, and nothing else of it.
usage_ratings = Table(
    "usage_ratings",
    metadata,
    Column("label", Text, primary_key=True),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("author", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("prices", Text, nullable=False),  # where they came from, in words
    Column("rows", BigInteger, nullable=False),
    Column("kept", BigInteger, nullable=False),  # of them at the price they had
    Column("unpriced", BigInteger, nullable=False),
    Column("before_usd", Numeric, nullable=False),
    Column("cost_usd", Numeric, nullable=False),
)
usage_rerated = Table(
    "usage_rerated",
    metadata,
    Column("label", Text, primary_key=True),
    Column("started_at", DateTime(timezone=True), primary_key=True),
    Column("attempt_id", Text, primary_key=True),
    Column("cost_usd", Numeric),  # NULL: unpriced
)
usage_rerated_by_day = _roll_up(
    "usage_rerated_by_day", Column("day", Date, primary_key=True), "label", "tenant", "key_id", "model", "provider", "endpoint"
)
