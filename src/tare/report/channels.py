"""Which channels tell a device's power and its clock, the best first: one list for all figures."""

from __future__ import annotations

POWER = ("external.power_w", "power_rails.total_w", "gpu.power_w")  # read in watts
# With the counters whose growth is power: for figures that take rates.
POWER_OR_ENERGY = ("external.power_w", "power_rails.total_w", "power_rapl.total_j", "gpu.power_w")
CLOCK = ("gpu.clock_hz", "frequency.gpu_hz", "frequency.cpu0_hz")
