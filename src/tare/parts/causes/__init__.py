"""Why a container is slower: a file for each cause, with its evidence, how it is tried and what cures it.

Causes that only compare variables share a file, which holds their tables.
"""

SHARED = {
    "variables": ("bytecode", "caches", "debug_variables", "interconnect", "other_arguments", "other_variables"),
}
"""Files of several causes, which are classes in it (see tare_inside/named.py); others have a file of their own."""
