"""A store for experiment trackers, through their own libraries: MLflow (its tracking folder) and Weights & Biases
(offline runs, which `wandb sync` uploads). Nothing is sent anywhere.

Each trial is a run: its settings are parameters, its figures metrics, its state a tag. One more run, `verdicts`, has
the effects with their intervals and the report as an artifact.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tare.analysis.labels import text
from tare.analysis.model import Weighing
from tare.base.errors import ObstacleError, pip_install
from tare.base.text import safe_text
from tare.records.model import USABLE, Record
from tare.records.store import Store

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
