"""Plants causes of slowness for real, asks `tare why`, applies the cure that it prints, and counts what is right.

python tools/planted.py run RESULTS.jsonl [--hours H] [--only "A;B"]      appends one line per run; may be started twice
python tools/planted.py run RESULTS.jsonl --parallel N --cores M          N at once, each on M cores of its own
python tools/planted.py table RESULTS.jsonl [--write]    the table of docs/explanation/accuracy-and-cost.md

A line is counted for the plant that it was made with: after a plant is changed its lines count no longer. Nor does a
line with a key `superseded`, which names what was mended in tare because of it, or before it was run again.

A run is `tare why --layers never` on a small program (tests/machine/planted_work.py), as root, on runc or docker. What
else the machine does makes no trial invalid (tests/machine/undisturbed.py): the point is to be right on a noisy one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import math
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "tests" / "machine" / "planted_work.py"
sys.path.insert(0, str(WORK.parent))
from planted_images import PYTHON, python_image  # noqa: E402

from tare.cli.limits import LIMITS  # noqa: E402

TARE = ROOT / "tests" / "machine" / "undisturbed.py"
PAGE = ROOT / "docs" / "explanation" / "accuracy-and-cost.md"
BEGIN, END = "<!-- planted: tools/planted.py table --write -->", "<!-- /planted -->"
MARGIN, FEW = "10%", 30
LARGE = 4.0  # of a cost that is five times the work, two blocks show whether it is gone
REMOVED = 0.7  # of the cost, in logs: then a cure counts as one that works
Around = Callable[["Session"], Any]


@dataclass
class Session:
    """One run: its folder, and words that its plant fills in."""

    folder: Path
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plant:
    """What is planted, the work that it slows down, and who should be named."""

    work: tuple[str, ...]
    options: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    platform: str = "runc"
    around: Around | None = None  # what else has to be there
    also: tuple[str, ...] = ()  # who is right too: another way to say the same
    unknown: bool = False  # not in the catalogue: nobody may be named, and it must be said that it is not explained
    both: tuple[str, ...] = ()  # options of both sides
    steps: int = 100  # fewer where a step waits
    machine: str = ""  # the only kind of processor on which it can be planted; `gpu`: where there is one
    python: str = sys.executable
    is_curable: bool = True  # by options; an image must be built anew
    about: str = ""


@contextmanager
def listening(session: Session) -> Iterator[None]:
    """A server on the device's loopback, which a container without the device's network does not reach."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    session.words["PORT"] = str(server.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@contextmanager
def large_file(session: Session) -> Iterator[None]:
    path = session.folder / "large"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())  # only what is on the disk can be dropped from the cache
    session.words["FILE"] = str(path)
    yield


@contextmanager
def full_cache(session: Session) -> Iterator[None]:
    home = session.folder / "caches"
    home.mkdir()
    (home / "planted-kernel").touch()
    session.words["CACHE"] = str(home)
    yield


@contextmanager
def dead_rules(session: Session) -> Iterator[None]:
    """A filter with many rules about one call."""
    rules = [
        {"names": ["getpgid"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": n, "op": "SCMP_CMP_EQ"}]}
        for n in range(1, 1000)
    ]
    path = session.folder / "profile.json"
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}))
    session.words["PROFILE"] = str(path)
    yield


@contextmanager
def busy_group(session: Session) -> Iterator[None]:
    """A neighbour of usual weight that wants both cores all the time, in a group beside those of the trials."""
    folder = Path("/sys/fs/cgroup/cpu/tare") / f"planted-{os.getpid()}-{session.folder.name}"
    folder.mkdir(parents=True)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for each in spinners:
            (folder / "cgroup.procs").write_text(str(each.pid))
        yield
    finally:
        for each in spinners:
            each.kill()
            each.wait()
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextmanager
def two_images(session: Session) -> Iterator[None]:
    """Two images of Python; in the one it was built without its compiled reader and writer of JSON."""
    session.words["SLOW"] = str(python_image(session.folder / "app-2", without="_json"))
    session.words["QUICK"] = str(python_image(session.folder / "app-1"))
    session.words["WORK"] = str(WORK)
    yield


