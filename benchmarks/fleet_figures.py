"""What a run over pretended devices took, and whether every trial is accounted for: for `benchmarks.fleet`."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.pretended_devices import CLAIMS
from tare.records.store import Store

TICKS = os.sysconf("SC_CLK_TCK")


class MergeClock:
    """How long the records of the devices took to be taken in."""

    def __init__(self, fleet: Any) -> None:
        self._s, self._times, self._keep = 0.0, 0, fleet._incoming.keep
        fleet._incoming.keep = self

    def __call__(self, sent: Sequence[tuple[str, bytes]]) -> Any:
        start_s = time.perf_counter()
        taken = self._keep(sent)
        self._s += time.perf_counter() - start_s
        self._times += sum(len(each.copied) for each in taken)
        return taken

    @property
    def per_1000_s(self) -> float:
        return self._s / max(1, self._times) * 1000


@contextmanager
def timed(into: dict[str, float], name: str) -> Iterator[None]:
    start_s = time.perf_counter()
    yield
    into[name] = time.perf_counter() - start_s


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    import cProfile

    with cProfile.Profile() as seen:
        yield
    seen.dump_stats(path)


def processes(pids: dict[str, list[int]], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Memory at its peak, and CPU time since `before`, of each kind of process; those that are new count from 0."""
    found = {}
    for kind, of in pids.items():
        spent = {pid: cpu_s(pid) for pid in of}
        old = before[kind]["each_s"] if before else {}
        cpu = sum(seconds - old.get(pid, 0.0) for pid, seconds in spent.items())
        found[kind] = {"count": len(of), "peak_mb": sum(map(peak_mb, of)), "cpu_s": cpu, "each_s": spent}
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def pss_mb(pid: int) -> float:
    found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def accounted(folder: Path, root: Path, devices: int, trials: int) -> dict[str, Any]:
    """Every trial, on both sides; raises where one is lost, or was run twice unseen."""
    claims = [json.loads(path.read_text()) for path in (root / CLAIMS).glob("*/[!.]*")]
    begun = Counter(claim["trial"] for claim in claims)
    died = Counter(claim["trial"] for claim in claims if claim["died"])
    with Store.open(folder / "store") as store:
        assert store.verify() == []
        kept = Counter(record.trial for record in store.records() if record.state == "ok")
        left = [row for row in store.planned() if row["trial"] not in kept]
    assert all(begun[trial] == died[trial] + 1 for trial in kept), "a trial was begun again that had not died"
    assert max(kept.values(), default=0) <= 1, "a trial is there twice"
    assert len(kept) + len(left) == devices * trials, "trials are lost"
    return {"kept": len(kept), "left_on": sorted({row["settings"]["device"] for row in left}), "claims": len(claims)}


def delays(root: Path) -> dict[str, float]:
    """From the end of a trial to the beginning of the next on the same device, where nothing had gone wrong."""
    found, ideal_s = [], 0.0
    for folder in (root / CLAIMS).iterdir():
        hit = {path.name.removeprefix(".cut-") for path in folder.glob(".cut-*")}
        claims = sorted((json.loads(path.read_text()) for path in folder.glob("[!.]*")), key=lambda one: one["began_s"])
        ideal_s = max(ideal_s, sum(one["ends_s"] - one["began_s"] for one in claims))
        found += [
            after["began_s"] - before["ends_s"]
            for before, after in itertools.pairwise(claims)
            if not before["died"] and before["claim"] not in hit
        ]
    found.sort()
    at = {f"p{share}_s": found[min(len(found) - 1, len(found) * share // 100)] for share in (50, 99)} if found else {}
    return {**at, "ideal_s": ideal_s}


def told(found: dict[str, Any]) -> str:
    """One size, in lines for people."""
    if "workers_pss_mb" in found:
        each = found["workers_pss_mb"] / found["devices"], found["workers_cpu_share"] / found["devices"]
        return (
            f"{found['devices']} idle workers in {found['processes']} processes: {found['workers_pss_mb']:.0f} MB "
            f"({each[0]:.2f} each), {found['workers_cpu_share']:.1%} of a core ({each[1]:.3%} each); scheduler "
            f"{found['scheduler_pss_mb']:.0f} MB, {found['scheduler_cpu_share']:.1%}"
        )
    delay, took = found["delay"], found["took_s"]
    kinds = "; ".join(
        f"{kind} {of['peak_mb']:.0f} MB, {of['cpu_s']:.1f} s CPU" + (f" ({of['count']})" if of["count"] > 1 else "")
        for kind, of in found["processes"].items()
    )
    return (
        f"{found['devices']} devices, {found['accounted']['kept']} trials kept, of {found['record_kb']:.0f} kB each:\n"
        f"  {took['run']:.1f} s, ideal {delay['ideal_s']:.1f} s; up in {took['start']:.1f} s, "
        f"asked in {took['ready']:.1f} s\n"
        f"  next trial asked after {delay.get('p50_s', 0):.3f} s (median), {delay.get('p99_s', 0):.3f} s (99 %)\n"
        f"  merging {found['merge_s_per_1000']:.1f} s per 1,000 trials\n  {kinds}\n"
        f"  {found['outcome']['why']}"
    )
