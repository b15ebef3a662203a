"""How a job reaches the inside of a platform: the command line that starts it, and its environment.

A job never inherits our environment. It gets an allowlist, the same on every platform: a variable more or less moves
the stack, and a thread count left over in someone's shell changes the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import tare_inside
from tare.base.host import Clock
from tare_inside.variables import BUILT_IN, SECRETS, USERS_OWN

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

_STEADY = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
_DEFAULTS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C.UTF-8"}


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
    return {**_DEFAULTS, **kept, **_STEADY, **_malloc(malloc), **inside}


def users_env(
    workdir: Path, malloc: Malloc, *, attach: bool, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a user's own command: what it may depend on of theirs, and our marks first on PYTHONPATH.

    A variable whose name speaks of a secret is not passed on, since jobs are recorded; `env` in the study can say it.
    """
    ours = os.environ if environ is None else environ
    kept = {name: value for name, value in ours.items() if USERS_OWN.fullmatch(name) and not SECRETS.search(name)}
    env = {**_DEFAULTS, **_STEADY, **kept, **_malloc(malloc)}
    inside = workdir / "inside"
    hooks = str(inside / "tare_inside" / "inside_site") if attach else ""
    folders = [hooks, str(inside), kept.get("PYTHONPATH", "")]  # `from tare_inside import marks` works either way
    env["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    env["TARE_MARKS"] = str(workdir / "marks.bin")
    return env


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
