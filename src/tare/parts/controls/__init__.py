"""The controls, each in the file of its name, or of its subject."""

SHARED = {
    "page_cache": ("dirty", "page_cache"),
    "power": ("cpu", "dvfs", "power_mode", "wake_on_lan"),
}
"""Files of several controls, which are classes in it (see tare_inside/named.py); others have a file of their own."""
