"""The probes, each in the file of its name, or of its subject."""

SHARED = {
    "cpu": ("cpu", "frequency"),
    "memory": ("disk", "memory", "page_cache"),
    "power": ("power_rails", "power_rapl"),
    "thermal": ("temperature", "thermal"),
}
"""Files of several probes, which are classes in it (see tare_inside/named.py); others have a file of their own."""
