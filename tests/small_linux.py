"""A pretend Linux for the platform tests: mounts, control groups, processes, runc, podman, docker, as a dict of files.

It understands just the commands that platforms give, and refuses all others, so that a new command is noticed.
`break_at` makes the n-th command or write fail, as a machine would: nothing happens and it says no.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath, PurePosixPath
from typing import Any

from tare.base.errors import TareError
from tare.base.host import Completed, Site
from tare.parts.protocols import Platform
from tare.testing import FakeHost

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "freezer")
_FILES = {
    "cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    "cpuacct": {},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.memsw.limit_in_bytes": "9223372036854771712",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    },
    "pids": {"pids.max": "max"},
    "freezer": {},
}
_V2_CONTROLLERS = "cpuset cpu io memory pids"
_V2_FILES = {
    "cgroup.controllers": _V2_CONTROLLERS,
    "cgroup.subtree_control": "",
    "cpu.max": "max 100000",
    "cpuset.cpus": "",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.events": "low 0\noom_kill 0\n",
    "pids.max": "max",
}
_ROOT_STATUS = (
    "Name:\tpython\nState:\tR (running)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
)
BOOT_ID = "6a0f8a0e-0000-4000-8000-000000000000\n"


@dataclass
class SmallLinux(FakeHost):
    """See the top of this file."""

    version: int = 1
    uid: int = 0
    tops: str = "d\tusr\t\nd\tetc\t\nd\twork\t\nl\tbin\tusr/bin\nd\tproc\t\nd\ttmp\t\n"
    break_at: int | None = None
    steps: int = 0
    folders: set[str] = field(default_factory=set)
    table: list[str] = field(default_factory=list)  # the mount table
    runc: dict[str, int] = field(default_factory=dict)  # container -> pid
    podman: dict[str, dict[str, Any]] = field(default_factory=dict)  # container -> its labels, flags and pid
    docker: dict[str, dict[str, Any]] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)  # of both
    docker_info: dict[str, Any] = field(default_factory=lambda: {"CgroupDriver": "cgroupfs", "Runtimes": {"runc": {}}})
    installed: set[str] = field(default_factory=lambda: {"runc", "podman", "docker", "apptainer"})
    stdins: list[str] = field(default_factory=list)
    group_paths: dict[int, str] = field(default_factory=dict)  # of containers, by pid
    next_pid: int = 500
    links: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # who was given what
    gpu_files: str = ""  # as `stat` tells them: name, major and minor number

    def __post_init__(self) -> None:
        caps = "000001ffffffffff" if self.uid == 0 else "0000000000000000"
        self.files |= {
            "/proc/self/status": _ROOT_STATUS.format(uid=self.uid) + f"CapEff:\t{caps}\nCapBnd:\t{caps}\n",
            "/proc/self/stat": "42 (a name) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0",
            "/proc/self/limits": "Max processes  9000  9000  processes\nMax open files  1024  4096  files\n",
            "/proc/sys/kernel/random/boot_id": BOOT_ID,
            "/sys/devices/system/cpu/online": "0-3\n",
        }
        self.table = ["29 1 254:0 / / rw - ext4 /dev/vda rw", "24 29 0:23 / /proc rw - proc proc rw"]
        points = CONTROLLERS if self.version == 1 else ("",)
        for controller in points:
            self._group_root(controller)
        self._show_table()

    def _group_root(self, controller: str) -> None:
        point = self.point(controller)
        kind, options = ("cgroup", f"rw,{controller}") if controller else ("cgroup2", "rw")
        self.table.append(f"40 29 0:40 / {point} rw - {kind} cgroup {options}")
        self._make_group(point)
        if controller == "cpuset":
            self.files |= {f"{point}/cpuset.cpus": "0-3", f"{point}/cpuset.mems": "0"}

    def point(self, controller: str) -> str:
        return f"/sys/fs/cgroup/{controller}".rstrip("/")

    # what a test looks at ------------------------------------------------------------------------------------------

    def left_over(self) -> dict[str, object]:
        """Everything that a platform may have made and must take away."""
        return {
            "groups": sorted(path for path in self.folders if path.startswith("/sys/fs/cgroup/")),
            "folders": sorted(path for path in self.folders if path.startswith("/scratch/")),
            "mounts": list(self.table),
            "runc": dict(self.runc),
            "podman": dict(self.podman),
            "docker": dict(self.docker),
        }

    def start_process(self, folder: str = "", *, environ: str = "", uid: int | None = None) -> int:
        """A process that lives, in a group or not; returns its pid."""
        self.next_pid += 1
        pid, owner = self.next_pid, self.uid if uid is None else uid
        self.files[f"/proc/{pid}/status"] = _ROOT_STATUS.format(uid=owner)
        self.files[f"/proc/{pid}/environ"] = environ
        if folder:
            self.files[f"{folder}/cgroup.procs"] += f"{pid}\n"
        return pid

    def alive(self, pid: int) -> bool:
        return f"/proc/{pid}/status" in self.files

    # the host ------------------------------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self.asked.append(tuple(argv))
        self.log.append(f"run {' '.join(argv)}")
        self.stdins.append(stdin)
        if self._broken():
            return Completed(tuple(argv), 1, "", "it broke")
        code, out, err = self._do(list(argv), stdin)
        return Completed(tuple(argv), code, out, err)

    def write(self, path: PurePath | str, text: str) -> None:
        if self._broken():
            raise PermissionError(13, "it broke", str(path))
        super().write(path, text)

    def _broken(self) -> bool:
        self.steps += 1
        return self.steps == self.break_at

    def _do(self, argv: list[str], stdin: str = "") -> tuple[int, str, str]:
        if self.answer is not None and (said := self.answer(argv)) is not None:
            return said.code, said.out, said.err
        doing = getattr(self, f"_{PurePosixPath(argv[0]).name}", None)
        if doing is None:
            return 127, "", f"{argv[0]}: not on this small Linux"
        return doing(argv[1:], stdin) if argv[0] == "dd" else doing(argv[1:])

    # commands ------------------------------------------------------------------------------------------------------

    def _uname(self, words: list[str]) -> tuple[int, str, str]:
        return 0, "aarch64\n", ""

    def _mkdir(self, words: list[str]) -> tuple[int, str, str]:
        for path in words[words.index("--") + 1 :]:
            if path.startswith("/sys/fs/cgroup/"):
                for folder in (str(PurePosixPath(path).parent), path):
                    self._make_group(folder)
            self.folders.add(path)
        return 0, "", ""

    def _make_group(self, folder: str) -> None:
        if f"{folder}/cgroup.procs" in self.files:
            return
        if folder.count("/") > (4 if self.version == 1 else 3):
            self.folders.add(folder)
        controller = folder.split("/")[4] if self.version == 1 else ""
        self.files[f"{folder}/cgroup.procs"] = ""
        for file, text in (_FILES[controller] if self.version == 1 else _V2_FILES).items():
            self.files[f"{folder}/{file}"] = text

    def _rmdir(self, words: list[str]) -> tuple[int, str, str]:
        code = 0
        for path in words[words.index("--") + 1 :]:
            inside = any(other.startswith(f"{path}/") for other in self.folders)
            if path not in self.folders or inside or self.files.get(f"{path}/cgroup.procs"):
                code = 1
                continue
            self._forget(path)
        return code, "", "Device or resource busy" if code else ""

    def _forget(self, path: str) -> None:
        self.folders = {each for each in self.folders if each != path and not each.startswith(f"{path}/")}
        for file in [each for each in self.files if each.startswith(f"{path}/")]:
            del self.files[file]

    def _chown(self, words: list[str]) -> tuple[int, str, str]:
        self.owners[words[-1]] = words[-2]
        return 0, "", ""

    def _rm(self, words: list[str]) -> tuple[int, str, str]:
        path = words[-1]
        assert not any(f" {path}/" in line for line in self.table), f"{path} was removed with something mounted in it"
        self._forget(path)
        return 0, "", ""

    def _mount(self, words: list[str]) -> tuple[int, str, str]:
        _, kind, source, _, options, point = words
        self.table.append(f"99 29 0:99 / {point} rw - {kind} {source} {options}")
        self._show_table()
        return 0, "", ""

    def _umount(self, words: list[str]) -> tuple[int, str, str]:
        self.table = [line for line in self.table if f" {words[-1]} " not in line]
        self._show_table()
        return 0, "", ""

    def _show_table(self) -> None:
        self.files["/proc/self/mountinfo"] = "\n".join(self.table) + "\n"

    def _find(self, words: list[str]) -> tuple[int, str, str]:
        if words[0] == "/":
            return 0, self.tops, ""
        wanted = words[words.index("-e") + 1]
        hits = [path for path in self.files if path.endswith("/environ") and wanted in self.files[path].split("\0")]
        return 0, "\n".join(hits), ""

    def _sh(self, words: list[str]) -> tuple[int, str, str]:
        script, doing, arguments = words[1], words[2], words[3:]
        if doing == "may":
            return (0 if self.uid == 0 else 1), "", ""
        if doing == "kill":
            return self._kill(["-KILL", *arguments])
        if doing == "gpus":
            return 0, self.gpu_files, ""
        if doing == "home":
            return 0, "/root\n", ""
        if doing in ("existing", "open"):
            return 0, "\n".join(arguments), ""
        if doing == "tare":  # into a group, and then on
            return self._do(arguments[arguments.index("--") + 1 :])
        if doing == "found":
            return 0, f"/usr/sbin/{arguments[0]}\n", ""
        if doing == "start":
            code, _, err = self._do(arguments[1:])
            self.files[arguments[0]] = err
            return code, "", ""
        return 0, "", f"unknown script {script!r}"

    def _kill(self, words: list[str]) -> tuple[int, str, str]:
        for pid in words[1:]:
            for name in ("status", "environ", "cgroup"):
                self.files.pop(f"/proc/{pid}/{name}", None)
            for file in [each for each in self.files if each.endswith("/cgroup.procs")]:
                left = [other for other in self.files[file].split() if other != pid]
                self.files[file] = "".join(f"{other}\n" for other in left)
        return 0, "", ""

    def _dd(self, words: list[str], stdin: str) -> tuple[int, str, str]:
        self.files[words[0].removeprefix("of=")] = stdin
        return 0, "", ""

    def _readlink(self, words: list[str]) -> tuple[int, str, str]:
        return 0, self.links.get(words[-1], words[-1]) + "\n", ""

    def _test(self, words: list[str]) -> tuple[int, str, str]:
        return (0 if words[1] in self.folders else 1), "", ""

    def _runc(self, words: list[str]) -> tuple[int, str, str]:
        if "runc" not in self.installed:
            return 127, "", "runc: there is no such command on this machine"
        if words == ["--version"]:
            return 0, "runc version 1.1.5\n", ""
        verb, rest = words[2], words[3:]
        if verb == "run":
            config = json.loads(self.files[f"{rest[2]}/config.json"])
            pid = self._container(config["linux"]["cgroupsPath"], config["process"]["user"]["uid"])
            self.files[rest[4]] = str(pid)
            self.runc[rest[5]] = pid
        if verb == "delete" and (gone := self.runc.pop(rest[1], None)):
            self._end_container(gone)
        return 0, "", ""

    def _container(self, path: str, uid: int | None = None) -> int:
        """A process in a new group of its own, as an engine makes it."""
        points = CONTROLLERS if self.version == 1 else ("",)
        pid = self.start_process(uid=uid)
        lines = []
        for number, controller in enumerate(points):
            folder = self.point(controller) + path
            self._make_group(str(PurePosixPath(folder).parent))
            self._make_group(folder)
            self.files[f"{folder}/cgroup.procs"] += f"{pid}\n"
            lines.append(f"{number}:{controller}:{path}")
        self.files[f"/proc/{pid}/cgroup"] = "\n".join(lines) + "\n"
        self.group_paths[pid] = path
        return pid

    def _end_container(self, pid: int) -> None:
        self._kill(["-KILL", str(pid)])
        for controller in CONTROLLERS if self.version == 1 else ("",):
            self._forget(self.point(controller) + self.group_paths[pid])

    def _env(self, words: list[str]) -> tuple[int, str, str]:
        """`env -C FOLDER COMMAND...` and `env -i NAME=VALUE... COMMAND...`, and no other form of it."""
        if words[0] == "-i":
            return self._do([word for word in words[1:] if not word.startswith(("PATH=", "HOME="))])
        assert words[0] == "-C"
        doing: Callable[[list[str]], tuple[int, str, str]] = getattr(self, f"_{words[2]}")
        return doing(words[3:])

    def _ln(self, words: list[str]) -> tuple[int, str, str]:
        self.links[words[-1]] = words[-2]
        return 0, "", ""

    def _apptainer(self, words: list[str]) -> tuple[int, str, str]:
        if "apptainer" not in self.installed:
            return 127, "", "apptainer: there is no such command on this machine"
        if words == ["--version"]:
            return 0, "apptainer version 1.4.5\n", ""
        return 0, "PS1=Apptainer> \0APPTAINER_NAME=root\0LANG=C\0" if words[-2:] == ["env", "-0"] else "", ""

    def _podman(self, words: list[str]) -> tuple[int, str, str]:
        return self._engine("podman", self.podman, words)

    def _docker(self, words: list[str]) -> tuple[int, str, str]:
        return self._engine("docker", self.docker, words)

    def _engine(self, program: str, made: dict[str, dict[str, Any]], words: list[str]) -> tuple[int, str, str]:
        """What Docker and Podman do alike."""
        if program not in self.installed:
            return 127, "", f"{program}: there is no such command on this machine"
        if words == ["--version"]:
            return 0, {"docker": "Docker version 28.2.2, build 1\n", "podman": "podman version 4.3.1\n"}[program], ""
        while words[0].startswith("--"):  # of the program itself
            words = words[1:]
        verb, name = words[0], words[-1]
        if verb == "image":
            known = [self.images[name]] if name in self.images else []
            return (0, json.dumps(known), "") if known else (1, "[]", f"Error: no such image: {name}")
        if verb == "import":
            self.images[name] = {"Id": f"sha256:{name}", "Config": {}}
            return 0, f"sha256:{name}\n", ""
        if verb == "build":
            tag = next(word.removeprefix("--tag=") for word in words if word.startswith("--tag="))
            self.images[tag] = {"Id": f"sha256:{tag}", "Config": {}}
            self.images[f"sha256:{tag}"] = self.images[tag]
        if verb == "info":
            return 0, json.dumps(self.docker_info), ""
        if verb == "create":
            flags = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
            labels = dict(word.removeprefix("--label=").split("=", 1) for word in words if word.startswith("--label="))
            made[flags["--name"]] = {"labels": labels, "pid": 0, "flags": flags, "words": words}
            return 0, f"{flags['--name']}\n", ""
        if verb == "start":
            flags = made[name]["flags"]
            parent = "/" + flags.get("--cgroup-parent", "").lstrip("/")
            path = f"{parent}/{'libpod-' * (program == 'podman')}{name}"
            made[name]["pid"] = self._container(path, int(flags["--user"].partition(":")[0]))
        if verb == "container" and any(word.startswith("--format") for word in words):
            return 0, f"{made[name]['pid']}\n", ""
        if verb == "container":
            rows = [{"Id": each, "Config": {"Labels": made[each]["labels"]}} for each in words[2:] if each in made]
            return 0, json.dumps(rows), ""
        if verb == "ps":
            label, _, value = name.removeprefix("--filter=label=").partition("=")
            hits = [each for each, held in made.items() if label in held["labels"]]
            return 0, "\n".join(each for each in hits if value in ("", made[each]["labels"][label])), ""
        if verb == "rm" and (pid := made.pop(name)["pid"]):
            self._end_container(pid)
        return 0, "", ""


def broken_openings(platform: Platform, site: Site, **machine: Any) -> Iterator[tuple[str, SmallLinux, bool]]:
    """Open once for each step that opening takes, with that step broken: what broke, the machine, whether it opened."""
    whole = SmallLinux(**machine)
    platform.open(whole, site)
    for step in range(1, whole.steps + 1):
        host = SmallLinux(**machine, break_at=step)
        try:
            platform.open(host, site).close()
        except TareError:
            yield whole.log[step - 1], host, False
        else:
            yield whole.log[step - 1], host, True
