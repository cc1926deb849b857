"""Quotas as values: what a request reserves, where, and what is told of it. No I/O.

subjects    who has a limit, and the buckets that it is made of
levels      how full the buckets of one subject are: reserve, settle, renew, correct
estimates   the tokens that a request will take, learned from those that came before
shares      what one router may spend while Redis is away
line        who goes next of those that wait for quota
headers     a caller's limits as `x-ratelimit-*`, and a provider's as corrections
"""
