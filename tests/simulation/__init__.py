"""Seeded worlds on a virtual clock: the real request path over simulated endpoints."""
