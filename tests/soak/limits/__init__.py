"""Acceptance runs of shared limits: real routers, a real Redis, a provider that counts. `python -m tests.soak.limits -h` lists them."""
