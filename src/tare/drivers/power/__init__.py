"""Setting clocks, cores, watts and fans: one back end a file, behind the protocol in backend.py."""
