"""The data plane: a router, one process, between applications and providers."""
