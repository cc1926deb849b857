"""The skins: HTTP shapes over the one engine."""
