"""Containers that runc makes of a bundle, without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from pydantic import field_validator

from tare.base.errors import StudyError
from tare.base.host import Host, Site
from tare.base.processes import Identity
from tare.base.rulings import Ruling, obstacle
from tare.drivers.containers import isolation
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL, Layer, held_capabilities
from tare.drivers.containers.oci import Bundle, OciContainer, Runtime
from tare.drivers.containers.place import Root
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
        stopped = [*super().obstacles(host), *gpu_obstacles(host, self.gpu)]
        if not stopped:
            try:
                self._filter(host)
            except StudyError as error:
                stopped.append(obstacle("needs.file", str(error)))
        return stopped

    @classmethod
    def runtime(cls) -> Runtime:
        return Runtime("runc", "runc")

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> Bundle:
        return replace(
            super().bundle(host, site, root, user),
            limits=self.in_force(),
            layers=tuple(layer for layer in self.isolation if layer != "network" or self.network == "none"),
            seccomp=self._filter(host),
            gpus=handed_on(host, self.gpu),
            held=held_capabilities(host),
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
