"""The device's root as a guest sees it: a read-only share of `/`, with what the trial reads beside it.

The share is put together in a mount namespace of its own, by the very process that serves it: the device's mount
table never shows it, and when that process dies, so do the mounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.host import Host, Site
from tare.parts import hostroot
from tare.parts.kernels import Kernel

_VIRTIOFSD = ("virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd")
_OPEN_FILES = 20_000  # its own default is refused where root lacks CAP_SYS_RESOURCE

# Arguments, not text: the folder, each path to show, `--`, then the command that takes the shell's place.
_EXPORT = """into=$1; shift
show() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 125; }
mkdir -p "$into/root" && show / "$into/root" || exit 125
n=0
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$into/$n"; else : >> "$into/$n"; fi
  show "$1" "$into/$n"; n=$((n + 1)); shift
done
shift; exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Export:
    """A share that is still to be made: where, and what it shows beside `/`."""

    folder: Path
    shown: tuple[str, ...]

    def around(self, command: Sequence[str]) -> tuple[str, ...]:
        """`command`, started where the share can be seen."""
        private = ("unshare", "--mount", "--propagation", "private")
        return (*private, "sh", "-c", _EXPORT, "tare-export", str(self.folder), *self.shown, "--", *command)


def export(host: Host, site: Site, folder: Path) -> Export:
    """The share for a site: `/` itself, and whatever of its needs a share of `/` alone would not show."""
    beside = [bind.source for bind in hostroot.binds(host, site) if not bind.writable]
    return Export(folder, tuple(beside))


def virtiofsd(host: Host) -> str | None:
    """Where the program is that serves a folder to a guest."""
    return next((path for path in _VIRTIOFSD if host.run([path, "--version"]).code == 0), None)


def virtiofsd_command(host: Host, program: str, socket: Path, folder: Path) -> tuple[str, ...]:
    """The command of either program of this name: the one that came with QEMU until 7, and the one in Rust."""
    limit = f"--rlimit-nofile={_OPEN_FILES}"
    if "--shared-dir" in host.run([program, "--help"]).out:
        newer = (f"--shared-dir={folder}", "--cache=always", "--sandbox=chroot")
        return (program, f"--socket-path={socket}", *newer, limit)
    older = ("-o", f"source={folder}", "-o", "cache=always", "-o", "sandbox=chroot", "--thread-pool-size=2")
    return (program, f"--socket-path={socket}", *older, limit)


def way(host: Host, kernel: Kernel) -> str | None:
    """How this kernel can see a share of ours: virtiofs, else 9p; None if it knows neither."""
    if kernel.offers("virtiofs") and virtiofsd(host) is not None:
        return "virtiofs"
    return "9p" if kernel.offers("9p") and kernel.offers("9pnet_virtio") else None
