"""Why a container is slower: the causes, by subject, each with its evidence, how it is tried and what cures it."""

SHARED = {
    "cpu": ("cpu_quota", "cpu_set", "cpu_weight", "other_processes", "threads"),
    "container": (
        "allocator",
        "cold_layers",
        "io_limit",
        "memory_limit",
        "network",
        "output",
        "root_files",
        "seccomp",
        "shared_memory",
        "ulimits",
    ),
    "software": (
        "entry_point",
        "instruction_set",
        "software",
        "start_up_files",
    ),
    "variables": ("bytecode", "caches", "debug_variables", "interconnect", "other_arguments", "other_variables"),
}
"""Files of several causes, which are classes in it (see tare_inside/named.py); others have a file of their own."""
