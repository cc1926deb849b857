"""The health of endpoints as values: what was seen, and the score, breaker and measures that come of it. No I/O.

signals     one observation of an endpoint: probe or live, how it ended, how long it took
policy      how fast a score falls, comes back and is forgotten
spread      how long first tokens take and how fast output comes: a moving average and quantiles
news        the signals of one endpoint between two words to the others
standing    what all of them together know of one endpoint: the fold that the Lua scripts of n4n/runtime/health do too
seen        what a router keeps of it
"""
