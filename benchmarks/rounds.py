"""What each round of a benchmark gave and when, kept as JSON with the machine's facts, for `tare compare` and pyperf.

`tare compare out/bench/sampler.json --against tare` compares the sides of one part, which ran interleaved, and
`tare compare BEFORE/sampler.json out/bench/sampler.json` two runs of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = "TARE_BENCH_OUT"  # where to; nothing is kept without it


class Rounds(dict[str, list[float]]):
    """Name of a side -> a figure of each round, in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__({name: [] for name in names})
        self._taken: dict[str, list[str]] = {name: [] for name in names}

    def add(self, name: str, value: float) -> None:
        self.setdefault(name, []).append(value)
        self._taken.setdefault(name, []).append(datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"))

    def keep(self, part: str, scale: float = 1.0) -> None:
        """In pyperf's format, a run for each round; `scale` makes seconds of the figures."""
        if FOLDER not in os.environ:
            return
        benchmarks = [
            {"metadata": {"name": name}, "runs": [
                {"values": [value * scale], "metadata": {"date": date}}
                for value, date in zip(values, self._taken[name], strict=True)
            ]}
            for name, values in self.items() if values
        ]  # fmt: skip
        kept = {"version": "1.0", "metadata": {"unit": "second", **_machine()}, "benchmarks": benchmarks}
        folder = Path(os.environ[FOLDER])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}.json").write_text(json.dumps(kept, indent=1) + "\n")


def read(path: Path) -> dict[str, list[float]]:
    """The figures of a kept part, by the names of its sides."""
    held: Any = json.loads(path.read_text())["benchmarks"]
    return {each["metadata"]["name"]: [run["values"][0] for run in each["runs"]] for each in held}


def _machine() -> dict[str, Any]:
    from tare.analysis.parity import flat
    from tare.base.host import LocalHost
    from tare.trial.facts import device_facts

    facts = {name: value if isinstance(value, int | float | str) else str(value)
             for name, value in flat(device_facts(LocalHost())).items()}  # fmt: skip
    return {**facts, "load_average": os.getloadavg()[0]}
