"""Containers of crun, which is the runtime of most Podmans, written in C."""

from __future__ import annotations

from typing import ClassVar

from tare.drivers.containers.oci import Runtime
from tare.parts.platforms.runc import Runc

# It refuses a machine that has control groups of both versions, by the list of those that the second offers. In a mount
# namespace of its own that list is empty, and it takes the first.
_HYBRID = """
list=/sys/fs/cgroup/unified/cgroup.controllers
[ -n "$(cat "$list" 2> /dev/null)" ] || exec "$@"
exec unshare --mount --propagation private sh -c 'mount --bind /dev/null "$0" && exec "$@"' "$list" "$@"
"""


class Crun(Runc):
    """Run in an OCI container made by crun: like runc, which it replaces on many systems.

    `image` is the folder of an unpacked root file system, or what the other containers take.
    """

    tried: ClassVar[int | None] = None

    @classmethod
    def runtime(cls) -> Runtime:
        return Runtime("crun", "crun", through=("sh", "-c", _HYBRID, "crun"))
