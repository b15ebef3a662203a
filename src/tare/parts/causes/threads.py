"""Thread pools that are sized by the host's cores, under a quota or a cpuset."""

from __future__ import annotations

import math
from typing import ClassVar

from tare.parts.causes.variables import POOLS, suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class Threads(Cause):
    """More threads than cores: pools are sized by the host's cores, and a quota then stops them all at once."""

    title: ClassVar[str] = "the number of threads"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        cores = slow.cores
        if (found := suspected_variables(slow, quick, _table(slow, cores))) is not None:
            return found
        if cores is None:
            return RuledOut("how many cores it may use is not known.")
        counted = threads = slow.number("torch.threads")
        if threads is None:
            named = [float(value) for name in POOLS if (value := slow.env(name)) and value.isdigit()]
            # What a library takes that asks for the host's cores.
            threads = max(named) if named else slow.number("place.host_cores")
        enough = max(1, math.ceil(cores))
        if threads is None or threads <= enough:
            count = "not more" if threads is None else f"{threads:.0f}"
            return RuledOut(f"{count} threads on {cores_text(cores)}.")
        fixed = {name: str(max(1, math.floor(cores))) for name in POOLS}
        share = throttled_share(slow)
        stopped = f", throttled for {share:.0%} of the run" if share else ""
        return Suspicion(
            weight=(0.9 if share else 0.6) if counted else 0.3,
            evidence=f"{threads:.0f} threads{'' if counted else ' (not counted)'} on {cores_text(cores)}{stopped}.",
            without={"env": fixed},
            cure=f"-e OMP_NUM_THREADS={fixed['OMP_NUM_THREADS']}",
        )


def _table(slow: Side, cores: float | None) -> dict[str, tuple[str, float]]:
    """Variables of pools with as many threads on one side only: too many for the cores, or fewer than there are."""
    found = {}
    for name in POOLS:
        value = slow.env(name) or ""
        if value.isdigit() and cores is not None:
            found[name] = (f"threads, on {cores_text(cores)}", 0.9 if int(value) > math.ceil(cores) else 0.6)
        else:
            found[name] = ("threads", 0.5)
    return found


def cores_text(cores: float) -> str:
    return f"{cores:g} core" if cores == 1 else f"{cores:g} cores"


def throttled_share(side: Side) -> float:
    """The share of the run that it was stopped by its quota."""
    stopped, wall = side.metrics.get("cgroup_throttled_s", 0.0), side.metrics.get("wall_s", 0.0)
    return min(1.0, stopped / wall) if wall > 0 else 0.0
