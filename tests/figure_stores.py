"""Stores that have what the figures of a report need: phases of compute, power modes with energy, traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import some_weighings as some
from made_up_modes import pipeline
from metered import DOCKER, Place, idle_trials, kept, worked
from some_fleets import Board, boards, fleet_store
from tare.analysis.model import Weighing
from tare.analysis.resources.parts import parts_sections
from tare.analysis.sections import Chart, Section
from tare.analysis.weighing import weigh
from tare.records.model import Record
from tare.records.parquet import TableFiles, TableName
from tare.records.spool import SpoolWriter
from tare.records.store import Store
from tare.report.charts.every import figures
from tare.report.charts.forms import chart_figure
from tare.report.evidence import ReportData, level_order, shown_trials
from tare.report.figure import Figure
from tare.report.html import render

CLOCKS, CORES = (345, 705, 1065, 1425, 1785), (1, 2, 4)
REASONS = ("background", "periodic", "sync")


def report(root: Path) -> str:
    """As `tare report` makes it."""
    with Store.open(root) as store:
        return render(weigh(store), store.records(), some.GENERATED, study_text=store.text(), store=store)


def evidence_of(store: Store, **asked: Any) -> ReportData:
    """What a report has of a store."""
    weighing, records = weigh(store, **asked), store.records()
    shown = shown_trials(weighing, records)
    hrefs = {level: f"#level-{place}" for place, level in enumerate(level_order(weighing, shown))}
    return ReportData(weighing, shown, hrefs, records, store)


def figures_of(root: Path, **asked: Any) -> dict[str, Figure]:
    with Store.open(root) as store:
        return {figure.name: figure for figure in figures(evidence_of(store, **asked))}


def drawn(sections: Iterable[Section], hrefs: Mapping[str, str] | None = None) -> dict[str, Figure]:
    """The charts of sections, by name."""
    made = ((section, section.make()) for section in sections)
    return {
        section.name: chart_figure(section.name, section.title, body, hrefs or {})
        for section, body in made
        if isinstance(body, Chart)
    }


def parts_figures(
    weighing: Weighing, usable: Mapping[str, Sequence[Record]] | None = None, hrefs: Mapping[str, str] | None = None
) -> dict[str, Figure]:
    """What a step and a trial are made of, by name."""
    return drawn(parts_sections(weighing, usable or {}), hrefs)


def phased_store(root: Path, levels: Sequence[str] = ("bare", "docker")) -> Path:
    """Training whose forward, backward and optimiser step were marked, and requests with their three parts."""
    trials = [
        replace(record, metrics={**record.metrics, **_phases(record)}, twin=0)
        for record in some.records(levels, 6, effects=[0.016 * place for place in range(len(levels))])
        if not record.twin
    ]
    return kept(root, trials, {"study": "phases", "compare": {"against": {"platform": levels[0]}}})


def _phases(record: Record) -> dict[str, float]:
    slow = 1.0 if record.settings["platform"] == "bare" else 1.3
    return {
        "forward_s": 0.0004, "backward_s": 0.0008, "optimiser_s": 0.0003 * slow,
        "pre_process_s": 0.002, "inference_s": 0.008, "post_process_s": 0.0005 * slow,
    }  # fmt: skip


def mode_store(root: Path, name: str = "resnet18") -> Path:
    """Two workloads in fifteen modes, with time and energy, and beside them what the idle device draws in each."""
    trials: list[Record] = []
    places: list[Place] = []
    for model, kind in (("lenet5", "launch"), (name, "compute")):
        for _, mhz, cores, ms, joules in pipeline(kind, 0.02, 3):
            if mhz not in CLOCKS or cores not in CORES:
                continue
            settings = {"platform": "bare", "platform.cores": cores, "control.power_mode.gpu_mhz": float(mhz)}
            place = Place(settings, idle_w=20.0, step_s=ms / 1000, work_j=joules / 1000 - 0.02 * ms)
            places.append(place)
            done = worked(place, len(trials))
            settings = {**done.settings, "workload.model": model}
            trials.append(replace(done, trial=f"{done.trial}-{kind}", settings=settings))
    kept(root.with_name(f"{root.name}-baseload"), idle_trials(*places[: len(places) // 2], n=2))
    compare = {"against": {"control.power_mode.gpu_mhz": 345.0}, "by": "control.power_mode.gpu_mhz"}
    return kept(root, trials, {"study": "modes", "compare": compare})


def traced_store(root: Path, label: str = "docker", blocks: int = 2, pages: int = 400) -> Path:
    """Bare metal and one other platform, as perf and ftrace would have seen them."""
    rng = np.random.default_rng(5)
    with Store.create(root, {"study": "traced"}, "study: traced\n") as store:
        for block in range(blocks):
            for position, (platform, more) in enumerate((("bare", 1.0), (label, 2.0))):
                place = replace(DOCKER, settings={"platform": platform})
                done = replace(worked(place, block), trial=f"t{block}{position}", position=position)
                done = replace(done, facts={**done.facts, "traced": ["perf", "ftrace"]})
                writer = store.begin(replace(done, state="running"))
                with SpoolWriter(writer.spool):
                    pass
                with TableFiles(writer.tables) as files:
                    for (probe, table), columns in _tables(rng, more, pages).items():
                        files.add(TableName(probe, table), columns)
                    files.write()
                writer.seal(replace(done, metrics={**done.metrics, "steps": 100.0}), [], "", "")
    return root


def _tables(rng: Any, more: float, pages: int) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    starts = round(40 * more)
    events, roles = ("page-faults", "context-switches"), ("workload", "daemon")
    counts = {
        "t_ns": np.zeros(4, np.int64), "role": [role for role in roles for _ in events],
        "event": [*events, *events], "count": np.array([1000 * more, 50, 20, 5]).astype(np.int64),
        "time_enabled": np.ones(4), "time_running": np.ones(4),
    }  # fmt: skip
    causes = ["allocator", "copy", "heap", "other"]
    faults = {
        "t_ns": np.arange(40, dtype=np.int64), "role": ["workload"] * 40, "comm": ["python"] * 40,
        "file": ["libc"] * 40, "function": ["malloc"] * 40, "cause": [causes[n % 4] for n in range(40)],
    }  # fmt: skip
    begun = {
        "t_ns": np.cumsum(rng.exponential(5e9 / more, starts)).astype(np.int64), "bdi": ["8:0"] * starts,
        "reason": [REASONS[n % 3] for n in range(starts)],
    }  # fmt: skip
    written = {
        "t_ns": np.arange(pages, dtype=np.int64) * 10_000_000, "cpu": np.zeros(pages, np.int32),
        "pid": np.full(pages, 7, np.int32), "dev": np.full(pages, 8 << 20, np.int64),
        "inode": np.zeros(pages, np.int64), "page": rng.zipf(1.5, pages).clip(0, 5000).astype(np.int64),
        "reason": ["periodic"] * pages, "role": ["workload"] * pages, "comm": ["kworker"] * pages,
    }  # fmt: skip
    return {
        ("perf", "counters"): counts, ("perf", "faults"): faults, ("ftrace", "writeback_start"): begun,
        ("ftrace", "page_writes"): written,
    }  # fmt: skip


STORES: dict[str, Callable[..., Path]] = {  # by what they have
    "phased": phased_store,
    "modes": mode_store,
    "traced": traced_store,
    "fleet": lambda root: fleet_store(root, [*boards(4), Board("odd", slower=0.2)], blocks=2),
}
