"""How the costs of a store grow: CPU seconds and peak memory of each verb, and the power of the size that they follow.

    python -m benchmarks.growth [few | trials | cells | readings | devices | sealing [MOST]]

Stores are made of one recorded trial (3,731 readings, 7,205 marks, 36 figures) with ids, settings and figures of their
own; their series are hard links, so that a thousand million readings need no disk. `cells` has 6 blocks of each cell,
`devices` 6 blocks of two cells on each, `readings` trials of a million each; `sealing` is one trial with so many, from
its spool to its report. `few` is the smallest two sizes of all. What a run over devices costs the controller:
`python -m benchmarks.fleet`.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.answers import PACK, ROOT
from benchmarks.rounds import Rounds
from tare.base import strict_json
from tare.base.units import Channel
from tare.records.creation import Catalogue
from tare.records.model import Record
from tare.records.schema import CHANNELS_FILE, MANIFEST_FILE, READINGS_FILE, RECORD_FILE, TRIALS_FOLDER
from tare.records.sealed import Entry, Manifest, entry_of, files_in, folder_name
from tare.records.spool import _INSERT, SpoolWriter
from tare.records.store import Store

STUDY = {"study": "growth", "compare": {"by": "platform", "against": {"platform": "bare"}, "margin": 0.05}}
MILLION, TICK = 1_000_000, 100  # readings of a trial, and of a tick
SIZES: Mapping[str, Sequence[int]] = {
    "trials": (10, 100, 1_000, 10_000), "cells": (2, 20, 200, 2_000), "devices": (10, 100, 1_000, 10_000),
    "readings": (2 * MILLION, 10 * MILLION, 100 * MILLION, 1_000 * MILLION),
    "sealing": (MILLION, 10 * MILLION, 100 * MILLION),
}  # fmt: skip
OPEN = """
import sys
from pathlib import Path
from tare.records.store import Store
Store.open(Path(sys.argv[1])).close()
"""
Spent = tuple[float, float]  # CPU seconds, peak MB


def measure(kind: str, most: float = math.inf, sizes: int = 4) -> dict[int, dict[str, Spent]]:
    """Size -> what each verb takes."""
    found: dict[int, dict[str, Spent]] = {}
    kept = Rounds()
    with tempfile.TemporaryDirectory(prefix="tare-growth-") as name:
        folder = Path(name)
        maker = Maker(folder, MILLION if kind == "readings" else 0)
        for size in [size for size in SIZES[kind] if size <= most][:sizes]:
            root = folder / "store"
            found[size] = {}
            if kind == "sealing":
                found[size]["seal a trial"] = spent(["-m", "benchmarks.growth", "--seal", str(size), str(root)])
            else:
                maker.store(root, **_shape(kind, size))
            found[size] |= {name: spent(words) for name, words in _verbs(kind, root).items()}
            shutil.rmtree(root)
            for name, (cpu_s, _) in found[size].items():
                kept.add(f"{size:,} {kind}, {name}", cpu_s)
    kept.keep(f"growth-{kind}")
    return found


def _shape(kind: str, size: int) -> dict[str, int]:
    if kind == "cells":
        return {"trials": 6 * size, "cells": size}
    if kind == "devices":
        return {"trials": 12 * size, "devices": size}
    return {"trials": size if kind == "trials" else size // MILLION}


def _verbs(kind: str, root: Path) -> dict[str, list[str]]:
    verbs = {
        "open": ["-c", OPEN, str(root)],
        "show": ["-m", "tare", "show", str(root)],
        "compare": ["-m", "tare", "compare", str(root)],
        "report": ["-m", "tare", "report", str(root), "-o", str(root / "report.html")],
    }
    if kind in ("readings", "sealing"):
        first = min(each.name for each in (root / TRIALS_FOLDER).iterdir())
        verbs |= {"show a trial": [*verbs["show"], first], "verify": ["-m", "tare", "store", "verify", str(root)]}
    return verbs


def spent(words: list[str], source: Path = ROOT / "src") -> Spent:
    """Of one `tare` in a process of its own, with what it started and waited for."""
    with tempfile.TemporaryFile() as said:
        env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}
        child = subprocess.Popen([sys.executable, *words], stdout=said, stderr=said, env=env)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
        assert child.returncode in (0, 1), text[-2000:]
    cpu_s = float(text) if "--seal" in words else used.ru_utime + used.ru_stime
    return cpu_s, used.ru_maxrss / 1024


def recorded() -> Record:
    with Store.open(PACK) as store:
        return next(record for record in store.records() if record.state == "ok")


def seal(readings: int, root: Path) -> float:
    """CPU seconds to seal a trial that has so many readings, a hundred at a time: gauges, and counters."""
    record, draw = recorded(), np.random.default_rng(1)
    kinds = [("W", "gauge"), ("s", "counter")]
    with Store.create(root, STUDY, "") as store:
        writer = store.begin(record)
        with SpoolWriter(writer.spool) as spool:
            spool.channels([Channel(f"bench.{place}", *kinds[place % 2]) for place in range(TICK)])
            ticks, ids = readings // TICK, np.arange(TICK, dtype="<u4").tobytes()
            for number in range(ticks):
                at = record.start_ns + (record.end_ns - record.start_ns) * number // ticks
                values = np.round(draw.normal(100, 3, TICK), 2)
                values[1::2] = number * 0.01 + values[1::2] * 1e-6
                if number % 10_000 == 0:  # as one transaction: what is measured is the sealing
                    spool._db.execute("COMMIT" if number else "SELECT 1")
                    spool._db.execute("BEGIN")
                blob = np.full(TICK, at, "<i8").tobytes() + values.astype("<f8").tobytes() + ids
                spool._db.execute(_INSERT, (at, blob))
            spool._db.execute("COMMIT")
        begin_s = time.process_time()
        writer.seal(record, [], "", "")
        return time.process_time() - begin_s


class Maker:
    """Makes stores of any size of one recorded trial."""

    def __init__(self, folder: Path, readings: int = 0) -> None:
        self.record, self.template = recorded(), folder / "template"
        with Store.open(PACK) as store:
            sealed = store.root / TRIALS_FOLDER / folder_name(self.record.trial, self.record.attempt)
            shutil.copytree(sealed, self.template)
        if readings:
            seal(readings, folder / "one")
            (made,) = (folder / "one" / TRIALS_FOLDER).iterdir()
            for name in (READINGS_FILE, CHANNELS_FILE):
                shutil.copy(made / name, self.template / name)
        self.files = {name: entry for name, entry in files_in(self.template).items() if name != MANIFEST_FILE}

    def store(self, root: Path, trials: int, cells: int = 2, devices: int = 1) -> None:
        """Trials in blocks of so many cells (two platforms, and batches for the rest), the same on each device."""
        Store.create(root, STUDY, json.dumps(STUDY)).close()
        draw, made = random.Random(1), []
        for number in range(trials):
            cell, rest = number % cells, number // cells
            settings = {
                **self.record.settings,
                "platform": ("bare", "docker")[cell % 2],
                "workload.batch": 1 + cell // 2,
            }
            if devices > 1:
                settings |= {"device": f"dev-{rest % devices:05}", "device.type": "board"}
            made.append(self._trial(root, number, rest // devices, cell, settings, draw.random()))
        catalogue = Catalogue.to_write(root)
        catalogue.plan(record.as_json() for record in made)
        catalogue.note(made, sealed=True)
        catalogue.close()

    def _trial(
        self, root: Path, number: int, block: int, position: int, settings: Mapping[str, object], noise: float
    ) -> Record:
        start_ns = self.record.start_ns + number * 30_000_000_000
        shifted = {name: value * (1 + 0.02 * noise) for name, value in self.record.metrics.items()}
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1.79e9 + number * 30))
        record = replace(
            self.record, trial=f"{number * 2654435761 % 2**32:08x}{number:08x}", attempt=1, study="growth", block=block,
            position=position, settings=settings, metrics=shifted, started_utc=begun, start_ns=start_ns,
            end_ns=start_ns + self.record.end_ns - self.record.start_ns,
        )  # fmt: skip
        folder = root / TRIALS_FOLDER / folder_name(record.trial, 1)
        folder.mkdir()
        text = strict_json.dump(record.as_json())
        files: dict[str, Entry] = {**self.files, RECORD_FILE: entry_of(text)}
        for name in files:
            if name != RECORD_FILE:
                os.link(self.template / name, folder / name)
        (folder / RECORD_FILE).write_bytes(text)
        (folder / MANIFEST_FILE).write_bytes(Manifest(files, 0).as_json())
        return record


def text(kind: str, found: Mapping[int, Mapping[str, Spent]]) -> str:
    lines = []
    for size, each in found.items():
        told = "  ".join(f"{name} {cpu_s:.3g} s {mb:.0f} MB" for name, (cpu_s, mb) in each.items())
        lines.append(f"{size:>13,} {kind}  {told}")
    if len(found) > 1:
        (before, few), (most, many) = list(found.items())[-2:]
        for name in few:
            power = math.log(many[name][0] / few[name][0]) / math.log(most / before)
            lines.append(f"{name}: from {before:,} to {most:,} {kind} as their number to the power of {power:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seal"]:
        print(seal(int(sys.argv[2]), Path(sys.argv[3])))
    else:
        which, *most = sys.argv[1:] or ["all"]
        for kind in SIZES if which in ("few", "all") else [which]:
            print(text(kind, measure(kind, *map(float, most), sizes=2 if which == "few" else 4)), flush=True)
