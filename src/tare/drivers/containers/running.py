"""What runs already, looked at from outside: nothing is restarted, written, or executed in it.

A container is asked of its engine; all else is read from /proc, the control groups and NVML, twice, with time between.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tare.base.errors import StudyError, TareError
from tare.base.host import Host
from tare.base.processes import holding, mounts, words_of
from tare.base.secrets import masked_words, shown_env
from tare.drivers import nvidia
from tare.drivers.cgroups import tree
from tare.drivers.containers.line import ENGINES
from tare.drivers.containers.own import cpu_s
from tare.drivers.surroundings import environ, numbers, surroundings, throttled, waited_s

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.05
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
_OF_IO = ("read_bytes", "write_bytes", "wchar")
_Counts: TypeAlias = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Target:
    """What is looked at: a process and all that it started, or a container."""

    pid: int  # the first process
    name: str
    asked: str  # the option that named it
    container: Mapping[str, Any] | None = None  # what the engine's `inspect` says
    engine: str = ""
    image: Mapping[str, Any] = field(default_factory=dict)  # what the image itself says, as `Config` there


@dataclass
class Seen:
    """All that could be read."""

    seconds: float = 0.0  # between both readings
    spent: dict[str, float] = field(default_factory=dict)  # of these, over all threads, by what they went to
    counted: dict[str, float] = field(default_factory=dict)  # meanwhile
    facts: dict[str, Any] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)  # seconds of the first thread by where it was in the kernel
    stack: list[str] = field(default_factory=list)  # of a Python program at one moment, innermost first
    unseen: dict[str, str] = field(default_factory=dict)  # what could not be read, and why


def of_pid(pid: int) -> Target:
    if not words_of(pid):
        raise StudyError(f"no program runs as process {pid}: `ps -ef` lists those that do.")
    return Target(pid, f"process {pid}", f"--attach {pid}")


def of_container(host: Host, name: str) -> Target:
    """By name or id, of the engine that has it."""
    said = []
    for engine in ENGINES:
        if shutil.which(engine) is None:
            continue
        asked = host.run([engine, "container", "inspect", name])
        if asked.code == 0:
            (found,) = json.loads(asked.out)
            if not found["State"].get("Pid"):
                state = found["State"].get("Status", "stopped")
                raise StudyError(f"{name} is {state}, and only what runs is looked at: `{engine} ps` lists it.")
            image = host.run([engine, "image", "inspect", "--format", "{{json .Config}}", found["Image"]])
            of_image = json.loads(image.out) if image.code == 0 else {}
            pid = int(found["State"]["Pid"])
            return Target(pid, f"container {name}", f"--attach {name}", found, engine, of_image)
        said.append(f"{engine}: {(asked.err.strip().splitlines() or [f'code {asked.code}'])[-1]}")
    raise StudyError(f"no engine has a container {name} ({'; '.join(said) or 'there is neither docker nor podman'}).")


def look(host: Host, target: Target, seconds: float) -> Seen:
    """What the kernel tells of it now and in the next seconds."""
    try:
        return _look(host, target, seconds)
    except (ProcessLookupError, FileNotFoundError) as error:
        if words_of(target.pid):
            raise
        raise _ended(target) from error


def _ended(target: Target) -> TareError:
    return TareError(f"{target.name} ended while it was looked at.")


def _look(host: Host, target: Target, seconds: float) -> Seen:
    """Both readings, with samples of the first process between them."""
    groups, seen = tree.folders_of_pid(host, target.pid), Seen()
    if target.container is None:
        groups = {}  # others may be in the group of a process, and what it counts be theirs
    before, began_s = _counts(host, _pids(host, target, groups), groups), time.monotonic()
    where = Counter[str]()
    with suppress(KeyboardInterrupt):  # what was seen until then is worth reading
        while time.monotonic() < began_s + seconds:
            where[_where(host, target.pid)] += 1
            time.sleep(_SAMPLE_S)
    pids = _pids(host, target, groups)
    if not words_of(target.pid):
        raise _ended(target)
    seen.seconds = time.monotonic() - began_s
    grown = _grown(before, _counts(host, pids, groups))
    seen.spent = {name.removesuffix("_s"): value for name, value in grown.items() if name.endswith("_s")}
    seen.counted = {name: value for name, value in grown.items() if not name.endswith("_s")}
    seen.waits = {name: count * seen.seconds / where.total() for name, count in where.items() if name}
    seen.facts = _facts(host, target, pids, groups)
    _note_unseen(host, target, seen)
    _note_stack(host, target, seen)
    return seen


def _pids(host: Host, target: Target, groups: Mapping[str, str]) -> list[int]:
    """The container's, or a process with all that it started."""
    if target.container is not None:
        return sorted(tree.pids(host, groups)) or [target.pid]
    parents = {int(name): _stat(host, int(name))[1:2] for name in _listed("/proc") if name.isdigit()}
    found = [target.pid]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == [str(pid)]]
    return found


