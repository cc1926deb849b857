"""Alembic migrations of the control plane's Postgres schema; they travel inside the package."""
