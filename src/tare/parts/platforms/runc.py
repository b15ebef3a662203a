"""A container without an engine: an OCI bundle that runc runs, or crun, the runtime of most Podmans, written in C."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import field_validator

from tare.base.errors import StudyError
from tare.base.host import Host, Site
from tare.base.processes import Identity
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups import limits
from tare.drivers.containers import isolation, oci
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL, Layer, held_capabilities
from tare.drivers.containers.oci import OciContainer, Root, Runtime
from tare.drivers.nvidia import gpu_obstacles, handed_on
from tare.parts.protocols import Json


class Runc(OciContainer):
    """Run in an OCI container made by runc alone: no daemon, every namespace and limit in the open.

    `image` is the folder of an unpacked root file system here (for one: `docker export NAME | tar -x -C FOLDER`).
    """

    tried: ClassVar[int | None] = 3

    isolation: tuple[Layer, ...] = USUAL
    """The layers of isolation beyond the mount namespace; fewer to see what each costs (then trust the workload)."""

    seccomp_profile: Path | None = None
    """A system-call filter of your own, as Docker writes them; else Docker's default one."""

    @field_validator("isolation", mode="after")
    @classmethod
    def _in_order(cls, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        if "user" in layers and not set(layers) >= NEEDED_BY_USER:
            raise ValueError(f"the layer `user` needs {', '.join(sorted(NEEDED_BY_USER))} with it")
        return tuple(layer for layer in LAYERS if layer in layers)

    def obstacles(self, host: Host) -> list[Ruling]:
        found = [*super().obstacles(host), *gpu_obstacles(host, self.gpu)]
        if not found:
            try:
                self._filter(host)
            except StudyError as error:
                found.append(obstacle("needs.file", str(error)))
        return found

    @classmethod
    def runtime(cls) -> Runtime:
        return Runtime("runc", "runc")

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> oci.Bundle:
        return oci.Bundle(
            name=site.name,
            rootfs=root.path,
            user=user,
            limits=self.in_force(),
            binds=root.binds,
            shm_bytes=self.shm_bytes(host),
            swap_is_counted=limits.swap_is_counted(host),
            layers=tuple(layer for layer in self.isolation if layer != "network" or self.network == "none"),
            writable=self.may_write(site) or not root.own_tmp,
            seccomp=self._filter(host),
            gpus=handed_on(host, self.gpu),
            held=held_capabilities(host),
            needed=[f"CAP_{name}" for name in self.capabilities(host, site)],
            hostname=root.hostname,
            own_tmp=root.own_tmp,
        )

    def in_force(self) -> Self:
        """The limits whose layer is switched on."""
        off = {
            field: None
            for field, layer in {"quota": "cpu", "cpu_shares": "cpu", "cpuset": "cpuset", "memory": "memory"}.items()
            if layer not in self.isolation
        }
        copy = self.model_copy(update=off)
        copy._mems = self.mems if "cpuset" in self.isolation else None
        return copy

    def _filter(self, host: Host) -> Json | None:
        if "seccomp" not in self.isolation:
            return None
        machine = host.run(["uname", "-m"]).checked().out.strip()
        held = [] if "capabilities" in self.isolation else held_capabilities(host)
        if self.seccomp_profile is not None:
            return isolation.from_file(self.seccomp_profile, machine, held)
        return isolation.docker_default(machine)


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