def _stat(host: Host, pid: int) -> list[str]:
    """State, parent and what follows: behind the name, which may hold anything."""
    return tree.text_of(host, f"/proc/{pid}/stat").rpartition(") ")[2].split()


def _counts(host: Host, pids: Iterable[int], groups: Mapping[str, str]) -> _Counts:
    """What the kernel has counted so far, by process, thread or group; seconds have names that end in `_s`."""
    of_group = _of_group(host, groups)
    found = {("", name): value for name, value in of_group.items()}
    for pid in pids:
        stat, who = _stat(host, pid), str(pid)
        if len(stat) > 12:
            found[who, "major_faults"] = int(stat[9])
        if len(stat) > 12 and "user_s" not in of_group:
            found[who, "user_s"] = int(stat[11]) / _TICKS
            found[who, "system_s"] = int(stat[12]) / _TICKS
        for task in _listed(f"/proc/{pid}/task"):
            if (waits_s := waited_s(host, pid, task)) is not None:
                found[task, "queue_s"] = waits_s
        held = numbers(tree.text_of(host, f"/proc/{pid}/io").replace(":", ""))
        found |= {(who, name): held[name] for name in _OF_IO if name in held}
    return found


def _grown(before: _Counts, after: _Counts) -> dict[str, float]:
    """By how much, over all that are there at the end: one that has ended takes nothing away from the others."""
    grown = defaultdict[str, float](float)
    for (who, name), value in after.items():
        grown[name] += max(0.0, value - before.get((who, name), 0.0))
    return dict(grown)


def _of_group(host: Host, groups: Mapping[str, str]) -> dict[str, float]:
    """Of a container: CPU time, also of those that ended; the quota's stops, pressure (some task waited), and pages
    that were read again.
    """
    found = {name.removeprefix("cgroup_"): value for name, value in throttled(host, groups).items()}
    if (used := cpu_s(host, groups)) is not None:
        found |= dict(zip(("user_s", "system_s"), used, strict=True))
    for name in ("cpu", "memory", "io"):
        first = tree.text_of(host, f"{groups.get('', '')}/{name}.pressure").partition("\n")[0]
        if "total=" in first:
            found[f"pressure.{name}_s"] = int(first.rpartition("total=")[2]) / 1e6
    if (memory := tree.locate(host, groups, "memory")) is not None:
        stat = numbers(tree.text_of(host, f"{memory.folder}/memory.stat"))
        refaults = [stat[name] for name in ("workingset_refault_file", "workingset_refault") if name in stat]
        found |= {"refaults": refaults[0]} if refaults else {}
        events = numbers(tree.text_of(host, f"{memory.folder}/memory.events"))
        hits = events.get("max") if memory.version == 2 else _number(host, f"{memory.folder}/memory.failcnt")
        found |= {} if hits is None else {"limit_hits": hits}
    return found


