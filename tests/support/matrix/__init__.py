"""Clients and providers that agree on nothing but what is said: the tables that the matrix of skins and dialects is made from."""
