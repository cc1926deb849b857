"""The steady-load run: two routers behind a balancer, 50 requests a second, one fault after the other. Figures: docs/operations.md."""
