"""What probers share, in Redis: the board of n4n.core.probes as one script, and the table of what they found that is no score."""
