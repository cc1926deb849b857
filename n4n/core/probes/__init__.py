"""Probes, decided: who asks what and when, in which words, at what cost, and what an answer means.

schedule   a prober's share of all tasks, by rendezvous hashing, and when each is due
board      what probers share: who lives, when each task is due again, what was spent today
budget     how a day's money stretches the intervals
profile    the request that a model is probed with
verdict    what came of it, and what it speaks of
checks     deeper questions: does it obey a system prompt, a JSON format
balances   what is left on prepaid accounts, as their providers tell it
rows       a probe's lines in the usage ledger
"""
