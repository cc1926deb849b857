"""Counts of tokens that n4n makes itself, beside those that providers report: which answers, by which vocabulary, of which texts."""
