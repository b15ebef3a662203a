"""A device without tare as a host: commands, files and jobs go to its agent, marks come back and are moved to our time.

It is what a virtual machine is to its device (`parts.guest_place`), with a longer line and a kernel that is not ours.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from tare.errors import LineLost
from tare.fleet.lean_line import Line
from tare.host import Completed, Job, LocalHost, Process, Scope, Site
from tare.parts import checkpoint_folder
from tare.parts.guest_channel import GuestGone, Link
from tare.parts.guest_clock import GuestClock, sight
from tare.parts.guest_desk import Desk
from tare.parts.guest_place import GuestPlace
from tare.parts.inside import SOURCE
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


class LeanDesk(Desk):
    """A desk whose copy of `tare_inside` is made on the device, from the one that is there."""

    def __init__(self, link: Link, folder: Path) -> None:
        super().__init__(link, folder)
        link.ask("copied", desk=str(folder))
        self.know("inside")


class LeanHost(GuestPlace):
    """The device at the other end of a line. Its `machine_facts` are what a record says of it."""

    def __init__(self, line: Line) -> None:
        said = line.said
        here = LocalHost(python=str(said["executable"]))
        super().__init__(here, line.device.name, line.link, Scope(), lambda: "", folder=Path(os.devnull))
        self.line = line
        self.gone = False  # the line broke
        self.guest_clock: LeanClock = LeanClock()
        self.facts = {"driven": DRIVEN, "unchecked": [_NOT_LOOKED_AT]}
        self.machine_facts: dict[str, Json] = {
            **{name: said[name] for name in ("kernel", "machine", "cores")},
            "driven": DRIVEN,
        }
        self._env = {name: said["environ"][name] for name in ("PATH", "HOME", "LANG") if name in said["environ"]}
        self._absent: set[str] = set()
        self._slept_s = 0.0  # since its boot, when it was asked last

    def furnish(self, site: Site) -> None:
        """The desk, there and here alike. Whatever is made under the site's name goes with the line."""
        with self._alive("make folders"):
            folders = [str(checkpoint_folder.of_site(site.name))]
            self._link.ask("site", name=site.name, folders=folders)
            self._desks += [LeanDesk(self._link, folder) for folder in site.writes]
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
        with self._alive("tell its time"):
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
        said = self._link.ask("clock").header
        self._slept_s = float(said["slept_s"])
        return int(said["ns"])

    def _there(self, argv: Sequence[str]) -> list[str]:
        """A command line of ours, with the files of `tare_inside` where the device has them."""
        inside: Any = self.line.said["inside"]
        return [f"{inside}{word.removeprefix(str(SOURCE))}" if word.startswith(str(SOURCE)) else word for word in argv]
