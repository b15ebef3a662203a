"""How a job reaches the inside of a platform: the command line that starts it, and its environment.

A job gets an environment that is the same on every platform, to the byte: a variable more or less moves the stack. A
built-in workload gets an allowlist, since a thread count left over in someone's shell changes the result; a command of
the user's gets all of theirs but a short list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import tare_inside
from tare.base.host import Clock, ImageConfig
from tare_inside.jobs import BUILT_IN, users_own

Malloc: TypeAlias = Literal["fixed", "default"]

SOURCE = Path(tare_inside.__file__).parent
"""Where `tare_inside` lies on this device."""

# An allocator decides at run time whether to give freed memory back, and the choice flips between identical runs:
# page faults move by four orders of magnitude and step time with them. glibc goes by the size of what is free,
# mimalloc (in torch's builds for ARM) by a clock: what stays free for 10 ms goes. Fixed, both keep what they have.
FIXED_MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "MIMALLOC_PURGE_DELAY": "-1",
}

# oneDNN on ARM would leave a /tmp/perf-PID.map of its kernels behind each process.
_STEADY = {"ONEDNN_JIT_PROFILE": "0", "PYTHONHASHSEED": "0"}
# Not for a user's command: its imports would be compiled in every trial of every side, and what an image without
# compiled files costs could not be seen.
_STEADY_BUILT_IN = {**_STEADY, "PYTHONDONTWRITEBYTECODE": "1"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEFAULTS = {"PATH": PATH, "HOME": "/", "LANG": "C.UTF-8"}


def launched(python: str, workdir: Path, argv: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs `argv` and leaves `result.json` in the workdir.

    The launcher starts without the site module and without PYTHON* variables: it is quick, and what is on PYTHONPATH
    is for the job, not for it.
    """
    launcher = workdir / "inside" / "tare_inside" / "launch.py"
    return (python, "-I", "-S", str(launcher), str(workdir / "result.json"), "--", *argv)


def built_in_env(workdir: Path, malloc: Malloc, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a built-in workload: nothing of the user's but where programs and libraries are found."""
    ours = os.environ if environ is None else environ
    kept = {name: value for name, value in ours.items() if name in BUILT_IN}
    inside = {"PYTHONPATH": str(workdir / "inside"), "TARE_MARKS": str(workdir / "marks.bin")}
    return {**_DEFAULTS, **kept, **_STEADY_BUILT_IN, **_malloc(malloc), **inside}


def users_env(
    workdir: Path, malloc: Malloc, *, attach: bool, environ: Mapping[str, str] | None = None, steady: bool = True
) -> dict[str, str]:
    """The environment of a user's own command: theirs, less a short list, and our marks first on PYTHONPATH."""
    ours = os.environ if environ is None else environ
    kept = {name: value for name, value in ours.items() if users_own(name)}
    env = {**_DEFAULTS, **(_STEADY if steady else {}), **kept, **_malloc(malloc)}
    inside = workdir / "inside"
    hooks = str(inside / "tare_inside" / "inside_site") if attach else ""
    folders = [hooks, str(inside), kept.get("PYTHONPATH", "")]  # `from tare_inside import marks` works either way
    env["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    env["TARE_MARKS"] = str(workdir / "marks.bin")
    return env


def image_env(workdir: Path, malloc: Malloc, image: ImageConfig, *, attach: bool) -> dict[str, str]:
    """The environment of a command whose files are an image's: the image's own, as for `docker run`, and our marks."""
    home = {"HOME": "/root"} if image.user.partition(":")[0] in ("", "0", "root") else {}
    return users_env(workdir, malloc, attach=attach, environ={**home, **image.env})


def own_variables(env: Mapping[str, str], workdir: Path) -> dict[str, str]:
    """Those of a job's environment that are not tare's own: without our folder on PYTHONPATH, which each trial has."""
    own = {name: value for name, value in env.items() if users_own(name)}
    folders = own.pop("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(each for each in folders if each and not each.startswith(f"{workdir}{os.sep}"))
    return {**own, **({"PYTHONPATH": kept} if kept else {})}


def environment_facts(malloc: Malloc, environ: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """For the record, by name: which variables a user's own command was not given, and which ones tare sets."""
    ours = os.environ if environ is None else environ
    fixed = {**{name: value for name, value in _STEADY.items() if not users_own(name) or name not in ours}}
    return {
        "left_out": sorted(name for name in ours if not users_own(name)),
        "fixed": sorted({*fixed, *_malloc(malloc), "PYTHONPATH", "TARE_MARKS"}),
    }


def _malloc(malloc: Malloc) -> dict[str, str]:
    return FIXED_MALLOC if malloc == "fixed" else {}


class Phases(dict[str, float]):
    """Seconds by name, like `open.boot` or `close.stop`; the same name twice adds up."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin_ns = self._clock.now_ns()
        try:
            yield
        finally:
            self[name] = self.get(name, 0.0) + (self._clock.now_ns() - begin_ns) / 1e9


def comes_true(clock: Clock, test: Callable[[], bool], within_s: float, every_s: float = 0.01) -> bool:
    """Look again and again until it is so; False where the time is up before."""
    deadline_ns = clock.now_ns() + round(within_s * 1e9)
    while not test():
        if clock.now_ns() >= deadline_ns:
            return False
        clock.sleep_until(clock.now_ns() + round(every_s * 1e9))
    return True
