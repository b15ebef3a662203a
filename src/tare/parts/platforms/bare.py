"""The device itself: no container, but a control group, so that a job is counted and limited as in one."""

from __future__ import annotations

from tare.drivers.cgroups.job import GroupPlatform


class Bare(GroupPlatform):
    """Run on the device itself, without a container."""
