"""The pure side of the skins: what a client of each protocol wrote, and what it gets to read."""
