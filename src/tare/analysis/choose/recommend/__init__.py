"""Which configuration to use: the best one that surely keeps the limits, what it gains, and how sure that is."""
