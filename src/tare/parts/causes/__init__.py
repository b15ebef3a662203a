"""Why a container is slower: a file for each cause, with its evidence, how it is tried and what cures it."""
