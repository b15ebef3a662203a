"""What a Jetson module draws in all, from its rails: by the names of the rails, for those are the board's own.

Not what the socket gives: the carrier board, its regulators, a disk and a fan are not behind these sensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_TOTALS = ("VDD_IN", "POM_5V_IN", "VIN")  # TX1, TX2, Xavier NX, Orin NX and Nano; Nano; Thor
_SUMS = (  # boards without such a rail: all of these, and nothing else
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),  # AGX Xavier
    # AGX Orin: VIN_SYS_5V0 feeds the I/O and the memory, not the cores. VDDQ_VDD2_1V8AO is already in it.
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
)


def module_rails(names: Mapping[str, object]) -> tuple[str, ...]:
    """The rails whose sum is the module's power; none where no known board has such rails."""
    known = {name.upper(): name for name in names}
    for total in _TOTALS:
        if total in known:
            return (known[total],)
    for parts in _SUMS:
        if known.keys() >= set(parts):
            return tuple(known[part] for part in parts)
    return ()


def module_total_w(rails_w: Mapping[str, float]) -> float | None:
    """The module's power; None where the board is not known."""
    parts = module_rails(rails_w)
    return math.fsum(rails_w[name] for name in parts) if parts else None


def rails_beside_total_w(rails_w: Mapping[str, float]) -> float | None:
    """The sum of the rails that a total rail feeds, to be shown beside it; None where there is no such rail."""
    parts = module_rails(rails_w)
    if len(parts) != 1 or len(rails_w) < 2:
        return None
    return math.fsum(watts for name, watts in rails_w.items() if name != parts[0])
