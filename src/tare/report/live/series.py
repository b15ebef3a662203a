"""The series of a running trial, as few points as a small chart can show; extremes are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.report.thinning import thinned
from tare_inside.marks import HEADER_BYTES, MAGIC, names_in

if TYPE_CHECKING:
    import numpy.typing as npt

    Series = Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]

POINTS = 240
WINDOW_S = 120.0
# What people look at first: title, unit, and the channels that may carry it, the best first.
PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("CPU of the workload", "cores", ("cgroup.cpu_s",)),
    ("CPU of the device", "cores", ("cpu.busy_s",)),
    ("GPU", "share", ("gpu.util",)),
    ("Power", "W", ("external.power_w", "power_rails.total_w", "gpu.power_w")),
    ("Memory of the workload", "MiB", ("cgroup.memory_bytes",)),
    ("Read from disk", "MB/s", ("cgroup.read_bytes",)),
)
_RATES = frozenset({"cores", "MB/s"})  # of channels that only count up
_FACTORS = {"MiB": 2.0**-20, "MB/s": 1e-6}


def live_series(readings: Series) -> list[dict[str, Any]]:
    """One entry for each panel that has data: title, unit, and points (seconds ago, value)."""
    newest_ns = max((int(times[-1]) for times, _ in readings.values() if len(times)), default=0)
    found = []
    for title, unit, channels in PANELS:
        name = next((channel for channel in channels if channel in readings), None)
        if name is not None and (points := _points(*readings[name], unit, newest_ns)):
            found.append({"title": title, "unit": unit, "points": points})
    return found


def _points(times: npt.NDArray[Any], values: npt.NDArray[Any], unit: str, newest_ns: int) -> list[list[float]]:
    import numpy as np

    if unit in _RATES:
        spans = np.diff(times) / 1e9
        ok = spans > 0
        values = np.diff(values)[ok] / spans[ok]
        times = times[1:][ok]
    ago = (times - newest_ns) / 1e9
    recent = ago >= -WINDOW_S
    ago, values = thinned(ago[recent], values[recent] * _FACTORS.get(unit, 1.0), POINTS)
    return [[round(float(t), 2), float(f"{v:.4g}")] for t, v in zip(ago, values, strict=True) if np.isfinite(v)]


def step_series(marks_file: Path) -> list[dict[str, Any]]:
    """Step times of a workload that runs: its marks lie in a file that can be read beside it, at no cost to it."""
    import numpy as np

    record = np.dtype([("t_ns", "<i8"), ("step", "<i4"), ("name", "<u2"), ("edge", "u1"), ("pad", "u1")])
    try:
        data = marks_file.read_bytes()
    except OSError:
        return []  # not yet, or gone already
    names = {name: number for number, name in names_in(data).items()} if data.startswith(MAGIC) else {}
    if "step" not in names:
        return []
    whole = len(data) - (len(data) - HEADER_BYTES) % record.itemsize
    rows = np.frombuffer(data[HEADER_BYTES:whole], dtype=record)
    rows = rows[(rows["name"] == names["step"]) & (rows["t_ns"] > 0)]
    begins = {int(step): int(t) for step, t in rows[rows["edge"] == 0][["step", "t_ns"]].tolist()}
    ends = [
        (t, (t - begins[step]) / 1e6)
        for step, t in rows[rows["edge"] == 1][["step", "t_ns"]].tolist()
        if step in begins
    ]
    if len(ends) < 2:
        return []
    times, values = (np.array(column) for column in zip(*sorted(ends), strict=True))
    points = _points(times, values, "ms", int(times[-1]))
    return [{"title": "Step time", "unit": "ms", "points": points}]
