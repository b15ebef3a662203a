"""A container of gVisor: its runtime answers system calls itself instead of the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tare.host import Host, Site
from tare.parts import limits, oci
from tare.parts.identity import Identity
from tare.parts.oci_runtime import OciContainer, Runtime


class Gvisor(OciContainer):
    """Run in gVisor (runsc): a kernel in user space between the workload and the device's.

    Faults and switches that are counted inside are gVisor's; those of the device are seen from outside. `image` is the
    folder of an unpacked root file system.
    """

    intercept: Literal["ptrace", "systrap", "kvm"] | None = None
    """How system calls are caught: what runsc calls its platform; its own choice unless said."""

    @classmethod
    def runtime(cls) -> Runtime:
        # Without a network of its own there is none; and the device's files are only read.
        return Runtime("runsc", "runsc", ("--network=none", "--overlay=false"))

    def own_runtime(self) -> Runtime:
        plain = self.runtime()
        return plain if self.intercept is None else replace(plain, flags=(*plain.flags, f"--platform={self.intercept}"))

    def bundle(self, host: Host, site: Site, rootfs: str, user: Identity) -> oci.Bundle:
        return oci.Bundle(
            name=site.name,
            rootfs=rootfs,
            user=user,
            limits=self,
            binds=self.binds(host, site),
            shm_bytes=self.shm,
            swap_is_counted=limits.swap_is_counted(host),
            writable=self.writable,
        )
