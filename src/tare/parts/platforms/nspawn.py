"""A container of systemd-nspawn: one process, no daemon, with systemd's own system-call filter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tare.base.host import Host, Site
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.job import Group, Nested, entered, limited_group
from tare.drivers.containers import isolation, roots
from tare.drivers.containers.called import Call, CalledContainer, Root
from tare.drivers.containers.oci import SHELLS_OWN
from tare.drivers.containers.roots import Bind
from tare.drivers.nvidia import handed_on
from tare.parts.protocols import Json, Leftover

_PROGRAM = "systemd-nspawn"
_LEAST_VERSION = 250  # the first that takes values of variables from its own environment (`--setenv=NAME`)
_MISSING = f"{_PROGRAM} is not installed here: `apt-get install systemd-container` (or your system's way) brings it."
# Known to no systemd, so that it also runs where systemd is not the first process; nothing of the caller's is changed.
_WALLS = (
    "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--pipe", "--no-new-privileges=yes",
    "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no",
)  # fmt: skip
# Several commands may run at the same time; /tmp is the root's or ours. Its own messages would be in a job's output.
_SETTINGS = {"SYSTEMD_NSPAWN_LOCK": "0", "SYSTEMD_NSPAWN_TMPFS_TMP": "0", "SYSTEMD_LOG_TARGET": "null"}
_LOUD = {"SYSTEMD_LOG_TARGET": "console", "SYSTEMD_LOG_COLOR": "0"}
_BY_WORD = re.compile(rf"PATH|HOME|TERM|GLIBC_TUNABLES|NOTIFY_SOCKET|(LD|SYSTEMD|LISTEN|DBUS)_\w+|{SHELLS_OWN}")
_OF_NSPAWN = re.compile(r"container\w*|NOTIFY_SOCKET|TERM|HOME|PWD|OLDPWD|SHLVL|_|USER|LOGNAME|LANG")
# It ends with 255 after any signal; a shell tells which. The semicolon keeps the shell from becoming the command.
_ENDED = ("sh", "-c", '"$@"; exit $?', "sh")
_CALLS = "calls"
_BELOW = ("payload", "supervisor")
_FOLDER = "/run/systemd/nspawn/propagate"


class Nspawn(CalledContainer):
    """Run in a container of systemd-nspawn: no network, no capabilities, systemd's system-call filter.

    Each command is a `systemd-nspawn` of its own, as root; systemd need not run. `image` is run from a folder.
    """

    makes_run = True
    binds_layers = False

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = self.common_obstacles(host, _PROGRAM)
        if not self.program(host):
            stopped.append(obstacle("needs.program", _MISSING))
        elif (version := _version(self.here(host)["version"])) < _LEAST_VERSION:
            sentence = f"this is {_PROGRAM} of systemd {version}; it works from systemd {_LEAST_VERSION} on."
            stopped.append(obstacle("needs.program", sentence))
        if not is_root(host):
            stopped.append(obstacle("needs.root", f"{_PROGRAM} works only as root."))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        return {"version": host.run([_PROGRAM, "--version"]).out.partition("\n")[0].removeprefix("systemd ")}

    @classmethod
    def program(cls, host: Host) -> str:
        if host.run([_PROGRAM, "--version"]).code != 0:
            return ""
        return host.run(["sh", "-c", 'command -v -- "$1"', "found", _PROGRAM]).out.strip()

    def needs_targets(self, root: Root) -> bool:
        return True

    def call(self, host: Host, site: Site, root: Root, binds: Sequence[Bind]) -> Call:
        kept = {f"CAP_{name}" for name in self.capabilities(host, site)}
        dropped = [name for name in isolation.held_capabilities(host) if name not in kept]
        flags = [
            *_WALLS,
            f"--directory={root.path}",
            f"--machine={site.name}",
            f"--hostname={roots.host_name(host)}",
            f"--drop-capability={','.join(dropped)}",
            *(["--private-network"] if self.network == "none" else []),
            *([] if root.writable else ["--read-only"]),
            *(_bind(Bind(str(file.path), str(file.path), writable=True)) for file in handed_on(host, self.gpu)),
            *(_bind(bind) for bind in binds),
        ]
        return _Spawn(self.program(host), tuple(flags))

    def group(self, host: Host, name: str, stack: ExitStack) -> Group:
        folders = limited_group(host, name, self, stack)
        group = Nested(host, folders, below=self.all_folders(host, name))
        stack.callback(tree.remove, host, group.below)
        host.run(["mkdir", "-p", "--", *_calls(group)]).checked()
        stack.callback(_remove_folder, host, name)
        return group

    def entry(self, group: Group) -> tuple[str, ...]:
        return entered({key: folder for key, folder in group.folders.items() if key} | _calls(group))

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        super().sweep(host, name)
        _remove_folder(host, name)

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        """Found by the groups that it is called in: between commands there is nothing else of it."""
        above = [folder.removesuffix("/-") for folder in tree.every_folder(host, "-").values()]
        words = ["-mindepth", "2", "-maxdepth", "2", "-type", "d", "-name", _CALLS, "-printf", "%h\\n"]
        found = host.run(["find", *above, *words]).out.splitlines() if above else []
        names = dict.fromkeys(folder.rpartition("/")[2] for folder in found)
        return [Leftover(name, f"the {_PROGRAM} container {name}") for name in names]

    @classmethod
    def all_folders(cls, host: Host, name: str) -> dict[str, str]:
        """It makes two groups below the one that it is called in, in the unified hierarchy and in systemd's own.

        Version 2 takes no process in a group that hands controllers down, as it lets its caller's do: so that it is
        called in a group that has none.
        """
        own = tree.every_folder(host, name)
        calls = [f"{own[key]}/{_CALLS}" for key in ("", "name=systemd") if key in own]
        return {path: path for each in calls for path in (*(f"{each}/{below}" for below in _BELOW), each)} | own


@dataclass(frozen=True)
class _Spawn:
    """`systemd-nspawn`, with the flags of one container."""

    program: str
    flags: tuple[str, ...]

    by_word = _BY_WORD
    of_program = _OF_NSPAWN

    def argv(self, cwd: str, names: Sequence[str]) -> list[str]:
        return [self.program, *self.flags, f"--chdir={cwd}", *(f"--setenv={name}" for name in names)]

    def lent(self, env: Mapping[str, str]) -> dict[str, str]:
        """Anyone can read a command line, so that values come by its own environment."""
        return {**env, **_SETTINGS}

    def loud(self) -> Mapping[str, str]:
        return _LOUD

    def ended(self, argv: Sequence[str]) -> list[str]:
        return [*_ENDED, *argv]


def _version(text: Json) -> int:
    """Of `252 (252.39-1~deb12u2)`; 0 where it says nothing that is a number."""
    found = re.match(r"\d+", str(text))
    return int(found.group()) if found else 0


def _remove_folder(host: Host, name: str) -> None:
    """What it makes for each container to hand mounts to it, and leaves."""
    host.run(["rmdir", "--ignore-fail-on-non-empty", "--", f"{_FOLDER}/{name}"])


def _calls(group: Group) -> dict[str, str]:
    """The groups that it is called in."""
    return {key: folder for key, folder in group.where().items() if folder.endswith(f"/{_CALLS}")}


def _bind(bind: Bind) -> str:
    """Without what is mounted further down, as runc does it; a colon in a path is escaped."""
    source, target = (path.replace("\\", "\\\\").replace(":", "\\:") for path in (bind.source, bind.target))
    return f"--bind{'' if bind.writable else '-ro'}={source}:{target}:norbind"
