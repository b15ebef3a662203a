"""User-mode Linux: a second kernel as an ordinary process, near native speed where there is no KVM; one processor."""

from __future__ import annotations

import os
import platform
import tty
from pathlib import Path
from typing import ClassVar, Literal

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests.boot import Kernel
from tare.drivers.guests.channel import Terminal, Wire
from tare.drivers.guests.machine import BootContext, Choice, Guest
from tare.parts.protocols import Json

_PROGRAM = "linux.uml"
_NOTE = "a user-mode kernel: system calls and page faults are caught by the device's kernel, computing is not emulated"

# Its console goes to a file. A kernel that was built for a newer system finds that system's C library in the place of
# the device's own, which only a static busybox can still put there; no one else sees it.
_LAUNCH = """console=$1 libc=$2; shift 2
if [ -n "$libc" ]; then
  for file in libc.so.6 ld-linux-x86-64.so.2; do
    busybox mount -o bind "$libc/$file" "/usr/lib/x86_64-linux-gnu/$file" || exit 125
  done
fi
exec "$@" > "$console" 2>&1 < /dev/null
"""


class Uml(Guest):
    """Run in user-mode Linux: a real second kernel as a process of the device. x86 only, one processor."""

    cpus: Literal[1] | None = None
    """A user-mode kernel has one processor."""

    libc: Path | None = None
    """A folder with libc.so.6 and ld-linux-x86-64.so.2 of the system that the kernel was built for."""

    modules: ClassVar[tuple[str, ...]] = ("overlay",)
    boots_within_s: ClassVar[float] = 60.0

    def choices(self, host: Host) -> list[Choice]:
        return [Choice("uml", f"{_NOTE}.")]

    def own_obstacles(self, host: Host) -> list[Ruling]:
        if platform.machine() != "x86_64":
            return [
                obstacle("needs.architecture", f"user-mode Linux is for x86 processors; this is {platform.machine()}.")
            ]
        found = []
        if self._program(host) is None:
            found.append(
                obstacle(
                    "needs.guest-kernel",
                    f"no user-mode kernel here ({self.kernel or _PROGRAM}): `apt-get install user-mode-linux` "
                    "brings it, or name one with `kernel:`.",
                )
            )
        if host.run(["busybox"]).code == 127:
            found.append(obstacle("needs.program", "a guest needs busybox: run `apt-get install busybox-static`."))
        if self.libc is not None and not (self.libc / "libc.so.6").is_file():
            found.append(obstacle("needs.file", f"no libc.so.6 in {self.libc}."))
        return found

    def vcpus(self, host: Host) -> int:
        return 1

    def _program(self, host: Host) -> str | None:
        requested = str(self.kernel or _PROGRAM)
        return host.run(["sh", "-c", 'command -v -- "$1"', "find", requested]).out.strip() or None

    def guest_kernel(self) -> Kernel | None:
        """Its modules, if it has any, are not with those of other kernels."""
        return Kernel(self.kernel or Path(_PROGRAM), "uml")

    def start(self, boot: BootContext) -> Wire:
        """The line to the agent is a pseudo-terminal whose far end the kernel takes for its serial port."""
        near, far = os.openpty()
        tty.setraw(near)
        tty.setraw(far)
        boot.start(boot.share.around(self.command(boot, os.ttyname(far))))
        os.close(far)
        return Terminal(near)

    def command(self, boot: BootContext, terminal: str) -> tuple[str, ...]:
        program = self._program(boot.host)
        assert program is not None  # an obstacle otherwise
        ours = {"fs": "hostfs", "source": "none", "options": f"ro,{boot.share.folder}"}
        ours |= {"below": "root", "port": "tty:/dev/ttyS0"}
        words = [f"tare.{name}={value}" for name, value in ours.items()]
        kernel = (
            program, f"mem={self.memory_bytes() >> 20}M", f"initrd={boot.initramfs}", "umid=machine",
            f"uml_dir={boot.folder}/", "seccomp=on", "con=null", "con0=null,fd:1", f"ssl0=tty:{terminal}", "quiet",
            "panic=-1", *words,
        )  # fmt: skip
        libc = "" if self.libc is None else str(self.libc)
        return ("sh", "-c", _LAUNCH, "uml", str(boot.console), libc, *kernel)

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        return {"root": "hostfs"}
