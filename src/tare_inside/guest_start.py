"""How the first process of a virtual machine gets up: its channel, its groups, its name."""

import contextlib
import errno
import fcntl
import os
import socket
import struct
import sys
import time

from tare_inside.guest_jobs import JOBS, tell

_VSOCK_ANY = 0xFFFFFFFF


def words():
    """`tare.NAME=VALUE` of the kernel's command line."""
    with open("/proc/cmdline") as file:
        pairs = [word[5:].split("=", 1) for word in file.read().split() if word.startswith("tare.") and "=" in word]
    return dict(pairs)


def open_port(address):
    """The channel: `virtio:NAME`, `vsock:PORT` or `tty:PATH`."""
    kind, _, value = address.partition(":")
    return {"virtio": _virtio, "vsock": _vsock, "tty": _terminal}[kind](value)


def _virtio(name):
    ports = "/sys/class/virtio-ports"
    for _ in range(100):
        for port in os.listdir(ports) if os.path.isdir(ports) else []:
            with open("%s/%s/name" % (ports, port)) as file:
                if file.read().strip() == name:
                    return os.open("/dev/" + port, os.O_RDWR)
        time.sleep(0.05)
    raise OSError(errno.ENODEV, "there is no virtio port called " + name)


def _vsock(port):
    door = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    door.bind((_VSOCK_ANY, int(port)))
    door.listen(1)
    line, _ = door.accept()
    return line.detach()


def _terminal(path):
    import tty  # only here: every module costs time where everything is emulated

    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(descriptor)
    return descriptor


def settle():
    """What the start-up script cannot do: groups for jobs, the loopback interface, a name, our own safety."""
    for attempt in (lambda: socket.sethostname("tare"), _loopback_up, lambda: os.mkdir(JOBS)):
        try:
            attempt()
        except OSError as error:
            sys.stderr.write("tare: %s\n" % error)
    with contextlib.suppress(OSError):
        tell("/proc/self/oom_score_adj", "-1000")


def _loopback_up():
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        asked = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(line, get_flags, asked), 16)
        fcntl.ioctl(line, set_flags, struct.pack("16sh14x", b"lo", flags | up))
