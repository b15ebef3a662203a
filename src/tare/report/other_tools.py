"""A store for other tools: OpenMetrics (Prometheus), Perfetto, and experiment trackers (MLflow, Weights & Biases)."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from tare.analysis.labels import text
from tare.analysis.model import Comparison, Weighing, Word
from tare.base.errors import ObstacleError, StoreError
from tare.base.installed import pip_install
from tare.base.text import safe_text
from tare.records.intervals import intervals
from tare.records.model import USABLE, Record
from tare.records.store import Store

# A store as OpenMetrics text: for Prometheus from `tare watch` (/metrics), for node_exporter as a file.
#
# Everything is a gauge, since a resumed or repaired study may count down. Labels are what people wrote: they are
# escaped as the format demands. An unknown value is absent, never 0.

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
WORDS: tuple[Word, ...] = ("slower", "faster", "equivalent", "cannot_tell")

_FAMILIES = {
    "tare_trials": "Trials by state.",
    "tare_trials_planned": "Trials that the study plans.",
    "tare_effect_ratio": "Effect on the metric, as a share of the level compared with.",
    "tare_effect_low_ratio": "Lower end of the effect's interval.",
    "tare_effect_high_ratio": "Upper end of the effect's interval.",
    "tare_margin_ratio": "Differences below this count as equivalent.",
    "tare_blocks": "Blocks that hold both sides.",
    "tare_verdict": "1 for the word of the verdict, 0 for the others.",
    "tare_median": "Median of the metric, in its own unit.",
}


@dataclass(frozen=True)
class Numbers:
    """What is exposed of one store."""

    study: str
    states: Mapping[str, int] = field(default_factory=dict)  # without "planned"
    planned: int = 0
    weighing: Weighing | None = None  # None before there is a verdict


def as_openmetrics(stores: Iterable[Numbers]) -> str:
    """The whole text; the samples of a family stand together, as the format demands."""
    samples: dict[str, list[str]] = {name: [] for name in _FAMILIES}
    for each in stores:
        for name, labels, value in _samples(each):
            told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            samples[name].append(f"{name}{{{told}}} {value!r}")
    lines = [
        line
        for name, held in samples.items()
        if held
        for line in (f"# TYPE {name} gauge", f"# HELP {name} {_FAMILIES[name]}", *dict.fromkeys(held))
    ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(store: Numbers) -> Iterator[tuple[str, dict[str, str], float]]:
    study = {"study": store.study}
    yield "tare_trials_planned", study, store.planned
    for state, count in store.states.items():
        yield "tare_trials", {**study, "state": state}, count
    if store.weighing is None:
        return
    for each in (*store.weighing.comparisons, *store.weighing.tested):
        labels = {**study, "metric": each.metric, "level": each.level, "against": each.against}
        yield from _judged(each, labels)
    for level, medians in store.weighing.medians.items():
        for metric, median in medians.items():
            yield "tare_median", {**study, "metric": metric, "level": level}, median.value


def _judged(each: Comparison, labels: dict[str, str]) -> Iterator[tuple[str, dict[str, str], float]]:
    found = {
        "tare_effect_ratio": each.effect, "tare_effect_low_ratio": each.low, "tare_effect_high_ratio": each.high,
        "tare_margin_ratio": each.margin, "tare_blocks": each.n,
    }  # fmt: skip
    for name, value in found.items():
        if value is not None:
            yield name, labels, value
    for word in WORDS:
        yield "tare_verdict", {**labels, "verdict": word}, int(word == each.verdict)


def _escaped(value: str) -> str:
    return safe_text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# A store as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: the JSON of Chrome's trace events.
#
# Each trial is a process: its marks are slices, one track a name; the series of its probes are counters; what recorders
# of the kernel kept are instants. Times are microseconds of the device's monotonic clock from the first trial on.

MOST_INSTANTS = 50_000  # of a table of kernel events in one trial; more is for `tare trace`
_NS_PER_US = 1e3


def as_perfetto(store: Store) -> str:
    """All trials of a store."""
    return json.dumps({"traceEvents": list(events(store)), "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"


def events(store: Store) -> Iterator[dict[str, Any]]:
    """Every event, trial by trial."""
    records = store.records()
    origin_ns = min((record.start_ns for record in records), default=0)
    for pid, record in enumerate(records, start=1):
        kinds = (text(value) for name, value in record.settings.items() if name in ("platform", "workload"))
        yield _metadata("process_name", pid, 0, f"{', '.join(kinds)}, block {record.block}, {record.state}")
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        yield from _slices(store, record, pid, origin_ns)
        yield from _counters(store, record, pid, origin_ns)
        yield from _instants(store, record, pid, origin_ns)


def _metadata(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slices(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    try:
        found = intervals(store.marks(record.trial, record.attempt))
    except StoreError:  # sealed without marks
        return
    tracks = {name: tid for tid, name in enumerate(found.names, start=1)}
    for name, tid in tracks.items():
        yield _metadata("thread_name", pid, tid, name)
    columns = (found.name.tolist(), found.step.tolist(), found.begin_ns.tolist(), found.end_ns.tolist())
    for name, step, begin, end in zip(*columns, strict=True):
        yield {
            "ph": "X", "name": name, "pid": pid, "tid": tracks[name], "ts": (begin - origin_ns) / _NS_PER_US,
            "dur": (end - begin) / _NS_PER_US, "args": {"step": step} if step >= 0 else {},
        }  # fmt: skip


def _counters(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    for name, (t_ns, values) in store.readings(record.trial, record.attempt).items():
        for at, value in zip(np.asarray(t_ns).tolist(), np.asarray(values, float).tolist(), strict=True):
            if value == value:  # a missing reading is no zero
                yield {"ph": "C", "name": name, "pid": pid, "ts": (at - origin_ns) / _NS_PER_US, "args": {"": value}}


def _instants(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    for table in store.traces(record.trial, record.attempt):
        columns = store.trace(record.trial, record.attempt, table.probe, table.table)
        for at in np.asarray(columns.get("t_ns", ()))[:MOST_INSTANTS].tolist():
            yield {
                "ph": "i", "s": "p", "name": table.table, "pid": pid, "tid": 0, "ts": (at - origin_ns) / _NS_PER_US,
                "cat": table.probe,
            }  # fmt: skip


# A store for experiment trackers, through their own libraries: MLflow (its tracking folder) and Weights & Biases
# (offline runs, which `wandb sync` uploads). Nothing is sent anywhere.
#
# Each trial is a run: its settings are parameters, its figures metrics, its state a tag. One more run, `verdicts`, has
# the effects with their intervals and the report as an artifact.

_NAME = re.compile(r"[^\w\-. /]")  # what neither tracker takes in a name
_MOST_VALUE = 500  # letters of a parameter: what the oldest servers take
_MOST_PARAMS = 100  # in one call


@dataclass(frozen=True)
class Run:
    """One run of a tracker."""

    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    start_ms: int
    end_ms: int
    ok: bool = True


def runs_of(store: Store, weighing: Weighing) -> Iterator[Run]:
    """A run for each attempt at a trial, then the verdicts."""
    records = store.records()
    for record in records:
        yield _trial(record)
    effects: dict[str, float] = {}
    for each in (*weighing.comparisons, *weighing.tested):
        found = {"effect": each.effect, "low": each.low, "high": each.high, "blocks": each.n}
        name = f"{each.metric}/{each.level}"
        effects |= {_named(f"{name}/{kind}"): float(value) for kind, value in found.items() if value is not None}
    words = {_named(f"verdict {each.metric} {each.level}"): each.verdict for each in weighing.comparisons}
    end_ms = max((_trial(record).end_ms for record in records), default=0)
    yield Run("verdicts", {"against": safe_text(weighing.against)}, effects, words, end_ms, end_ms)


def _trial(record: Record) -> Run:
    try:
        start_ms = round(datetime.fromisoformat(record.started_utc).timestamp() * 1000)
    except ValueError:
        start_ms = 0
    params = {_named(name): value for name, value in record.settings.items()}
    params |= {"block": record.block, "position": record.position, "twin": record.twin}
    found = {_named(name): float(value) for name, value in record.metrics.items() if math.isfinite(value)}
    tags = {"state": record.state, "trial": record.trial, "attempt": str(record.attempt)}
    if record.reasons:
        tags["reasons"] = "; ".join(safe_text(reason) for reason in record.reasons)[:_MOST_VALUE]
    end_ms = start_ms + max(0, record.end_ns - record.start_ns) // 1_000_000
    name = f"{record.trial[:8]}-{record.attempt}, block {record.block}"
    return Run(name, params, found, tags, start_ms, end_ms, record.state in USABLE)


def _named(name: str) -> str:
    return _NAME.sub("_", safe_text(name))[:200]


def to_mlflow(store: Store, weighing: Weighing, report: str, folder: Path) -> None:
    """Into a tracking folder, as one experiment called like the study; `mlflow ui` shows it."""
    mlflow, entities = library("mlflow"), library("mlflow.entities", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=folder.resolve().as_uri())
    name = _named(weighing.study) or "tare"
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known is not None else client.create_experiment(name)
    for each in runs_of(store, weighing):
        run = client.create_run(experiment, start_time=each.start_ms, tags=dict(each.tags), run_name=each.name)
        ident = run.info.run_id
        params = [entities.Param(key, text(value)[:_MOST_VALUE]) for key, value in each.params.items()]
        metrics = [entities.Metric(key, value, each.end_ms, 0) for key, value in each.metrics.items()]
        client.log_batch(ident, metrics=metrics, params=params[:_MOST_PARAMS])
        if each.name == "verdicts":
            with _file(report) as file:
                client.log_artifact(ident, str(file))
        client.set_terminated(ident, "FINISHED" if each.ok else "FAILED", end_time=each.end_ms)


def to_wandb(store: Store, weighing: Weighing, report: str, folder: Path) -> None:
    """Offline runs below FOLDER/wandb; `wandb sync FOLDER/wandb/offline-run-*` uploads them."""
    wandb = library("wandb")
    folder.mkdir(parents=True, exist_ok=True)
    # Else the report would wait for the upload in the user's home, and stay there.
    os.environ.setdefault("WANDB_DATA_DIR", str(folder.resolve()))
    quiet = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
    for each in runs_of(store, weighing):
        run = wandb.init(
            project=_named(weighing.study).replace("/", "_")[:120] or "tare", name=each.name, dir=str(folder),
            mode="offline", config={**each.params, **each.tags}, settings=quiet, tags=[] if each.ok else ["not used"],
        )  # fmt: skip
        run.summary.update(dict(each.metrics))
        if each.name == "verdicts":
            with _file(report) as file:
                artifact = wandb.Artifact("report", type="report")
                artifact.add_file(str(file))
                run.log_artifact(artifact)
                run.finish()
        else:
            run.finish(exit_code=0 if each.ok else 1)


def library(name: str, extra: str = "") -> Any:
    """The tracker's own library, or an error that names what brings it."""
    # MLflow 3 keeps folders for those who ask; its databases need the whole of it, and a server would be elsewhere.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        return importlib.import_module(name)
    except ImportError:
        extra = extra or name
        raise ObstacleError(f"this needs the library {extra}: `{pip_install(extra)}` brings it.") from None


@contextmanager
def _file(report: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(report, encoding="utf-8")
        yield path
