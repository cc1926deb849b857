"""The control plane: owns the versioned catalog and keys in Postgres and pushes them to every router."""

import os

# Read by grpc when it is first imported: its fork handlers crash child processes that start while a stream is open.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
