"""The control plane: its decisions without sockets, and the client side that the integration tests use."""
