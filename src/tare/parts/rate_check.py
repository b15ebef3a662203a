"""Whether a control group really reads a device at its limit: measured in the group before the workload runs there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tare.errors import ControlNotHeld, TrialError
from tare.host import Host
from tare.parts import read_rate
from tare.parts.cgroups import Located
from tare.parts.media import Rates

WITHIN = 0.10  # of the limit, either way
_TRIES = 3  # a neighbour may have been at the disk; only a throttle that does not work, or a slow disk, fails each time
_SMALL, _LARGE = 4096, 1 << 19
_PROGRAM = Path(read_rate.__file__)
_LONGEST_S = 60.0


class Wanted(NamedTuple):
    """One measurement, and what it should give."""

    name: str  # read_bps, read_iops, write_bps, write_iops
    path: str
    block: int
    order: str
    figure: str  # of the program's answer: bps, iops
    value: float


def wanted(name: str, rates: Rates, path: str) -> Wanted:
    """How to measure one limit: large requests one after the other for bytes, small ones here and there for requests.

    The limit on bytes is measured before there is one on requests, which large requests may meet first.
    """
    value = rates.given()[name]
    if name.endswith("_bps"):
        block = min(_LARGE, max(_SMALL, -(-(value // 200) // _SMALL) * _SMALL))
        return Wanted(name, path, block, "sequential", "bps", value)
    bytes_too = rates.given().get(name.replace("_iops", "_bps"))
    reached = value if bytes_too is None else min(value, bytes_too / _SMALL)
    return Wanted(name, path, _SMALL, "random", "iops", reached)


def check(host: Host, group: Located, each: Wanted) -> dict[str, float]:
    """What was measured, within a tenth of what it should be; otherwise the trial is not what the study says."""
    seen: list[float] = []
    for _ in range(_TRIES):
        answer = _measured(host, group, each)
        seen.append(answer[each.figure])
        if abs(seen[-1] / each.value - 1) <= WITHIN:
            return {each.name: seen[-1], f"{each.name}_expected": each.value}
    nearest = min(seen, key=lambda value: abs(value / each.value - 1))
    why = (
        "the limit does not hold"
        if nearest > each.value
        else "the disk below is slower than the medium that is to be emulated, or others are using this machine"
    )
    raise ControlNotHeld(f"storage: {each.name}", asked=f"{each.value:.0f}", found=f"{nearest:.0f}; {why}")


def _measured(host: Host, group: Located, each: Wanted) -> Mapping[str, float]:
    order = {
        "path": each.path,
        "block": each.block,
        "order": each.order,
        "write": each.name.startswith("write"),
        "groups": [f"{group.folder}/cgroup.procs"],
    }
    done = host.run([host.python, "-I", "-S", str(_PROGRAM), json.dumps(order)], limit_s=_LONGEST_S)
    try:
        found: Mapping[str, float] = json.loads(done.out)
    except ValueError:
        said = (done.err or done.out).strip()[-500:]
        raise TrialError(f"storage: how fast {each.path} is could not be measured: {said}") from None
    return found
