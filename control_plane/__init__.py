"""The control plane: owns the versioned catalog and keys in Postgres and pushes them to every router."""
