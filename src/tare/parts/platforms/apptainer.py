"""A container of Apptainer (or Singularity), as clusters have it: one process, no daemon, with or without root."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tare.base.host import Host, Site
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups.job import may_make_groups
from tare.drivers.containers.called import Call, CalledContainer, Root
from tare.drivers.containers.oci import SHELLS_OWN
from tare.drivers.containers.roots import OF_APPTAINER, Bind
from tare.drivers.nvidia import handed_on
from tare.parts.protocols import Json

_PROGRAMS = ("apptainer", "singularity")
_MISSING = "apptainer is not installed here: `apt-get install apptainer` (or your system's way, or a cluster's module)"
# No environment, home, /tmp or working folder of the caller's; no right that a job does not need.
_WALLS = ("--containall", "--no-eval", "--no-privs", "--uts", "--no-mount", "home,tmp,cwd,bind-paths")
# What Apptainer sets itself, or appends to, or what the loader would heed in its own process.
_BY_WORD = re.compile(
    rf"PATH|HOME|PWD|PS1|PROMPT_COMMAND|TERM|(LD|APPTAINER|SINGULARITY)_\w+|GLIBC_TUNABLES|{SHELLS_OWN}"
)


class Apptainer(CalledContainer):
    """Run in a container of Apptainer or Singularity, also without root.

    Each command is an `apptainer exec` of its own. No network, no capabilities; no system-call filter, as Apptainer
    has none by default. `image` is a SIF file, or what the other containers take, run from a folder.
    """

    tried: ClassVar[int | None] = 4

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = self.common_obstacles(host, "Apptainer")
        if not self.program(host):
            stopped.append(obstacle("needs.program", f"{_MISSING} brings it."))
        if self.asked() and not stopped and not may_make_groups(host):
            stopped.append(
                obstacle("needs.root", "a limit needs a control group, and only root can make one here: leave it away.")
            )
        if self.shm is not None and not is_root(host):
            stopped.append(obstacle("needs.root", "the size of /dev/shm is set by root alone: leave `shm` away."))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        program = self.program(host)
        return {"version": host.run([program, "--version"]).out.strip().rpartition(" ")[2], "program": program}

    @classmethod
    def program(cls, host: Host) -> str:
        return next((name for name in _PROGRAMS if host.run([name, "--version"]).code == 0), "")

    @classmethod
    def runs_sif(cls) -> bool:
        return True

    def call(self, host: Host, site: Site, root: Root, binds: Sequence[Bind]) -> Call:
        kept = self.capabilities(host, site)
        flags = [
            *_WALLS,
            *(["--net", "--network", "none"] if self.network == "none" else []),
            *(["--add-caps", ",".join(f"CAP_{name}" for name in kept)] if kept else []),
            *(["--nv"] if handed_on(host, self.gpu) else []),
            *(["--writable"] if root.writable else []),
            *(["--overlay", root.over] if root.over else []),
            *(_mount(bind) for bind in binds),
        ]
        return _Exec(self.program(host) or _PROGRAMS[0], tuple(flags), root.path)

    def bindable(self, host: Host, binds: Sequence[Bind], folder: str) -> Sequence[Bind]:
        """Apptainer takes a source below /dev for a device and mounts it elsewhere: such a one goes by a link to it."""
        sources = {f"{folder}/link-{number}": bind for number, bind in enumerate(binds)}
        links = {link: bind for link, bind in sources.items() if bind.source.startswith("/dev/")}
        for link, bind in links.items():
            host.run(["ln", "-sfn", "--", bind.source, link]).checked()
        by_bind = {bind: link for link, bind in links.items()}
        return [replace(bind, source=by_bind.get(bind, bind.source)) for bind in binds]


@dataclass(frozen=True)
class _Exec:
    """`apptainer exec`, with the flags of one container."""

    program: str
    flags: tuple[str, ...]
    root: str

    by_word = _BY_WORD
    of_program = OF_APPTAINER

    def argv(self, cwd: str, names: Sequence[str]) -> list[str]:
        return [self.program, "--silent", "exec", *self.flags, "--pwd", cwd, self.root]

    def lent(self, env: Mapping[str, str]) -> dict[str, str]:
        """Anyone can read a command line, so that values come by its own environment, under names that it knows."""
        return {f"{self.program.upper()}ENV_{name}": value for name, value in env.items()}

    def loud(self) -> Mapping[str, str]:
        return {}

    def ended(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


def _mount(bind: Bind) -> str:
    """As a line of CSV, so that a path may have a colon or a comma in it."""
    words = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *([] if bind.writable else ["ro"])]
    quoted = [f'"{word.replace(chr(34), chr(34) * 2)}"' if set(word) & set(',"') else word for word in words]
    return f"--mount={','.join(quoted)}"
