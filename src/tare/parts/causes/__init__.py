"""Why a container is slower: a file for each cause, with its evidence, how it is tried and what cures it.

Causes that only compare variables share a file, which holds their tables.
"""

SHARED = dict.fromkeys(
    ("bytecode", "caches", "debug_variables", "interconnect", "other_arguments", "other_variables"), "variables"
)
"""Parts that share a file: the name of each, and its file."""
