"""The load harness: n4n beside a bare aiohttp proxy and beside the upstream itself, as ratios. Nothing here runs in a gateway."""
