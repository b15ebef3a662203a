"""The device itself: no container, but a control group, so that a job is counted and limited as in one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from tare.base.host import Host, InnerHost, OwnDevice, Site
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups.job import Files, GroupHost, GroupPlatform
from tare.drivers.containers import roots
from tare.drivers.containers.place import python_in
from tare.drivers.containers.unpacked import unpacked
from tare.drivers.places import Phases


class Bare(GroupPlatform):
    """Run on the device itself, without a container."""

    direct: bool = False
    """A command of yours writes to the real files, as it does without tare. By default what it writes goes to layers
    that go with the trial, as in a container. Only root can have layers: others run in a fresh copy of the working
    folder, unless that is larger than 2 GiB."""

    image: str | None = None
    """Run in the file system of this image: the same bytes as in a container of it, without one. As root; named as for
    a container (docker, podman, runc). Without it the workload runs with the device's own software."""

    python: str = "python3"
    """The interpreter inside an image."""

    def obstacles(self, host: Host) -> list[Ruling]:
        found = super().obstacles(host)
        if self.image is not None and not (isinstance(host, OwnDevice) and is_root(host)):
            found.append(obstacle("needs.root", "an image's files can be entered on bare metal by root alone."))
        return found

    def make(self, host: Host, site: Site) -> InnerHost:
        place = super().make(host, site)
        if self.image is not None and isinstance(place, GroupHost):
            try:
                place.python = python_in(place, self.python, needed=not site.layered)
            except BaseException:
                place.close()
                raise
        return place

    def _image_files(self, image: str, host: Host, site: Site, stack: ExitStack) -> Files:
        phases = Phases(host.clock)
        with phases.timed("open.root"):
            found = unpacked(image)
            texts = {path: host.read(path) for path in ("/etc/hosts", "/etc/resolv.conf") if Path(path).is_file()}
            root = layers.overlay(host, site, stack, lower=str(found.root), files=texts)
            user = found.user() if site.layered else (0, 0)
            if user != (0, 0):
                roots.open_to_all(host, site)
                roots.give_work_folder(host, site, f"{user[0]}:{user[1]}")
            binds = [bind for bind in roots.image_binds(host, site, stack) if not _of_the_kernel(bind.target)]
        words = [word for bind in binds for word in (bind.source, bind.target)]
        facts = {"root": "image", **({"image_id": found.id} if found.id else {})}
        return Files(root, words, found.config, user, facts=facts, phases=phases)

    def files(self, host: Host, site: Site, stack: ExitStack) -> Files:
        if self.image is not None:
            return self._image_files(self.image, host, site, stack)
        if self.direct or not site.layered:
            return Files(facts={"files": "direct"} if site.layered else {})
        if not layers.possible(host, site):
            copy = layers.copied(host, site, stack)
            return Files(
                facts={"files": "copied" if copy else "shared"}, moved={str(site.folder): copy} if copy else {}
            )
        phases = Phases(host.clock)
        with phases.timed("open.root"):
            view = layers.compose(host, site, stack)
        return Files(view.root, layers.bound_for_real(site.writes), facts=view.facts(), phases=phases)


def _of_the_kernel(path: str) -> bool:
    return PurePosixPath(path).parts[1:2] in [(top,) for top in layers.KERNELS]
