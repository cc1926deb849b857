"""Tests against real PostgreSQL, Valkey, gRPC and sockets, one part of n4n at a time."""
