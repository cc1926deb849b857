"""The control plane: its decisions without sockets, and the client side that the integration tests use."""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # these tests start child programs beside open streams
