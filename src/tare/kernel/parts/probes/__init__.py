"""The probes that trace the kernel."""

SHARED = {"ftrace": ("ftrace", "perf", "syscalls")}
"""Files of several probes, which are classes in it (see tare_inside/named.py)."""
