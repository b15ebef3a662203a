"""The real agent of a guest, run as a plain process at the other end of a socket: no machine is booted."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import tare_inside
from tare.base.host import LocalHost, Scope, Site
from tare.drivers.guests.channel import Link
from tare.drivers.guests.place import GuestPlace

SOURCE = Path(tare_inside.__file__).parents[1]
_SERVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tare_inside.agents import guest, guest_jobs
guest_jobs.HERE = sys.argv[3]
exec(sys.argv[4])
guest.Agent(guest_jobs.Channel(int(sys.argv[2]))).serve()
"""


class Guest:
    """A process that believes to be the first one of a guest; mounting does nothing for it."""

    def __init__(self, folder: Path, python: str = sys.executable, first: str = "") -> None:
        """`first`: what the agent's process does before it serves."""
        self._folder = folder
        tools = folder / "tools"
        tools.mkdir()
        (tools / "mount").write_text("#!/bin/sh\nexit 0\n")
        (tools / "mount").chmod(0o755)
        near, far = socket.socketpair()
        self.process = subprocess.Popen(
            [python, "-c", _SERVE, str(SOURCE), str(far.fileno()), str(folder), first],
            pass_fds=[far.fileno()],
            env={"PATH": f"{tools}:/usr/bin:/bin"},
        )
        far.close()
        self.link = Link(near)
        self.said = self.link.hello(20)

    def place(self, site: Site | None = None) -> GuestPlace:
        place = GuestPlace(
            LocalHost(),
            "tare-guest",
            self.link,
            Scope(pid=self.process.pid),
            lambda: "its last words",
        )
        if site is not None:
            place.prepare_workdir(site)
        return place

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.link.close()
