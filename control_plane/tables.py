"""The tables of the control plane's database, as the newest revision in `migrations/` leaves them."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, ForeignKey, Integer, LargeBinary, MetaData, Numeric, Table, Text, func
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
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("author", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("public_id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False, index=True),
    Column("secret_sha256", LargeBinary, nullable=False),  # of the secret part alone; the secret itself is never stored
    Column("previous_sha256", LargeBinary),  # the secret before a rotation, valid until the next column
    Column("previous_expires_at", DateTime(timezone=True), index=True),
    Column("limits", JSONB, nullable=False),  # {rpm, tpm, burst, concurrency, streams}
    Column("budget_usd", Numeric(20, 6)),
    Column("budget_window", Text),
    Column("directives", ARRAY(Text), nullable=False),
    Column("require_directives", ARRAY(Text), nullable=False),
    Column("models", ARRAY(Text), nullable=False),
    Column("author", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("revoked_at", DateTime(timezone=True)),
    Column("access_version", BigInteger, nullable=False, index=True),  # the version that last touched this key
    CheckConstraint("octet_length(secret_sha256) = 32", name="keys_secret_is_a_sha256"),
)

access_versions = Table(
    "access_versions",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("author", Text, nullable=False),
    Column("committed_at", DateTime(timezone=True), nullable=False),
    Column("change", Text, nullable=False),  # "create k1…", "rotate k1…"
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
