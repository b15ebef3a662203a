"""A tree of files that behaves as the kernel does where a control depends on it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePath

from tare.base.host import LocalHost
from tare.base.units import core_text, cores
from trees.files import CPUS

Board = Callable[..., "Kernel"]  # what the fixture of that name is

_CORE = re.compile(rf"{CPUS}/cpu(\d+)/(online|cpufreq/\w+)")
CPUSETS = "sys/fs/cgroup/cpuset"


class Kernel(LocalHost):
    """Offline cores have no clocks, limits cannot cross, cpusets of version 1 lose cores for good.

    `deaf`: files that take a write and ignore it; `refusing`: those that refuse it; `rounding`: value -> what it
    becomes; `governor_resets_turbo`: as intel_pstate does.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root=root)
        self.written: list[tuple[str, str]] = []
        self.deaf: set[str] = set()
        self.refusing: set[str] = set()
        self.rounding: dict[str, str] = {}
        self.governor_resets_turbo = False

    def read(self, path: PurePath | str) -> str:
        if (found := _CORE.fullmatch(str(path))) and found[2] != "online" and not self._is_on(int(found[1])):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return super().read(path)

    def write(self, path: PurePath | str, text: str) -> None:
        name, value = str(path), text.strip()
        if name in self.refusing:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        self.read(path)
        self.written.append((name, value))
        if name in self.deaf:
            return
        self._refuse_crossing(name, value)
        super().write(path, f"{self.rounding.get(value, value)}\n")
        found = _CORE.fullmatch(name)
        if found and found[2] == "online":
            self._switched()
        if name.endswith("pwm-fan/temp_control") and value == "1":
            super().write(name.replace("temp_control", "target_pwm"), "0\n")  # it is cool, and the fan its own affair
        if name.endswith("scaling_governor") and self.governor_resets_turbo:
            super().write(f"{CPUS}/intel_pstate/no_turbo", "0\n")

    def _is_on(self, core: int) -> bool:
        switch = self.root / f"{CPUS}/cpu{core}/online".lstrip("/")
        return not switch.exists() or switch.read_text().strip() == "1"

    def _refuse_crossing(self, name: str, value: str) -> None:
        for low, high in (("scaling_min_freq", "scaling_max_freq"), ("/min_freq", "/max_freq")):
            if name.endswith(low) and int(value) > int(super().read(name.replace(low, high))):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
            if name.endswith(high) and int(value) < int(super().read(name.replace(high, low))):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)

    def _switched(self) -> None:
        present = cores(super().read(f"{CPUS}/present"))
        on = {core for core in present if self._is_on(core)}
        super().write(f"{CPUS}/online", core_text(on) + "\n")
        base = self.root / CPUSETS
        for file in base.glob("**/cpuset.cpus"):
            left = on if file.parent == base else set(cores(file.read_text())) & on
            file.write_text(core_text(left) + "\n")
        effective = self.root / "sys/fs/cgroup/cpuset.cpus.effective"
        if effective.exists():
            effective.write_text(core_text(on) + "\n")