DROP = """\
import os, pathlib
for path in pathlib.Path({root!r}).rglob("*"):
    if path.is_file():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""


@contextmanager
def cold_image(session: Session) -> Iterator[None]:
    """An image with a large file, of which nothing is in the page cache when a container starts, as after a pull: by a
    runc that drops its files first. Bare metal reads the same files, and finds what the container has read before it.
    """
    root, programs, runc = session.folder / "app", session.folder / "bin", shutil.which("runc")
    python_image(root, more=("/usr/bin/find",))
    (root / "usr" / "bin" / "python3").symlink_to(PYTHON)
    (root / "opt").mkdir()
    with (root / "opt" / "weights").open("wb") as file:
        for _ in range(WEIGHTS_MIB):
            file.write(os.urandom(1 << 20))
    os.sync()  # only what is on the disk can be dropped from the cache
    programs.mkdir()
    (programs / "drop.py").write_text(DROP.format(root=str(root)))
    starts = f'case " $* " in *" create "*|*" run "*) {sys.executable} {programs}/drop.py;; esac'
    (programs / "runc").write_text(f'#!/bin/sh\n{starts}\nexec {runc} "$@"\n')
    (programs / "runc").chmod(0o755)
    session.words |= {"IMAGE": str(root), "WORK": str(WORK)}
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{programs}:{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path


@contextmanager
def slow_disk(session: Session) -> Iterator[None]:
    """A file system that writes everything at once, as a share of another machine may."""
    image, point = session.folder / "slow.img", session.folder / "slow"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,sync,dirsync", str(image), str(point)], check=True)
    session.words["SLOW"] = str(point)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)  # containers of others may have copied the mount


WEIGHTS_MIB = 48
COMPUTE, ALLOC, MAP = ("--compute", "12000"), ("--alloc", "800"), ("--map", "12")
TRACED = ("--container-env", "PYTHONTRACEMALLOC=1")
MAPPED = ("--container-env", "MALLOC_MMAP_THRESHOLD_=4096")
SMALL_SHM, SHM = ("--limit", "shm=1MiB"), ("--shm", "2")
CALLS = ("--connect", "{PORT}")
PLANTS: dict[str, Plant] = {
    # Alone.
    "quota": Plant(COMPUTE, ("--limit", "cpus=0.08"), ("cpu_quota",)),
    "quota, docker": Plant(COMPUTE, ("--limit", "cpus=0.08"), ("cpu_quota",), "docker"),
    "one core of two": Plant(("--twice", "15000"), ("--limit", "cpuset={CORE}"), ("cpu_set",)),
    "threads": Plant(
        ("--pool", "12000"),
        ("--container-env", "OMP_NUM_THREADS=64"),
        ("threads",),
        both=("--set", "workload.env.OMP_NUM_THREADS=1"),
    ),
    "CPU dispatch": Plant(  # the kernels of OpenBLAS for an older core
        ("--dot", "2"),
        ("--container-env", "OPENBLAS_CORETYPE=THUNDERX"),
        ("instruction_set",),
        both=("--set", "workload.env.OPENBLAS_NUM_THREADS=1"),
        machine="aarch64",
    ),
    "CPU dispatch, x86": Plant(
        ("--dot", "2"),
        ("--container-env", "OPENBLAS_CORETYPE=Nehalem"),
        ("instruction_set",),
        both=("--set", "workload.env.OPENBLAS_NUM_THREADS=1"),
        machine="x86_64",
    ),
    "tracemalloc": Plant(ALLOC, TRACED, ("debug_variables",)),
    "tracemalloc, docker": Plant(ALLOC, TRACED, ("debug_variables",), "docker"),
    "malloc debug": Plant(ALLOC, ("--container-env", "PYTHONMALLOC=malloc_debug"), ("debug_variables",)),
    "mmap threshold": Plant(MAP, MAPPED, ("allocator",)),
    "malloc tunables": Plant(
        MAP, ("--container-env", "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4096"), ("allocator",)
    ),
    "shm": Plant((*COMPUTE, *SHM), SMALL_SHM, ("shared_memory",), steps=FEW),
    "shm, docker": Plant((*COMPUTE, *SHM), SMALL_SHM, ("shared_memory",), "docker", steps=FEW),
    "network": Plant((*COMPUTE, *CALLS), (), ("network",), around=listening, steps=FEW),
    "seccomp": Plant(
        ("--calls", "800"), ("--set", "platform.seccomp_profile={PROFILE}"), ("seccomp",), around=dead_rules
    ),
    "memory": Plant(
        ("--read", "{FILE}", "--pages", "60"), ("--limit", "memory=32MiB"), ("memory_limit",), around=large_file
    ),
    "I/O limit": Plant(
        ("--read", "{FILE}", "--pages", "8", "--cold"), ("--limit", "io_rate=2MB"), ("io_limit",), around=large_file
    ),
    "CPU weight": Plant(COMPUTE, ("--limit", "cpu_shares=64"), ("cpu_weight",), around=busy_group),
    "bytecode": Plant(("--imports", *COMPUTE), ("--container-env", "PYTHONPYCACHEPREFIX=/nonexistent"), ("bytecode",)),
    "open files": Plant((*COMPUTE, "--files", "200"), ("--limit", "nofile=64"), ("ulimits",)),
    "cache folder": Plant(
        ("--cache", "{CACHE}", *COMPUTE),
        ("--container-env", "XDG_CACHE_HOME=/var/tmp/none"),
        ("caches",),
        around=full_cache,
    ),
    "own variable": Plant(
        (*COMPUTE, "--mode", "APP_CHECKS"), ("--container-env", "APP_CHECKS=1"), ("other_variables",), steps=FEW
    ),
    "own option": Plant(
        (*COMPUTE, "--sleep", "1"),
        ("--container-arg", "--sleep=25"),
        ("other_arguments",),
        steps=FEW,
        is_curable=False,
    ),
    "output, docker": Plant(("--print", "1000"), (), ("output",), "docker"),
    "another image": Plant(
        ("--json", "4"),
        ("--image", "{SLOW}", "--against-image", "{QUICK}", "--mount", "{WORK}"),
        ("software",),
        around=two_images,
        python=PYTHON,
        is_curable=False,
    ),
    "cold image": Plant(
        ("--weights", "/opt/weights", *COMPUTE),
        ("--image", "{IMAGE}", "--mount", "{WORK}"),
        ("cold_layers",),
        around=cold_image,
        python=PYTHON,
        is_curable=False,
    ),
    "temporary files on a slow disk": Plant(
        (*COMPUTE, "--spill", "3"), ("--container-env", "TMPDIR={SLOW}"), ("root_files",), around=slow_disk, steps=FEW
    ),
    "a variable of NCCL": Plant(  # the program looks at it: NCCL itself needs two GPUs
        (*COMPUTE, "--mode", "NCCL_P2P_DISABLE"),
        ("--container-env", "NCCL_P2P_DISABLE=1"),
        ("interconnect",),
        steps=FEW,
    ),
    "TF32, GPU": Plant(  # `gpu_math` sees what follows of it; the variable is what can be tried
        ("--gpu", "20"),
        ("--container-env", "NVIDIA_TF32_OVERRIDE=0"),
        ("debug_variables",),
        both=("--set", "workload.env.TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"),
        machine="gpu",
    ),
    # In pairs.
    "quota + tracemalloc": Plant(
        ("--compute", "4000", "--alloc", "250"), ("--limit", "cpus=0.1", *TRACED), ("cpu_quota", "debug_variables")
    ),
    "tracemalloc + mmap": Plant((*ALLOC, *MAP), (*TRACED, *MAPPED), ("debug_variables", "allocator")),
    "shm + tracemalloc": Plant((*ALLOC, *SHM), (*SMALL_SHM, *TRACED), ("shared_memory", "debug_variables"), steps=FEW),
    "network + mmap": Plant((*MAP, *CALLS), MAPPED, ("network", "allocator"), around=listening, steps=FEW),
    "shm + own variable": Plant(
        (*COMPUTE, *SHM, "--mode", "APP_CHECKS"),
        (*SMALL_SHM, "--container-env", "APP_CHECKS=1"),
        ("shared_memory", "other_variables"),
        steps=FEW,
    ),
    # Nothing that costs, though something differs.
    "nothing": Plant(COMPUTE),
    "nothing, docker": Plant(COMPUTE, platform="docker"),
    "a quota that is not used": Plant(COMPUTE, ("--limit", "cpus=2")),
    "a variable that does nothing": Plant(ALLOC, ("--container-env", "PYTHONASYNCIODEBUG=1")),
    "a large shm and a memory limit": Plant(COMPUTE, ("--limit", "shm=64MiB", "--limit", "memory=2GiB")),
    # Not in the catalogue.
    "a sleep in the program": Plant((*COMPUTE, "--strange", "sleep"), unknown=True, steps=FEW),
    "a sleep by privileges": Plant((*COMPUTE, "--strange", "privileges"), unknown=True, steps=FEW),
    "other processes in the container": Plant((*COMPUTE, "--strange", "neighbours"), unknown=True),
}


def digest(plant: Plant) -> str:
    """Of what was planted: runs of another one are not counted with it."""
    what = (plant.work, plant.options, plant.causes, plant.platform, plant.both, str(plant.steps), MARGIN)
    return hashlib.sha256(repr(what).encode()).hexdigest()[:8]


def one_run(name: str, seed: int) -> dict[str, Any]:
    """Plant it, ask why, judge the answer, apply the cure."""
    plant, folder = PLANTS[name], Path(tempfile.mkdtemp(prefix="why-planted-", dir="/var/tmp"))
    session, began_s = Session(folder, {"CORE": str(min(os.sched_getaffinity(0)))}), time.monotonic()
    line: dict[str, Any] = {
        "plant": name,
        "causes": plant.causes,
        "seed": seed,
        "utc": time.strftime("%FT%TZ", time.gmtime()),
        "digest": digest(plant),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    line |= {"load": round(os.getloadavg()[0], 1), "version": os.environ.get("PLANTED_VERSION", "")}
    try:
        with ExitStack() as stack:
            if plant.around is not None:
                stack.enter_context(plant.around(session))
            given = [word.format(**session.words) for word in plant.options]
            both = [word.format(**session.words) for word in plant.both]
            work = [word.format(**session.words) for word in plant.work]
            command = [plant.python, str(WORK), str(plant.steps), *work]
            asked = ["why", "--in", plant.platform, "--layers", "never", "--set", f"compare.margin={MARGIN}"]
            asked += ["--json", *given, *both]
            done = tare(folder, *asked, "-o", str(folder / "why"), "--", *command)
            if done.returncode != 0:
                return {**line, "judged": "failed", "error": done.stderr[-800:]}
            found = json.loads(done.stdout)
            line |= judged(plant, found)
            line["trials"] = done.stderr.count("] block ")
            line["why_s"] = round(time.monotonic() - began_s, 1)
            if line["judged"] == "right" and plant.causes and plant.is_curable:
                line |= cured(plant, found, folder, given, both, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**line, "seconds": round(time.monotonic() - began_s, 1)}


def tare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TARE_", "PYTHONDONT"))}
    env |= {
        "TARE_STATE": str(folder / "state"),
        "TARE_LOCK_DIR": str(folder / "lock"),
        "PYTHONPATH": f"{ROOT / 'src'}:{TARE.parent}",
    }
    argv = [sys.executable, str(TARE), *words]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", env=env)
    try:
        out, err = started.communicate(timeout=3600)
    except BaseException:
        started.terminate()  # it ends its trial and removes what it made
        started.communicate(timeout=60)
        raise
    return subprocess.CompletedProcess(argv, started.returncode, out, err)


def judged(plant: Plant, found: dict[str, Any]) -> dict[str, Any]:
    """Right: those that were planted are named, all of them and nobody else. Wrong: somebody else is named."""
    answer = found.get("answer") or {}
    named = list(answer.get("causes", []))
    words = {each["cause"]: each["outcome"] for each in answer.get("tried", [])}
    allowed = {*plant.causes, *plant.also}
    told = {
        "slower": found["total"]["verdict"], "effect": found["total"]["effect"], "words": words, "named": named,
        "explained": answer.get("explained"), "phases": [each["name"] for each in found["phases"]],
        "suspects": list(found["suspects"]),
    }  # fmt: skip
    if set(named) - allowed:
        return {**told, "judged": "wrong"}
    if not plant.causes:
        honest = not named and (found["total"]["verdict"] != "slower" or not answer.get("explained"))
        return {**told, "judged": "right" if honest else "wrong"}
    if {*plant.causes} <= {*named} or (len(plant.causes) == 1 and named):
        return {**told, "judged": "right"}
    located = {*answer.get("located", ()), *found.get("located", ())}  # in the image, not what of it
    return {**told, "judged": "in part" if named or allowed & located else "cannot tell"}


def options_of(cure: str, given: list[str], other: list[str]) -> list[str]:
    """The options of the container after a user has applied this cure: what is printed decides."""
    kept = dict.fromkeys(pairs(given))
    variables = [value for key, value in kept if key == "--container-env"]
    for name in re.findall(r"-u (\w+)", cure):
        variables = [each for each in variables if not each.startswith(f"{name}=")]
    for name, value in re.findall(r"-e (\w+)=(\S*)", cure):
        variables = [each for each in variables if not each.startswith(f"{name}=")] + [f"{name}={value.rstrip(';')}"]
    cures = (
        ("--cpus", "cpus"), ("--cpuset-cpus", "cpuset"), ("-m SIZE", "memory"), ("--cpu-shares", "cpu_shares"),
        ("--device-read-bps", "io_rate"), ("seccomp=unconfined", "platform.seccomp_profile"),
    )  # fmt: skip
    gone = {name for printed, name in cures if printed in cure}
    made = {
        value.partition("=")[0]: (key, value)
        for key, value in kept
        if key != "--container-env" and value.partition("=")[0] not in gone
    }
    for name, value in re.findall(r"--ulimit (\w+)=(-?\d+)", cure):
        made[name] = ("--limit", f"{name}={value}")
    if "--shm-size 8g" in cure:
        made["shm"] = ("--limit", "shm=8GiB")
    if "--network host" in cure:
        made["platform.network"] = ("--set", "platform.network=host")
    if "> FILE" in cure:
        variables.append("TARE_OUTPUT=/dev/null")
    words = [word for pair in made.values() for word in pair]
    return [*words, *(word for each in variables for word in ("--container-env", each)), *other]


def pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    return zip(words[::2], words[1::2], strict=True)


def cured(
    plant: Plant, found: dict[str, Any], folder: Path, given: list[str], both: list[str], command: list[str]
) -> dict[str, Any]:
    """The container with all printed cures against bare metal: what is left of the cost."""
    options = given
    for cause in found["answer"]["causes"]:
        options = options_of(found["suspects"][cause]["cure"], options, [])
    fields: dict[str, Any] = {}
    for key, value in pairs(options):
        name, _, text = value.partition("=")
        if key == "--container-env":
            fields.setdefault("env", {})[name] = text
        elif key == "--limit":
            fields |= LIMITS.convert(value, None, None)
        elif key == "--set" and name.startswith("platform."):
            fields[name.partition(".")[2]] = text
    workload: dict[str, Any] = {"argv": command, "cwd": "/"}
    if both:
        workload["env"] = dict([both[1].removeprefix("workload.env.").split("=", 1)])
    container = {plant.platform: fields} if fields else plant.platform
    study = {
        "study": "cured", "platform": ["bare", container], "workload": {"command": workload},
        "aa": False, "rehearse": False,
    }  # fmt: skip
    cost = math.log1p(found["total"]["effect"])
    for blocks in (2 if found["total"]["effect"] > LARGE else 3, 6):  # six anew where the few leave a doubt
        store = folder / f"cured-{blocks}"
        (folder / "cured.yaml").write_text(json.dumps({**study, "repeat": blocks}))
        ran = tare(folder, "run", str(folder / "cured.yaml"), "-o", str(store))
        left = ratio(store, found["answer"]["metric"], plant.platform)
        if left is None:
            return {"cure": "failed", "error": ran.stderr[-400:]}
        removed = 1 - math.log(left) / cost
        if removed >= REMOVED:
            break
    return {
        "cure": "removes it" if removed >= REMOVED else "does not",
        "removed": round(removed, 2),
        "left": round(left, 3),
        "cure_blocks": blocks,
    }


def ratio(store: Path, metric: str, platform: str) -> float | None:
    sys.path.insert(0, str(ROOT / "src"))
    from tare.records.store import Store

    with Store.open(store) as opened:
        records = opened.records()
    times = {
        name: [each.metrics[metric] for each in records if each.settings["platform"] == name and metric in each.metrics]
        for name in ("bare", platform)
    }
    return median(times[platform]) / median(times["bare"]) if all(times.values()) else None


def counted(results: Path) -> list[dict[str, Any]]:
    """The lines of the plants as they are now."""
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    known = [line for line in lines if line["plant"] in PLANTS and "superseded" not in line]
    return [line for line in known if line.get("digest") == digest(PLANTS[line["plant"]])]


def run(results: Path, hours: float, names: list[str]) -> None:
    """Each plant in turn, in a new order each time, until the time is up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ends_s, seed = time.monotonic() + hours * 3600, random.randrange(1 << 30)
    order = random.Random(seed)
    while time.monotonic() < ends_s:
        made = Counter(line["plant"] for line in counted(results))
        least = min(made[name] for name in names)
        name = order.choice([each for each in names if made[each] == least])
        try:
            line = one_run(name, seed)
        except Exception as error:  # one run is lost, not the night
            line = {"plant": name, "judged": "failed", "error": f"{type(error).__name__}: {error}"}
            line["digest"] = digest(PLANTS[name])
        with results.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(line) + "\n")
        told = (line["judged"], name, line.get("words"), line.get("cure", ""), f"{line.get('seconds')} s")
        print(*told, flush=True)  # noqa: T201


