"""Faults that users of other gateways reported in public, as kinds that must not exist here. Docstrings bear the report's number."""
