"""A device without tare as a host: its commands, files and jobs go to its agent.

It is what a virtual machine is to its device (`drivers.guests.place`), with a longer line and a kernel that is not
ours: marks come back and are moved to our time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from tare.base.errors import LineLost
from tare.base.host import Completed, Job, LocalHost, Process, Scope, Site
from tare.drivers.guests.channel import GuestClock, GuestGone, Link, sight
from tare.drivers.guests.place import GuestPlace, Workdir
from tare.drivers.places import SOURCE
from tare.drivers.storage.checkpoints import checkpoints_of_site
from tare.fleet.lean_line import Line
from tare.parts.protocols import Json

DRIVEN = "lean"
_SETTLED = "/sys/class/"  # what is not there now does not appear during a trial, and is asked for a hundred times
_NOT_LOOKED_AT = "whether a power manager (nvpmodel, tlp, tuned) runs on the device"


class LeanClock(GuestClock):
    """The device's clock against ours, and how long the device slept between the sightings."""

    def __init__(self) -> None:
        super().__init__()
        self._slept_s: list[float] = []

    def note_sleep(self, slept_s: float) -> None:
        """Once a sighting: the one before the job is kept, and the latest."""
        self._slept_s = [*self._slept_s[-1:], slept_s]

    def facts(self) -> dict[str, Json]:
        return {**super().facts(), "slept_s": self._slept_s[-1] - self._slept_s[0]}


class LeanWorkdir(Workdir):
    """A workdir whose copy of `tare_inside` is made on the device, from the one that is there."""

    def __init__(self, link: Link, folder: Path) -> None:
        super().__init__(link, folder)
        link.ask("copied", workdir=str(folder))
        self.know("inside")


class LeanHost(GuestPlace):
    """The device at the other end of a line. Its `machine_facts` are what a record says of it."""

    runs_others = True

    def __init__(self, line: Line) -> None:
        reported = line.said
        here = LocalHost(python=str(reported["executable"]))
        super().__init__(here, line.device.name, line.link, Scope(), lambda: "")
        self.line = line
        self.gone = False  # the line broke
        self.guest_clock: LeanClock = LeanClock()
        self.facts = {"driven": DRIVEN, "unchecked": [_NOT_LOOKED_AT]}
        self.machine_facts: dict[str, Json] = {
            **{name: reported[name] for name in ("kernel", "machine", "cores")},
            "driven": DRIVEN,
        }
        self._env = {
            name: reported["environ"][name] for name in ("PATH", "HOME", "LANG") if name in reported["environ"]
        }
        self._absent: set[str] = set()
        self._slept_s = 0.0  # since its boot, when it was asked last

    def prepare_workdir(self, site: Site) -> None:
        """The workdir, there and here alike. Whatever is made under the site's name goes with the line."""
        with self._alive("make folders"):
            folders = [str(checkpoints_of_site(site.name))]
            self._link.ask("site", name=site.name, folders=folders)
            self._workdirs += [LeanWorkdir(self._link, folder) for folder in site.writes]
        self._push()

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        return replace(super().run(self._there(argv), limit_s=limit_s, stdin=stdin), argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        return super().spawn(replace(job, argv=tuple(self._there(job.argv))))

    def read(self, path: PurePath | str) -> str:
        if str(path) in self._absent:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            return super().read(path)
        except FileNotFoundError:
            if str(path).startswith(_SETTLED):
                self._absent.add(str(path))
            raise

    def look_at_clock(self) -> None:
        with self._alive("report its time"):
            self.guest_clock.add(sight(self.clock.now_ns, self._its_ns))
            self.guest_clock.note_sleep(self._slept_s)

    def lost(self, doing: str, error: Exception) -> LineLost:
        self.gone = True
        how = "broke" if isinstance(error, GuestGone) else f"is silent ({error})"
        return LineLost(
            f"{self.name}: the line to the device {how}, and it could not {doing}. Its agent ends what runs there."
        )

    @contextmanager
    def answering(self, doing: str) -> Iterator[Link]:
        """The line itself, for questions that a host does not have."""
        with self._alive(doing):
            yield self._link

    def _its_ns(self) -> int:
        reported = self._link.ask("clock").header
        self._slept_s = float(reported["slept_s"])
        return int(reported["ns"])

    def _there(self, argv: Sequence[str]) -> list[str]:
        """A command line of ours, with the files of `tare_inside` where the device has them."""
        inside: Any = self.line.said["inside"]
        return [f"{inside}{word.removeprefix(str(SOURCE))}" if word.startswith(str(SOURCE)) else word for word in argv]