def _facts(host: Host, target: Target, pids: Sequence[int], groups: Mapping[str, str]) -> dict[str, Any]:
    """Limits and how near they are, threads, cores, open files and their file systems, variables, GPUs."""
    mounted, files = mounts(host, target.pid), [_open_files(pid) for pid in pids]
    paths = [path for each in files for path in each or () if path.startswith("/") and not path.startswith(_NO_FILES)]
    kinds = Counter(mount.kind for path in paths if (mount := holding(mounted, path)) is not None)
    variables = environ(target.pid)
    found: dict[str, Any] = {
        "command": masked_words(words_of(target.pid)),
        "processes": len(pids),
        "threads": sum(len(_listed(f"/proc/{pid}/task")) for pid in pids),
        "cores": len(os.sched_getaffinity(target.pid)),
        "open_files": max((len(each) for each in files if each is not None), default=None),
        "file_systems": dict(kinds),
        "variables": None if variables is None else shown_env(variables),
        **surroundings(host, target.pid),
    }
    if target.container is None:
        found.pop("cgroup")
    for name, controller, file in (("memory", "memory", ("memory.usage_in_bytes", "memory.current")),
                                   ("tasks", "pids", ("pids.current",) * 2),
                                   ("tasks_limit", "pids", ("pids.max",) * 2)):  # fmt: skip
        if (held := tree.locate(host, groups, controller)) is not None:
            found[name] = _number(host, f"{held.folder}/{file[held.version - 1]}")
    with suppress(TareError, OSError):
        used = [gpu for gpu in nvidia.gpus(host) if {*gpu.compute_pids()} & {*pids}]
        found |= {"gpus": {gpu.name(): gpu.util() for gpu in used}} if used else {}
    return found


def _number(host: Host, path: str) -> float | None:
    text = tree.text_of(host, path).strip()
    return float(text) if text.isdigit() else None


def _open_files(pid: int) -> list[str] | None:
    found = []
    try:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(each.readlink()))
    except OSError:
        return None
    return found


def _listed(folder: str) -> list[str]:
    with suppress(OSError):
        return [each.name for each in Path(folder).iterdir()]
    return []


def _where(host: Host, pid: int) -> str:
    """In which function of the kernel the first thread waits; empty where it does not, or that is not shown."""
    at = tree.text_of(host, f"/proc/{pid}/wchan").strip()
    return "" if tree.state_of(host, pid) == "R" or at in ("", "0") else at


def _note_unseen(host: Host, target: Target, seen: Seen) -> None:
    """What needs rights that we do not have, or a kernel that counts it, each with what to do."""
    again = f"only its own user and root may read that: `sudo tare why {target.asked}`"
    if seen.facts["variables"] is None:
        seen.unseen["variables"] = again
    if seen.facts["open_files"] is None:
        seen.unseen["open files"] = again
    if "read_bytes" not in seen.counted:
        seen.unseen["reads and writes"] = again
    if target.container is None:
        seen.unseen["throttling, pressure and memory of a group"] = (
            "a process may share its control group: `tare why --attach NAME` looks at a container's."
        )
    elif "throttled" not in seen.spent:
        seen.unseen["throttling"] = "its control group does not count it."
    elif not any(name.startswith("pressure.") for name in seen.spent):
        seen.unseen["pressure"] = "its control group has none: that needs version 2, and PSI in the kernel."
    if (why := nvidia.trouble(host)) is not None:
        seen.unseen["GPUs"] = f"{why}."


def _note_stack(host: Host, target: Target, seen: Seen) -> None:
    """Of a Python program, by py-spy, which reads its memory and does not stop it."""
    if "python" not in Path((seen.facts["command"] or [""])[0]).name:
        return
    if shutil.which("py-spy") is None:
        seen.unseen["Python functions"] = f"`pip install py-spy`, then `sudo tare why {target.asked}`."
        return
    asked = host.run(["py-spy", "dump", "--nonblocking", "--pid", str(target.pid)], limit_s=30)
    frames = asked.out.partition("Thread ")[2].partition("Thread ")[0].splitlines()[1:]
    seen.stack = [line.strip() for line in frames if line.startswith("    ")]
    if not seen.stack:
        why = (asked.err.strip().splitlines() or ["py-spy shows none"])[-1]
        seen.unseen["Python functions"] = f"{why}: `sudo tare why {target.asked}`"


_USUAL_SHM = 64 << 20
_USUAL_NETWORKS = ("", "default", "bridge", "pasta", "slirp4netns", "private")
_USUAL_LOGS = ("", "json-file", "journald", "k8s-file")


