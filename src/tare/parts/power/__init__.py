"""Back ends of `power_mode`: one file each, behind the protocol in backend.py."""
