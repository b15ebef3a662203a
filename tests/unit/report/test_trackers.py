"""What experiment trackers get of a store: a run per trial and the verdicts; CI has not got their libraries."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tare.analysis.weighing import weigh
from tare.base.errors import ObstacleError, StudyError
from tare.cli import report, tare
from tare.records.store import Store
from tare.report import other_tools
from tare.report.other_tools import Run, runs_of

_BLOCK, _WHOLE_OR_LAST = 32768, (1, 4)
PACK = Path(__file__).parents[3] / "studies-results" / "cpu2" / "s4-platforms.tare"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    with Store.open(PACK) as store:
        return list(runs_of(store, weigh(store)))


def test_every_attempt_is_a_run_and_the_last_has_the_verdicts(runs: list[Run]) -> None:
    with Store.open(PACK) as store:
        records, weighing = store.records(), weigh(store)
    *trials, verdicts = runs
    assert [run.tags["trial"] for run in trials] == [record.trial for record in records]
    assert [run.metrics.get("wall_s") for run in trials] == [record.metrics.get("wall_s") for record in records]
    assert all(run.end_ms >= run.start_ms > 0 for run in trials)
    assert len({run.name for run in runs}) == len(runs)
    effects = [value for name, value in verdicts.metrics.items() if name.endswith("/effect")]
    assert effects[: len(weighing.comparisons)] == [
        each.effect for each in weighing.comparisons if each.effect is not None
    ]
    assert sorted(verdicts.tags.values()) == sorted(each.verdict for each in weighing.comparisons)


def test_mlflow_gets_each_run_once_and_the_report(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls, with a stand-in for the library; docs/how-to/report-and-dashboard.md says what was run for real."""
    seen: list[tuple[str, Any]] = []

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            seen.append(("at", tracking_uri))

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            seen.append(("experiment", name))
            return "1"

        def create_run(self, experiment: str, **more: Any) -> Any:
            seen.append(("run", more["run_name"]))
            return SimpleNamespace(info=SimpleNamespace(run_id=more["run_name"]))

        def log_batch(self, run: str, metrics: list[Any], params: list[Any]) -> None:
            seen.append(("batch", (run, dict(each[:2] for each in metrics))))

        def log_artifact(self, run: str, path: str) -> None:
            seen.append(("artifact", (run, "<html" in Path(path).read_text("utf-8"))))

        def set_terminated(self, run: str, status: str, end_time: int) -> None:
            seen.append(("end", status))

    library, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    library.MlflowClient, library.entities = Client, entities  # type: ignore[attr-defined]
    entities.Param = lambda *held: held  # type: ignore[attr-defined]
    entities.Metric = lambda *held: held  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", library)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    done = CliRunner().invoke(tare, ["report", str(PACK), "--format", "mlflow", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert seen[0] == ("at", tmp_path.resolve().as_uri())
    assert [what for kind, what in seen if kind == "run"] == [run.name for run in runs]
    assert dict(what for kind, what in seen if kind == "batch") == {run.name: dict(run.metrics) for run in runs}
    assert [what for kind, what in seen if kind == "artifact"] == [("verdicts", True)]


def records_of(file: Path) -> Iterator[Any]:
    """What an offline run of W&B has in its file: its protobuf messages, in the frames of a log of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    data, at, held = file.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if (left := _BLOCK - at % _BLOCK) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in _WHOLE_OR_LAST:
            yield wandb_internal_pb2.Record.FromString(held)
            held = b""


def values(items: Any) -> dict[str, Any]:
    return {item.key: json.loads(item.value_json) for item in items if item.key}


def test_what_wandb_wrote_is_read_back_with_its_own_messages(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="there is no wandb in this Python.")
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    monkeypatch.setattr(other_tools, "runs_of", lambda *_: [runs[0], runs[-1]])

    with Store.open(PACK) as store:
        other_tools.to_wandb(store, weigh(store), "<html>a report</html>", tmp_path)

    found: dict[str, list[Any]] = {}
    for file in tmp_path.glob("wandb/offline-run-*/run-*.wandb"):
        kept = list(records_of(file))
        found[next(each.run.display_name for each in kept if each.HasField("run"))] = kept
    assert set(found) == {runs[0].name, "verdicts"}
    for wanted in (runs[0], runs[-1]):
        kept = found[wanted.name]
        config = values(next(each.run.config.update for each in kept if each.HasField("run")))
        summary = values(item for each in kept if each.HasField("summary") for item in each.summary.update)
        assert {**wanted.params, **wanted.tags}.items() <= config.items()
        assert wanted.metrics.items() <= summary.items()
    (report,) = [each.artifact for each in found["verdicts"] if each.HasField("artifact")]
    (content,) = report.manifest.contents
    assert content.path == "report.html"
    assert Path(content.local_path).is_relative_to(tmp_path)
    assert Path(content.local_path).read_text() == "<html>a report</html>"


def test_what_mlflow_wrote_is_read_back_by_itself(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="there is no mlflow in this Python.")
    monkeypatch.setattr(other_tools, "runs_of", lambda *_: [runs[0], runs[-1]])

    with Store.open(PACK) as store:
        other_tools.to_mlflow(store, weigh(store), "<html>a report</html>", tmp_path / "runs")

    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "runs").as_uri())
    (experiment,) = [each for each in client.search_experiments() if each.name == "s4-platforms"]
    found = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert set(found) == {runs[0].name, "verdicts"}
    for wanted in (runs[0], runs[-1]):
        kept = found[wanted.name].data
        assert kept.metrics == wanted.metrics
        assert set(kept.params) == set(wanted.params) and wanted.tags.items() <= kept.tags.items()
    assert [each.path for each in client.list_artifacts(found["verdicts"].info.run_id)] == ["report.html"]


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_without_its_library_the_command_names_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(report, "reading", lambda store: pytest.fail("it was read before"))
    done = CliRunner().invoke(tare, ["report", str(PACK), "--format", name, "-o", str(tmp_path / "runs")])
    assert isinstance(done.exception, ObstacleError)
    assert f"[{name}]" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_no_file_for_the_other_formats(tmp_path: Path) -> None:
    done = CliRunner().invoke(tare, ["report", str(PACK), "--format", "csv", "-o", str(tmp_path)])
    assert isinstance(done.exception, StudyError)
    assert "is a folder" in str(done.exception)
