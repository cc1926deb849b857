"""Tests of the load harness: its arithmetic and what it sends. Nothing is timed."""
