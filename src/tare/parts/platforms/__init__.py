"""The platforms, each in the file of its name, or with a near relative."""

SHARED = {
    "qemu": ("firecracker", "microvm", "qemu"),
    "runc": ("containerd", "crun", "gvisor", "runc"),
}
"""Files of several platforms, which are classes in it (see tare_inside/named.py); others have a file of their own."""
