"""A non-volatile layer for flushing, simulated on a trace of page writes: what it saves, by capacity and policy."""
