"""n4n: an LLM gateway that a team runs itself."""

__version__ = "0.1.0"