def run_beside(results: Path, hours: float, names: list[str], parallel: int, cores: int) -> None:
    """Several at once, each on cores of its own, with a share of the plants of its own; no engine is shared."""
    here = sorted(os.sched_getaffinity(0))
    names = [name for name in names if PLANTS[name].platform == "runc"]
    if parallel * cores > len(here):
        sys.exit(f"{parallel} runs on {cores} cores each need {parallel * cores} cores; there are {len(here)}.")
    children = []
    for number in range(parallel):
        own = ",".join(map(str, here[number * cores : (number + 1) * cores]))
        options = ["--hours", str(hours), "--only", ";".join(names[number::parallel])]
        children.append(
            subprocess.Popen(["taskset", "-c", own, sys.executable, __file__, "run", str(results), *options])
        )
    for child in children:
        child.wait()


def table(results: Path) -> str:
    """The rates over all, for each machine, and one row a plant."""
    every = [json.loads(line) for line in results.read_text().splitlines()]
    lines = counted(results)
    before = [line for line in every if line not in lines and line["judged"] != "failed" and line["plant"] in PLANTS]
    ran = [line for line in lines if line["judged"] != "failed"]
    rows = ["| plant | runs | slower by | named right | in part | cannot tell | no sure cost | wrong | cure works |",
            "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, plant in PLANTS.items():
        mine = [line for line in ran if line["plant"] == name]
        if not mine:
            continue
        count = Counter(_word(line) for line in mine)
        effects = [1 + line["effect"] for line in mine if line.get("effect") is not None]
        cures = [line["cure"] for line in mine if "cure" in line]
        what = f"{name} (`{'`, `'.join(plant.causes)}`)" if plant.causes else name
        by = f"{median(effects):.2g}x" if effects else ""
        works = f"{cures.count('removes it')} of {len(cures)}" if cures else ""
        cells = [count.get(word, 0) for word in ("right", "in part", "cannot tell", "no sure cost", "wrong")]
        rows.append(f"| {what} | {len(mine)} | {by} | {' | '.join(map(str, cells))} | {works} |")
    machines = dict.fromkeys(line["machine"] for line in ran)
    told = [f"- {machine}: {summary([line for line in ran if line['machine'] == machine])}" for machine in machines]
    told.append(
        f"- Not counted: {len(lines) - len(ran)} runs that failed, and {len(before)} runs from before a plant or tare "
        f"was mended, of which {_right(before)} were right and {_wrong(before)} accused somebody wrongly."
    )
    return "\n".join(told) + "\n\n" + "\n".join(rows)


def summary(ran: list[dict[str, Any]]) -> str:
    """The rates, with their exact binomial intervals (95 %)."""
    planted = [line for line in ran if PLANTS[line["plant"]].causes]
    seen = [line for line in planted if _word(line) != "no sure cost"]
    cures = [line["cure"] for line in ran if "cure" in line]
    removed = cures.count("removes it")
    return (
        f"**{len(ran)} runs**, {len(planted)} with a cause of the catalogue planted: named right in {_right(planted)} "
        f"({share(_right(planted), len(planted))}); of the {len(seen)} in which the plant surely cost something "
        f"{share(_right(seen), len(seen))}. Of the other {len(ran) - len(planted)} right "
        f"{_right(ran) - _right(planted)}. Somebody accused wrongly in {_wrong(ran)} of all "
        f"({share(_wrong(ran), len(ran))}). The printed cure removed the cost in {removed} of {len(cures)} runs "
        f"({share(removed, len(cures))}). Median length of a `tare why`: "
        f"{median([line['why_s'] for line in ran]):.0f} s, at a median load of "
        f"{median([line['load'] for line in ran]):.1f}."
    )


def share(count: int, of: int) -> str:
    """A share with its exact binomial interval."""
    if not of:
        return "none"
    from scipy.special import betaincinv

    low = betaincinv(count, of - count + 1, 0.025) if count else 0.0
    high = betaincinv(count + 1, of - count, 0.975) if count < of else 1.0
    return f"{count / of:.1%} [{low:.1%}, {high:.1%}]"


def _right(lines: list[dict[str, Any]]) -> int:
    return sum(line["judged"] == "right" for line in lines)


def _wrong(lines: list[dict[str, Any]]) -> int:
    return sum(line["judged"] == "wrong" for line in lines)


def _word(line: dict[str, Any]) -> str:
    """A plant that costs nothing sure at the time is told apart from one that is not named."""
    unseen = line["judged"] == "cannot tell" and line["slower"] != "slower"
    return "no sure cost" if unseen else str(line["judged"])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=["run", "table"])
    asked.add_argument("results", type=Path)
    asked.add_argument("--hours", type=float, default=12.0)
    asked.add_argument("--only", default="", help="plants, with ; between them")
    asked.add_argument("--parallel", type=int, default=0)
    asked.add_argument("--cores", type=int, default=3)
    asked.add_argument("--write", action="store_true")
    wanted = asked.parse_args()
    if wanted.what == "run":
        names = [name for name in wanted.only.split(";") if name] or list(PLANTS)
        here = ("", platform.machine(), *(["gpu"] if Path("/dev/nvidia0").exists() else []))
        names = [name for name in names if PLANTS[name].machine in here]
        if wanted.parallel:
            run_beside(wanted.results.resolve(), wanted.hours, names, wanted.parallel, wanted.cores)
        else:
            run(wanted.results.resolve(), wanted.hours, names)
        return
    made = table(wanted.results)
    print(made)  # noqa: T201
    if wanted.write:
        text = PAGE.read_text()
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
