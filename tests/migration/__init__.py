"""The schema's revisions on a real PostgreSQL."""
