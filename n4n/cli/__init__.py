"""The n4n command."""
