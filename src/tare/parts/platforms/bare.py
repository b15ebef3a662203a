"""The device itself: no container, but a control group, so that a job is counted and limited as in one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import PurePath

from tare.errors import ObstacleError
from tare.host import Completed, Host, Job, Process, Scope, Site
from tare.parts import cgroups, limits, strays
from tare.parts.group import Group, GroupProcess
from tare.parts.inherited import desk_is_the_devices, outer_clock, outer_facts

# Each file gets our pid, then the job takes our place. The shell's own variables must not reach it: the
# environment of a job is the same on every platform, to the byte.
_ENTER = (
    'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; '
    'exec /usr/bin/env -u PWD -u OLDPWD -u SHLVL -u _ "$@"'
)


class Bare(limits.Limits):
    """Run on the device itself, without a container."""

    def obstacles(self, host: Host) -> list[str]:
        sentences = limits.limit_obstacles(host, self)
        if self.asked() and not sentences and not _may_make_groups(host):
            sentences.append(
                "a limit on bare metal needs a control group, and we may not make one here: run as root, "
                "or leave the limits away."
            )
        return sentences

    def make(self, host: Host, site: Site) -> Host:
        with ExitStack() as stack:
            folders = self._group(host, site.name, stack)
            if not folders:
                stack.callback(strays.end, host, site.name)
            return BareHost(host, site.name, Group(host, folders), stack.pop_all())

    def _group(self, host: Host, name: str, stack: ExitStack) -> dict[str, str]:
        """The group's folders; none where we have no rights and no limit was asked for."""
        if not _may_make_groups(host):
            if self.asked():
                raise ObstacleError("bare metal cannot be limited here.", self.obstacles(host))
            return {}
        folders = cgroups.make(host, name)
        stack.callback(cgroups.remove, host, folders)
        limits.apply(host, self, folders)
        limits.check_held(host, self, folders)
        return folders

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        folders = cgroups.own_folders(host, name)
        if folders:
            cgroups.remove(host, folders)
        strays.end(host, name)


def _may_make_groups(host: Host) -> bool:
    """Whether every hierarchy can be written to; asking changes nothing."""
    points = sorted({mount.point for key, mount in cgroups.hierarchies(host).items() if not key.startswith("name=")})
    script = 'for folder do [ -w "$folder" ] || exit 1; done'
    return bool(points) and host.run(["sh", "-c", script, "may", *points]).code == 0


class BareHost:
    """The device, with everything that is started here inside one control group."""

    def __init__(self, host: Host, name: str, group: Group, made: ExitStack) -> None:
        self.name = name
        self.clock = host.clock
        self.python = host.python
        self.facts = outer_facts(host)
        self.guest_clock = outer_clock(host)
        self.desk_is_the_devices = desk_is_the_devices(host)
        self._host = host
        self._group = group
        self._made = made

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        done = self._host.run([*self._entry(), *argv], limit_s=limit_s, stdin=stdin)
        return replace(done, argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        before = self._group.oom_kills()
        env = {**job.env, strays.VARIABLE: self.name}
        inner = self._host.spawn(replace(job, argv=(*self._entry(), *job.argv), env=env))
        return GroupProcess(inner, self._group, before)

    def _entry(self) -> tuple[str, ...]:
        """What goes before a command so that it starts inside the group."""
        if not self._group.folders:
            return ()
        files = dict.fromkeys(f"{folder}/cgroup.procs" for folder in self._group.folders.values())
        return ("/bin/sh", "-c", _ENTER, "tare", *files, "--")

    def read(self, path: PurePath | str) -> str:
        return self._host.read(path)

    def write(self, path: PurePath | str, text: str) -> None:
        self._host.write(path, text)

    def scope(self) -> Scope:
        if not self._group.folders:
            return self._host.scope()
        return Scope(cgroups=self._group.folders)

    def close(self) -> None:
        self._made.close()
