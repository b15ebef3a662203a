"""A store for other tools: OpenMetrics, Perfetto, experiment trackers."""

from __future__ import annotations

import itertools
import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import some_weighings as some
from tare.analysis.weighing import weigh
from tare.base.errors import ObstacleError, StudyError
from tare.base.installed import pip_install
from tare.cli import report, tare
from tare.records.store import Store
from tare.report import other_tools
from tare.report.other_tools import Numbers, Run, as_openmetrics, runs_of

# OpenMetrics text: what the format demands, what a hostile label cannot do, and who may read it while a study runs.

SAMPLE = re.compile(r'(tare_\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)')


def lines_of(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample; a line that is neither one nor a comment fails."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2]))
            found.append((sample[1], labels, float(sample[3])))
    return found


def test_every_family_is_declared_once_stands_together_and_the_text_has_its_end() -> None:
    weighing = some.several().weighing
    stores = [Numbers("a", {"ok": 3}, 4, weighing), Numbers("b", {"ok": 1, "failed": 2}, 9)]
    text = as_openmetrics(stores)
    declared = re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)
    names = [name for name, _, _ in lines_of(text)]
    grouped = [name for name, _ in itertools.groupby(names)]
    assert declared == grouped
    assert len(declared) == len(set(declared))
    assert text.endswith("\n# EOF\n")


def test_a_verdict_is_one_of_four_and_its_effect_the_store_s() -> None:
    weighing = some.normal().weighing
    samples = lines_of(as_openmetrics([Numbers("s", {}, 0, weighing)]))
    for each in weighing.comparisons:
        ours = [s for s in samples if s[1].get("level") == each.level and s[1].get("metric") == each.metric]
        assert [s[1]["verdict"] for s in ours if s[0] == "tare_verdict" and s[2]] == [each.verdict]
        assert [s[2] for s in ours if s[0] == "tare_effect_ratio"] == [each.effect]
    assert len([s for s in samples if s[0] == "tare_verdict"]) == 4 * len(weighing.comparisons + weighing.tested)


def test_an_unknown_value_is_absent() -> None:
    weighing = some.normal().weighing
    without = replace(weighing, comparisons=(replace(weighing.comparisons[0], low=None, high=None),), tested=())
    names = {name for name, _, _ in lines_of(as_openmetrics([Numbers("s", {}, 0, without)]))}
    assert "tare_effect_ratio" in names
    assert not names & {"tare_effect_low_ratio", "tare_effect_high_ratio"}


def test_a_label_cannot_add_a_line_or_a_label() -> None:
    hostile = 'x"} 1\n# EOF\ntare_trials{state="\\'
    text = as_openmetrics([Numbers(hostile, {"ok": 1}, 1)])
    assert len(lines_of(text)) == 2
    assert text.count("\n# EOF") == 1


# A store as a trace of Chrome's format, from kept stores.

KEPT = Path(__file__).parents[3] / "studies-results" / "cpu2"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("trace") / "trace.json"
    pack = KEPT / "s0-seccomp.tare"
    done = CliRunner().invoke(tare, ["report", str(pack), "--format", "perfetto", "-o", str(file)])
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return found


def test_each_trial_is_a_process_with_slices_and_counters(written: list[dict[str, Any]]) -> None:
    with Store.open(KEPT / "s0-seccomp.tare") as store:
        trials = len(store.records())
    named = [each for each in written if each["name"] == "process_name"]
    assert len(named) == trials
    kinds = Counter(each["ph"] for each in written)
    assert kinds["X"] > 0
    assert kinds["C"] > 0


def test_every_event_has_what_the_format_asks_for(written: list[dict[str, Any]]) -> None:
    for each in written:
        assert {"ph", "pid", "name"} <= each.keys()
        if each["ph"] != "M":
            assert isinstance(each["ts"], float)
        if each["ph"] == "X":
            assert each["dur"] >= 0
            assert each["tid"] > 0


def test_slices_of_a_track_do_not_overlap(written: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in written:
        if each["ph"] == "X":
            tracks.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["ts"] + each["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(spans))


# What experiment trackers get of a store: a run per trial and the verdicts; CI has not got their libraries.

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
    """The calls, with a stand-in for the library; docs/how-to/report.md says what was run for real."""
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
    assert f"`{pip_install(name)}`" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_no_file_for_the_other_formats(tmp_path: Path) -> None:
    done = CliRunner().invoke(tare, ["report", str(PACK), "--format", "csv", "-o", str(tmp_path)])
    assert isinstance(done.exception, StudyError)
    assert "is a folder" in str(done.exception)
