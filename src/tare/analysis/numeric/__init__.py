"""Statistics that know nothing of stores: medians, distributions, rank statistics, components of variance."""
