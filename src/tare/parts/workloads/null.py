"""Nothing at all: what is left to weigh is the platform itself, its tare."""

from __future__ import annotations

from pathlib import Path

from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.drivers.places import built_in_env, launched
from tare.parts.protocols import Workload


class Null(Workload):
    """Start a program that does nothing, and end: the cost of the platform alone."""

    def obstacles(self, host: Host) -> list[Ruling]:
        return []

    def title(self) -> str:
        return "nothing (the null workload)"

    def guessed_s(self, cores: int) -> float | None:
        return 0.2

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        return Job(launched(place.python, workdir, ["true"]), built_in_env(workdir, "default"), str(workdir))
