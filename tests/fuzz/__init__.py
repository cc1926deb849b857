"""Entries for a fuzzer, run by hand: `pip install atheris`, then `python -m tests.fuzz.directives`."""
