"""Nothing, for a while: the device's idle power on a platform, its baseload."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.base.units import PositiveSeconds, Seconds
from tare.drivers.places import built_in_env, launched
from tare.parts.protocols import Workload

LOG_PERIOD_S = 0.1


class Idle(Workload):
    """Sleep while the probes log: what the device draws on a platform and in a mode with no work to do."""

    short: ClassVar[str | None] = "duration"

    duration: PositiveSeconds = 60.0
    """How long to watch; a power sensor that is read each second needs a minute for 60 samples."""
    settle: Seconds = 5.0
    """How long to wait before that, for what ran earlier to die away."""

    logging: bool = False
    """Run a logging script on the platform meanwhile, ten times per second: how much power does logging itself take?"""

    def obstacles(self, host: Host) -> list[Ruling]:
        return []

    def title(self) -> str:
        return f"an idle device{' that logs' if self.logging else ''}, {self.duration:g} s"

    def shortened(self) -> Self:
        return self.model_copy(update={"duration": min(self.duration, 1.0), "settle": 0.0})

    def units(self) -> int | None:
        return 1

    def guessed_s(self, cores: int) -> float | None:
        return self.settle + self.duration

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        program = workdir / "inside" / "tare_inside" / "programs" / "idle.py"
        period_s = LOG_PERIOD_S if self.logging else 0
        argv = [place.python, str(program), str(self.settle), str(self.duration), str(period_s)]
        return Job(launched(place.python, workdir, argv), built_in_env(workdir, "default"), str(workdir))
