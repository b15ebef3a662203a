"""Types of devices compared: each device is one of the sample, however many trials it ran."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tare.analysis.cells import Cells
from tare.analysis.devices import device_of
from tare.analysis.model import Measurement
from tare.records.model import Record

EACH_DEVICE_ONCE = "Each device counts once, by the median of its trials: n is the number of devices, not of trials."


def one_a_device(records: Sequence[Record], label: Cells, metric: str) -> list[Measurement]:
    """The median of each device, without blocks: two devices have none in common. A/A twins are left out."""
    values: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if not record.twin:
            key = label.label(record), str(device_of(record))
            values.setdefault(key, []).append(record.metrics[metric])
    return [Measurement(level, median(found), trial=device) for (level, device), found in values.items()]