def line_of(target: Target) -> list[str]:
    """The line that makes such a container again, without its secrets and what its image says anyway."""
    if target.container is None:
        return []
    config, host, image = target.container["Config"], target.container["HostConfig"], target.image
    cores = (host.get("NanoCpus") or 0) / 1e9
    words = [target.engine, "run", "--rm", *(["--cpus", f"{cores:g}"] if cores else [])]
    options = {"--cpu-quota": "CpuQuota", "--cpu-period": "CpuPeriod"} if not cores else {}
    options |= {"--cpu-shares": "CpuShares", "--cpuset-cpus": "CpusetCpus", "--memory": "Memory"}
    options |= {"--shm-size": "ShmSize"} if host.get("ShmSize") != _USUAL_SHM else {}
    words += [word for option, name in options.items() if host.get(name) for word in (option, str(host[name]))]
    words += _other_options(host)
    for limit in host.get("Ulimits") or ():
        words += ["--ulimit", f"{limit['Name'].lower().removeprefix('rlimit_')}={limit['Soft']}:{limit['Hard']}"]
    for mount in target.container.get("Mounts") or ():
        if mount.get("Type") in ("bind", "volume"):
            source = mount.get("Name") or mount["Source"]
            words += ["-v", f"{source}:{mount['Destination']}{'' if mount.get('RW') else ':ro'}"]
    given = [each for each in config.get("Env") or () if "=" in each and each not in (image.get("Env") or ())]
    for name, value in dict(each.split("=", 1) for each in given).items():
        shown = shown_env({name: value})[name]
        words += ["-e", f"{name}={value}" if shown == value else name]  # the value of a name alone is the shell's
    for option, key in (("-w", "WorkingDir"), ("-u", "User")):
        words += [option, config[key]] if config.get(key) not in (None, "", image.get(key)) else []
    entry, command = (_words(config.get(key)) for key in ("Entrypoint", "Cmd"))
    if entry != _words(image.get("Entrypoint")):
        words += ["--entrypoint", entry[0] if entry else ""]
        command = [*entry[1:], *command]
    elif command == _words(image.get("Cmd")):
        command = []
    return [*words, config["Image"], *masked_words(command)]


def _words(given: str | list[str] | None) -> list[str]:
    """An entry point is one text where an engine is Podman before 5."""
    return shlex.split(given) if isinstance(given, str) else [*(given or ())]


def _other_options(host: Mapping[str, Any]) -> list[str]:
    """Those with several values, and those that are told only where they are not as usual."""
    found = ["--privileged"] if host.get("Privileged") else []
    for option, name in (("--cap-add", "CapAdd"), ("--cap-drop", "CapDrop"), ("--security-opt", "SecurityOpt")):
        for value in host.get(name) or ():
            # The engine keeps what stood in the file of a profile, and not where that lay.
            found += [option, "seccomp=PROFILE.json" if value.startswith("seccomp={") else value]
    for option, name in (("--device-read-bps", "ReadBps"), ("--device-write-bps", "WriteBps"),
                         ("--device-read-iops", "ReadIOps"), ("--device-write-iops", "WriteIOps")):  # fmt: skip
        for each in host.get(f"BlkioDevice{name}") or ():
            found += [option, f"{each['Path']}:{each['Rate']}"]
    if (most := host.get("PidsLimit") or 0) > 0:
        found += ["--pids-limit", str(most)]
    if (network := host.get("NetworkMode") or "") not in _USUAL_NETWORKS:
        found += ["--network", network]
    logs = host.get("LogConfig") or {}
    if logs.get("Config") or logs.get("Type", "") not in _USUAL_LOGS:
        found += ["--log-driver", logs["Type"]]
    found += [word for pair in (logs.get("Config") or {}).items() for word in ("--log-opt", "=".join(pair))]
    for each in host.get("DeviceRequests") or ():
        if "gpu" in str(each.get("Capabilities")) or each.get("Driver") == "nvidia":
            ids = ",".join(each.get("DeviceIDs") or ())
            count = each.get("Count", -1)
            found += ["--gpus", f'"device={ids}"' if ids else "all" if count < 0 else str(count)]
    return masked_words(found)


def line_text(target: Target) -> str:
    return shlex.join(["tare", "why", "--", *line_of(target)]) if target.container else ""
