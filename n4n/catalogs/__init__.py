"""Catalogs that come with n4n: the built-in one, enabled by the keys that are set, and the one of the simulated providers."""

from n4n.catalogs.builtin import builtin_document
from n4n.catalogs.simulated import sim_document

__all__ = ["builtin_document", "sim_document"]
