"""`python -m tests.soak.ledger`: mixed requests on two routers, and an upstream that keeps its own bill: the ledger says the same."""
