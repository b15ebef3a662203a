"""The devices of a fleet: what holds for all of them, how they scatter, and which is an outlier."""
