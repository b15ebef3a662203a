"""The device itself: no container, but a control group, so that a job is counted and limited as in one."""

from __future__ import annotations

from contextlib import ExitStack

from tare.base.host import Host, Site
from tare.drivers import layers
from tare.drivers.cgroups.job import Files, GroupPlatform
from tare.drivers.places import Phases


class Bare(GroupPlatform):
    """Run on the device itself, without a container."""

    direct: bool = False
    """A command of yours writes to the real files, as it does without tare. By default what it writes goes to layers
    that go with the trial, as in a container (as root; else it is as with `direct: true`)."""

    def files(self, host: Host, site: Site, stack: ExitStack) -> Files:
        if self.direct or not layers.possible(host, site):
            return Files(facts={"files": "direct"} if site.layered else {})
        phases = Phases(host.clock)
        with phases.timed("open.root"):
            view = layers.compose(host, site, stack)
        return Files(view.root, layers.bound_for_real(site.writes), view.facts(), phases)
