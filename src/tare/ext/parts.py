"""What a part is written with: protocols, readings, rulings. Light, since the process that samples imports it."""

from __future__ import annotations

from pydantic import Field as Setting

from tare.base.declare import Metric
from tare.base.host import Host, Scope, Site
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel
from tare.drivers.cgroups.tree import own_groups, threads_file
from tare.drivers.containers.oci import STATE as STATE_FOLDER
from tare.drivers.kernel_files import FileFeed, KernelFile, unreadable
from tare.parts.protocols import (
    Cause,
    Control,
    Feed,
    Json,
    Leftover,
    Mark,
    Platform,
    Probe,
    Reading,
    Recorder,
    Table,
    Workload,
)
